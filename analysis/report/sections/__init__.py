"""The sections of the report, one file per topic."""
