"""Keep what was received on disk until it is in Parquet files, and record which time spans were observed."""
