"""What the footer of a Parquet file says of its columns, by which readers leave rows out.

No checksum is over a footer. DuckDB reads it: pyarrow decodes a column's part when it is asked for it, where
nothing turns an error into an exception, so that one wrong byte would end the process.
"""

import glob
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from collector.errors import DatasetError

UNREADABLE: Final = (pa.ArrowException, OSError, UnicodeDecodeError)  # what pyarrow raises for a damaged file


class ColumnChunk(NamedTuple):
    """A column of a row group. Bounds are text as DuckDB writes it; what a footer does not say is None."""

    group: int
    n_rows: int  # of the row group
    column: str
    n_values: int  # as many, in a column that is no list
    compression: str
    least: str | None
    greatest: str | None
    n_null: int | None


def read_footer(connection: duckdb.DuckDBPyConnection, path: Path) -> list[ColumnChunk]:
    """Read what a footer says of each column in each row group.

    Raises DatasetError where it is damaged, FileNotFoundError and PermissionError.
    """
    query = """
        SELECT row_group_id, row_group_num_rows, path_in_schema, num_values, compression,
            stats_min_value, stats_max_value, stats_null_count
        FROM parquet_metadata(?) ORDER BY row_group_id, column_id
    """
    chunks = [ColumnChunk(*row) for row in query_file(connection, path, query)]
    if any(chunk.n_rows < 0 for chunk in chunks):
        raise DatasetError("its footer says that a row group has fewer than no rows")
    return chunks


def read_through(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Have DuckDB read every value of a file; raises as `read_footer` does."""
    query_file(
        connection, path, "SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet(?, hive_partitioning = false)"
    )


def query_file(connection: duckdb.DuckDBPyConnection, path: Path, query: str) -> list[tuple[Any, ...]]:
    """Run a query of one file, whose path is its parameter; raises as `read_footer` does."""
    path.open("rb").close()  # DuckDB says the same of all that it cannot open
    try:
        return connection.execute(query, [glob.escape(str(path))]).fetchall()
    except duckdb.OutOfMemoryException:
        raise
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"DuckDB cannot read this file: {str(error).splitlines()[0]}") from None
