"""Open DuckDB the way every part of the analysis uses it: in UTC, with the functions of analysis.stats."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import duckdb

from analysis.errors import DatabaseError
from analysis.stats import FUNCTIONS
from analysis.stats.sql_functions import create_functions

# DuckDB writes the file in the form of this older version, so that every client since then can read it.
STORAGE: Final = "v1.4.0"


@contextmanager
def connect(
    database: Path | str = ":memory:", *, read_only: bool = False, memory_gb: float | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB in UTC with our statistics; nothing is downloaded. The connection is closed at the end."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "storage_compatibility_version": STORAGE,
    }
    if memory_gb is not None:
        config["memory_limit"] = f"{memory_gb}GB"
    connection = duckdb.connect(str(database), read_only=read_only, config=config)
    try:
        # First of all: casting a zoned timestamp to a date uses the zone of the session.
        connection.execute("SET TimeZone = 'UTC'")
        create_functions(connection, FUNCTIONS)
        yield connection
    finally:
        connection.close()


@contextmanager
def open_database(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the result of a build for reading. Raises DatabaseError where there is none."""
    if not database.is_file():
        raise DatabaseError(f"there is no database {database}; make it with pool-analysis build")
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(connect(database, read_only=True))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise DatabaseError(
                f"{database} cannot be read ({reason}); make it anew with pool-analysis build"
            ) from None
        yield connection
