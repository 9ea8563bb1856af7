"""Start from a dataset in a notebook: build its marts, get a connection to them."""

from pathlib import Path
from typing import Final

import duckdb

from analysis import engine
from analysis.attribution.rules import default_rules_dir
from analysis.duckdb_client import IN_UTC

DATABASE: Final = Path("analysis.duckdb")


def open_marts(
    dataset: str | Path,
    database: str | Path = DATABASE,
    *,
    rules: str | Path | None = None,
    chain: str | None = None,
) -> duckdb.DuckDBPyConnection:
    """Build every mart of a dataset anew and open the database for reading, in UTC.

    `rules` is a folder of pool rules, the project's own if none. Raises AnalysisError where the dataset, the
    rules or the database cannot be used; what checks found is in `check_results`.
    """
    result = engine.build(Path(dataset), Path(rules) if rules else default_rules_dir(), Path(database), chain)
    connection = duckdb.connect(str(result.database), read_only=True)
    connection.execute(IN_UTC)
    return connection
