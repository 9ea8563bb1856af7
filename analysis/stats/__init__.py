"""Statistics that SQL does not have, as functions of DuckDB."""
