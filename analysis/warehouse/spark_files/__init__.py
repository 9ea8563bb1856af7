"""The files that are written beside the SQL files for Spark, as they stand here."""
