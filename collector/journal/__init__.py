"""Keep what was received safe until it is in Parquet files, and keep track of which spans were observed."""
