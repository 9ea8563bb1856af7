"""Read the footer of a Parquet file: for each row group and column, the least and greatest value and more.

Readers skip row groups by these values, so a wrong footer hides rows.

No checksum protects a footer. DuckDB reads it here, because one wrong byte in it can make pyarrow end the
whole process instead of raising an exception.
"""

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from collector.errors import DatasetError

UNREADABLE: Final = (pa.ArrowException, OSError, UnicodeDecodeError)  # what pyarrow raises for a damaged file
FOOTERS: Final = """
    SELECT file_name, row_group_id, row_group_num_rows, path_in_schema, num_values, compression,
        stats_min_value, stats_max_value, stats_null_count
    FROM parquet_metadata(?) ORDER BY file_name, row_group_id, column_id
"""


class ColumnChunk(NamedTuple):
    """Holds what a Parquet file's footer says of one column in one row group.

    `least` and `greatest` are text as DuckDB writes values. What the footer does not say is None.
    """

    group: int
    n_rows: int  # of the row group
    column: str
    n_values: int  # equals n_rows, except in a column of lists
    compression: str
    least: str | None
    greatest: str | None
    n_null: int | None


def read_footer(connection: duckdb.DuckDBPyConnection, path: Path) -> list[ColumnChunk]:
    """Return what the footer of the file at `path` says of each column in each row group.

    Raises DatasetError if the footer is damaged, and FileNotFoundError or PermissionError if the file cannot
    be opened.
    """
    return _sound([ColumnChunk(*row[1:]) for row in query_file(connection, path, FOOTERS)])


def read_footers(
    connection: duckdb.DuckDBPyConnection, paths: Iterable[Path]
) -> dict[Path, list[ColumnChunk]]:
    """Return for each file at `paths` what its footer says, as `read_footer` does, by one fast query.

    Raises DatasetError if one of the files cannot be opened or its footer is damaged; `read_footer` then
    tells which.
    """
    by_name = {str(path): path for path in paths}
    footers: dict[Path, list[ColumnChunk]] = {path: [] for path in by_name.values()}
    if by_name:
        for name, *chunk in _rows(connection, FOOTERS, [glob.escape(name) for name in by_name]):
            footers[by_name[name]].append(ColumnChunk(*chunk))
    return {path: _sound(chunks) for path, chunks in footers.items()}


def read_through(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make DuckDB read every value of the file at `path`, to find damage.

    Raises DatasetError if a value cannot be read, and FileNotFoundError or PermissionError if the file cannot
    be opened.
    """
    query_file(
        connection, path, "SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet(?, hive_partitioning = false)"
    )


def find_unreadable_file(paths: Iterable[Path]) -> DatasetError | None:
    """Return a DatasetError that names the first of the files that DuckDB cannot read; None if all can be.

    It is called after a query over many files failed without the name of the file.
    """
    for path in paths:
        try:
            with duckdb.connect() as connection:  # some damage makes a connection unusable
                read_through(connection, path)
        except FileNotFoundError:  # a compaction has moved it
            continue
        except (DatasetError, duckdb.Error, OSError) as error:
            reason = str(error).splitlines()[0]
            return DatasetError(f"{path} cannot be read ({reason}); restore it or move it out of the dataset")
    return None


def query_file(connection: duckdb.DuckDBPyConnection, path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of an SQL query whose only parameter is the file at `path`.

    Raises DatasetError if the file is damaged, and FileNotFoundError or PermissionError if it cannot be
    opened.
    """
    path.open("rb").close()  # DuckDB says the same of all that it cannot open
    return _rows(connection, query, glob.escape(str(path)))


def _sound(chunks: list[ColumnChunk]) -> list[ColumnChunk]:
    if any(chunk.n_rows < 0 for chunk in chunks):
        raise DatasetError("its footer says that a row group has a negative number of rows")
    return chunks


def _rows(connection: duckdb.DuckDBPyConnection, query: str, files: str | list[str]) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(query, [files]).fetchall()
    except duckdb.OutOfMemoryException:
        raise
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"DuckDB says: {str(error).splitlines()[0]}") from None
