"""Merge sorted files into one, and prove that the new file has the same rows.

DuckDB sorts the rows, on disk where memory does not suffice. Of rows that are equal in every column, one is
written: a block that was stored twice is the same block. Rows that share a grain and differ are all kept, and
counted.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from collector.dataset.files import FILE_MODE
from collector.dataset.footer import UNREADABLE
from collector.dataset.parquet_files import ROW_GROUP_ROWS, parquet_options, refuse_damaged
from collector.dataset.query import contract_rows
from collector.dataset.schema import Table
from collector.errors import DatasetError


class Merged(NamedTuple):
    """Says how many rows and bytes a merge wrote and removed.

    `n_differing` counts the keys (grains) that several rows still have.
    """

    n_rows: int
    n_removed: int  # rows that were there more than once, alike in every column
    n_differing: int  # grains that more than one row has
    bytes_before: int
    bytes_after: int


def merge(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    sources: Sequence[Path],
    target: Path,
    *,
    rows: str = "",
) -> Merged:
    """Write the distinct rows of the files `sources`, in the table's order, into the new file `target`.

    `rows` is an SQL query to read instead of the sources, when some values change. The file is compared with
    what was read. Returns what was read and written as Merged. Raises DatasetError when a source cannot be
    read or is damaged, or `target` does not have exactly the expected rows.
    """
    for path in sources:
        refuse_damaged(path)
    rows = rows or contract_rows(table, sources)
    try:
        _write(connection, table, rows, target)
        n_sources, n_target = _verify(connection, table, rows, target)
        n_differing = _count_differing(connection, table, target)
    except (duckdb.Error, *UNREADABLE) as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(
            f"cannot merge the files of {sources[0].parent}: {reason}; nothing was changed, {_advice(reason)}"
        ) from None
    before = sum(path.stat().st_size for path in sources)
    return Merged(n_target, n_sources - n_target, n_differing, before, target.stat().st_size)


def _advice(reason: str) -> str:
    """Return what to do about the reason for which files cannot be merged, as part of a sentence."""
    if os.strerror(errno.EMFILE) in reason:
        return "raise the limit of open files (ulimit -n, or LimitNOFILE= of the service)"
    return "`pool-collector check` names a file that cannot be read"


def _write(connection: duckdb.DuckDBPyConnection, table: Table, rows: str, target: Path) -> None:
    """Write the distinct rows of the query `rows`, sorted, into the new file `target`; force it to disk."""
    order = ", ".join(dict.fromkeys((*table.sort, *table.grain)))
    reader = connection.sql(f"SELECT DISTINCT * FROM {rows} ORDER BY {order}").to_arrow_reader(ROW_GROUP_ROWS)  # noqa: S608 - names are the contract's
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    with os.fdopen(handle, "wb") as sink:
        _write_groups(reader, table, sink)
        sink.flush()
        os.fsync(sink.fileno())


def _write_groups(reader: pa.RecordBatchReader, table: Table, sink: BinaryIO) -> None:
    """Write the rows of `reader` as Parquet row groups of one size, whatever the size of its batches."""
    with pq.ParquetWriter(sink, table.arrow, **parquet_options(table)) as writer:
        waiting: list[Any] = []
        for batch in reader:
            waiting.append(pa.Table.from_batches([batch]).cast(table.arrow))
            if sum(map(len, waiting)) < ROW_GROUP_ROWS:
                continue
            rows = pa.concat_tables(waiting)
            writer.write_table(rows.slice(0, ROW_GROUP_ROWS), row_group_size=ROW_GROUP_ROWS)
            waiting = [rows.slice(ROW_GROUP_ROWS)]
        rows = pa.concat_tables(waiting) if waiting else table.arrow.empty_table()
        if len(rows):
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)


def _verify(connection: duckdb.DuckDBPyConnection, table: Table, old: str, target: Path) -> tuple[int, int]:
    """Compare the rows of the query `old` with those of the file `target` by value; return both counts.

    Raises DatasetError if the file lacks a row, has another one, or has one twice.
    """
    new = contract_rows(table, [target])
    columns = ", ".join(column.name for column in table.columns)
    ((n_sources, n_target),) = connection.execute(
        f"SELECT (SELECT count(*) FROM {old}), (SELECT count(*) FROM {new})"  # noqa: S608 - names are the contract's
    ).fetchall()
    ((n_wrong,),) = connection.execute(
        f"""
        SELECT count(*) FROM (
            SELECT count(*) FILTER (is_old) AS n_old, count(*) FILTER (NOT is_old) AS n_new
            FROM (SELECT *, true AS is_old FROM {old} UNION ALL SELECT *, false FROM {new})
            GROUP BY {columns}
        ) WHERE n_old = 0 OR n_new <> 1
        """  # noqa: S608 - the same
    ).fetchall()
    if n_wrong:
        raise DatasetError(f"{target} lacks rows of its sources: {n_wrong} differ; nothing was changed")
    return n_sources, n_target


def _count_differing(connection: duckdb.DuckDBPyConnection, table: Table, target: Path) -> int:
    """Return how many keys (values of the table's grain) are those of several rows in the file `target`."""
    grain = ", ".join(table.grain)
    rows = contract_rows(table, [target])
    ((n_differing,),) = connection.execute(
        f"SELECT count(*) FROM (SELECT {grain} FROM {rows} GROUP BY {grain} HAVING count(*) > 1)"  # noqa: S608 - names are the contract's
    ).fetchall()
    return int(n_differing)
