"""Tell whether the rows of raw tables changed, whatever files hold them.

The content of a table is its number of rows and the sum of DuckDB's 64-bit hashes of the rows. It is a sum
over files, so only new files are read, and compaction does not change it.
"""

from typing import Final, NamedTuple

import duckdb

from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES, Table

# What is kept of a file that was read: bytes, time of its last change in ns, rows, sum of hashes.
FileFacts = list[int]
FACTS: Final = 4


class Content(NamedTuple):
    """Identifies the rows of a table: their number and the sum of their hashes."""

    n_rows: int
    total: int


def raw_contents(
    connection: duckdb.DuckDBPyConnection, dataset: Dataset, known: dict[str, FileFacts]
) -> dict[str, Content]:
    """Map each raw table to its Content: the number of its rows and the sum of their hashes.

    `known` has the same two facts of each file, by its path in the dataset, so that only new files are read.
    The function adds new files to `known` and removes files that are gone. Raises duckdb.Error for a file
    that cannot be read.
    """
    contents, found = {}, {}
    for name, table in TABLES.items():
        files = []
        for path in dataset.paths(table):
            key = path.relative_to(dataset.folder).as_posix()
            status = path.stat()
            facts = known.get(key)
            if facts is None or len(facts) != FACTS or facts[:2] != [status.st_size, status.st_mtime_ns]:
                facts = [
                    status.st_size,
                    status.st_mtime_ns,
                    *content_of(connection, table, contract_rows(table, [path])),
                ]
            found[key] = facts
            files.append(facts)
        contents[name] = Content(sum(facts[2] for facts in files), sum(facts[3] for facts in files))
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
    """Map each raw table to its Content (number of rows and sum of their hashes).

    It reads the relations of a connection that have the names of the tables.
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


def _query(table: Table, rows: str) -> str:
    """Return a SQL query for a table's name, the number of its rows, and the sum of the rows' hashes."""
    columns = ", ".join(column.name for column in table.columns)
    return f"SELECT '{table.name}', count(*), coalesce(sum(hash({columns})), 0) FROM {rows}"  # noqa: S608 - names of the contract
