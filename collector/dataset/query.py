"""Read files of a dataset with DuckDB, in bounded memory, with the columns of the contract."""

import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from collector.dataset.files import allow_many_open_files
from collector.dataset.schema import TABLES, Table

MEMORY: Final = "1GB"  # above it DuckDB works on disk


@contextmanager
def query_engine(spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB with a memory limit and yield the connection.

    What does not fit is written below `spill`.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    allow_many_open_files()
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def contract_rows(table: Table, paths: Iterable[Path]) -> str:
    """Return an SQL query for all rows of the files at `paths`, with the columns of the contract for `table`.

    Columns that older files lack are null.
    """
    return contract_rows_matching(table, [glob.escape(str(path)) for path in paths])


def contract_rows_matching(table: Table, patterns: Iterable[str]) -> str:
    """Return an SQL query for all rows of the files that match glob `patterns`, with the contract's columns.

    Columns that older files lack are null.
    """
    columns = ", ".join(column.name for column in table.columns)
    nulls = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in contract_types(table).items())
    no_rows = f"SELECT {nulls} WHERE false"
    files = ", ".join("'" + pattern.replace("'", "''") + "'" for pattern in patterns)
    if not files:
        return f"({no_rows})"
    read = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    return f"(SELECT {columns} FROM ({no_rows} UNION ALL BY NAME FROM {read}))"  # noqa: S608 - names are the contract's, and patterns are quoted


def contract_types(table: Table) -> dict[str, str]:
    """Map each column of `table` to the name that DuckDB gives its type."""
    return _types_by_table()[table.name]


@cache
def _types_by_table() -> dict[str, dict[str, str]]:
    found = {}
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            # `empty_table()` would load pandas, which takes half a second.
            connection.register("no_rows", pa.Table.from_batches([], schema=table.arrow))
            rows = connection.execute("DESCRIBE no_rows").fetchall()
            found[name] = {column: type_ for column, type_, *_ in rows}
    return found
