"""Find out whether the rows of raw tables changed, and what their least and greatest values are.

The content of a table is its number of rows and the sum of DuckDB's 64-bit hashes of the rows. It is a sum
over files, so only new files are read, and compaction does not change it.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import duckdb

from analysis.extents import Extent
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES, Table

# What is kept of a file that was read: bytes, time of its last change in ns, rows, sum of row hashes, least
# and greatest values, and the columns whose values those are.
FileFacts = list[Any]
FACTS: Final = 6
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
NO_HASHES: Final[Mapping[str, str]] = {}
NO_COLUMNS: Final[Mapping[str, list[str]]] = {}


class File(NamedTuple):
    """Names a file, what identifies its rows, between which values they lie, and how many there are.

    `columns` has a hash of the values of each column, in the order of the rows; it is empty where that is not
    known.
    """

    path: str
    content: str
    extent: Extent
    n_rows: int
    columns: Mapping[str, str] = NO_HASHES


class Content(NamedTuple):
    """Identifies the rows of a table by their number and the sum of their hashes; lists its files."""

    n_rows: int
    total: int
    files: tuple[File, ...] = ()


def raw_contents(
    connection: duckdb.DuckDBPyConnection,
    dataset: Dataset,
    known: dict[str, FileFacts],
    columns: Mapping[str, list[str]] = NO_COLUMNS,
) -> dict[str, Content]:
    """Return for each raw table its Content: the number of its rows and the sum of their hashes.

    For the given `columns` of a table the least and the greatest value in each file are found as well.
    `known` has what was found of each file, by its path in the dataset, so that only new files are read. The
    function adds new files to `known` and removes files that are gone. Raises duckdb.Error for a file that
    cannot be read.
    """
    contents, found = {}, {}
    for name, table in TABLES.items():
        files, named = [], columns.get(name, [])
        for path in dataset.paths(table):
            key = path.relative_to(dataset.folder).as_posix()
            status = path.stat()
            facts = known.get(key)
            if (
                facts is None
                or len(facts) != FACTS
                or facts[:2] != [status.st_size, status.st_mtime_ns]
                or facts[5] != named
            ):
                rows = contract_rows(table, [path])
                content = content_of(connection, table, rows)
                extent = extent_of(connection, rows, named)
                facts = [status.st_size, status.st_mtime_ns, content.n_rows, content.total, extent, named]
            found[key] = facts
            files.append(File(key, f"{facts[2]} {facts[3]}", facts[4], facts[2]))
        totals = [found[file.path][2:4] for file in files]
        n_rows, total = (sum(numbers) for numbers in zip(*totals, strict=True)) if totals else (0, 0)
        contents[name] = Content(n_rows, total, tuple(files))
    known.clear()
    known.update(found)
    return contents


def file_stamps(dataset: Dataset) -> list[tuple[str, int, int]]:
    """Return the path, the size and the time of the last change of every file of the dataset.

    Paths are relative to the dataset's folder, sizes in bytes, times in nanoseconds since 1970 UTC.
    """
    return [
        (path.relative_to(dataset.folder).as_posix(), status.st_size, status.st_mtime_ns)
        for table in TABLES.values()
        for path in dataset.paths(table)
        for status in (path.stat(),)
    ]


def contents_of_relations(connection: duckdb.DuckDBPyConnection) -> dict[str, Content]:
    """Return for each raw table its Content, read from the relations of a connection with the tables' names.

    A Content is the number of rows and the sum of their hashes.
    """
    queries = [_query(table, name) for name, table in TABLES.items()]
    rows = connection.execute(" UNION ALL ".join(queries)).fetchall()  # one plan costs less than many
    return {name: Content(n_rows, int(total)) for name, n_rows, total in rows}


def content_of(connection: duckdb.DuckDBPyConnection, table: Table, rows: str) -> Content:
    """Return the number of some rows of a raw table and the sum of their hashes.

    `rows` is the SQL source of the rows: the name of a relation, or a query in parentheses.
    """
    _, n_rows, total = connection.execute(_query(table, rows)).fetchall()[0]
    return Content(n_rows, int(total))


def extent_of(connection: duckdb.DuckDBPyConnection, rows: str, columns: Iterable[str]) -> Extent:
    """Return the least and the greatest value of some columns of rows, by column; see `to_extent`.

    `rows` is the SQL source of the rows.
    """
    names = list(columns)
    if not names:
        return {}
    both = ", ".join(map(extent_sql, names))
    (found,) = connection.execute(f"SELECT {both} FROM {rows}").fetchall()  # noqa: S608 - names of ours
    return to_extent(names, found)


def extent_sql(column: str) -> str:
    """Return the SQL expression for the list [least, greatest] of a column's values."""
    return f"[min({column}), max({column})]"


def to_extent(columns: Iterable[str], found: Iterable[list[Any]]) -> dict[str, list[int] | None]:
    """Return the least and greatest values that `extent_sql` gave for columns as integers, by column.

    A time becomes microseconds since 1970 UTC, a date days since then. A column that has only nulls is None;
    one with values of another type is left out.
    """
    extent: dict[str, list[int] | None] = {}
    for name, both in zip(columns, found, strict=True):
        if both[0] is None:
            extent[name] = None
        elif isinstance(both[0], dt.datetime):
            extent[name] = [(moment - EPOCH) // dt.timedelta(microseconds=1) for moment in both]
        elif isinstance(both[0], dt.date):
            extent[name] = [(day - EPOCH.date()).days for day in both]
        elif isinstance(both[0], int | Decimal):
            extent[name] = [int(number) for number in both]
    return extent


def _query(table: Table, rows: str) -> str:
    """Return a SQL query for a table's name, the number of its rows, and the sum of the rows' hashes."""
    columns = ", ".join(column.name for column in table.columns)
    return f"SELECT '{table.name}', count(*), coalesce(sum(hash({columns})), 0) FROM {rows}"  # noqa: S608 - names of the contract
