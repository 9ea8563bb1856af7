"""DuckDB over files of a dataset: the contract's columns, and memory that is bounded."""

import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from collector.dataset.schema import Table

MEMORY: Final = "1GB"  # above it DuckDB works on disk


@contextmanager
def query_engine(spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with little memory and a folder for what does not fit into it."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, table: Table, paths: Iterable[Path]) -> str:
    """Write a query for the rows of files, with the contract's columns; what older files lack is null."""
    columns = ", ".join(column.name for column in table.columns)
    contract = f"contract_{table.name}"
    connection.register("empty", table.arrow.empty_table())
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {contract} AS FROM empty")
    connection.unregister("empty")
    files = ", ".join("'" + glob.escape(str(path)).replace("'", "''") + "'" for path in paths)
    if not files:
        return f"(SELECT {columns} FROM {contract})"  # noqa: S608 - names are the contract's
    read = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    return f"(SELECT {columns} FROM (FROM {contract} UNION ALL BY NAME FROM {read}))"  # noqa: S608 - the same, and paths are quoted
