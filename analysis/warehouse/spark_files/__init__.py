"""Hold the files that are written, as they stand here, beside the SQL files for Spark."""
