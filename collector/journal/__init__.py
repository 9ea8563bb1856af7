"""Keep what was received safe until it is in Parquet files, and keep account of what was observed."""
