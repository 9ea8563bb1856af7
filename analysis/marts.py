"""Open the marts of a dataset in Python: as pandas DataFrames, or as DuckDB relations."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import duckdb

from analysis import engine
from analysis.attribution.rules import default_rules_dir
from analysis.database import ask, open_database
from analysis.relations import check_relation

if TYPE_CHECKING:
    import pandas as pd

DATABASE: Final = Path("analysis.duckdb")


class OpenMarts:
    """Gives read access to the marts of one built database.

    Times are in UTC. Close it with `close()` or by a `with` block; it also closes when Python ends.
    """

    def __init__(self, database: Path) -> None:
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(open_database(database))

    def df(self, name: str) -> "pd.DataFrame":
        """Return all rows of one mart, staging view or raw table as a pandas DataFrame.

        Raises UnknownRelationError, with the nearest names, where there is no such relation.
        """
        check_relation(name)
        return self._connection.sql(f"FROM {name}").df()

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Run one query and return a DuckDB relation, which has `.df()`, `.fetchall()` and more.

        The query can read the database and its dataset, and no other file. Raises DatabaseError unless it is
        one statement that only reads, and UnknownRelationError, with the nearest names, for a relation that
        does not exist.
        """
        return ask(self._connection, query)

    def close(self) -> None:
        """Close the connection to the database; no relation can be read afterwards."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def open_marts(
    dataset: str | Path,
    database: str | Path = DATABASE,
    *,
    rules: str | Path | None = None,
    chain: str | None = None,
) -> OpenMarts:
    """Build the marts of a dataset that are not up to date, and return the database opened for reading.

    `rules` is a folder of pool rules; without it the project's own rules are used. Raises AnalysisError where
    the dataset, the rules or the database cannot be used. A failed check raises nothing: the table
    `check_results` has the results of the checks.
    """
    result = engine.build(Path(dataset), Path(rules) if rules else default_rules_dir(), Path(database), chain)
    return OpenMarts(result.database)
