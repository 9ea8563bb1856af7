"""Find out whether the rows of raw tables changed, and what their least and greatest values are.

The content of a table is its number of rows and the sum of DuckDB's 64-bit hashes of the rows. It is a sum
over files, so only new files are read. Compaction does not change it, unless it leaves out a row that was
stored twice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import duckdb

from analysis.database import in_threads
from analysis.extents import Extent, extent_sql, to_extent
from analysis.parts import digest
from analysis.raw_views import Listing, listed_files
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES, Table

# What is kept of a file that was read: bytes, time of its last change in ns, rows, sum of row hashes, least
# and greatest values, and a hash of how it was read.
FileFacts = list[Any]
FACTS: Final = 6
NO_HASHES: Final[Mapping[str, str]] = {}


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


class NewFile(NamedTuple):
    """Names a file of a raw table that is to be read, and the columns whose extents are wanted.

    `path` is relative to the dataset's folder of the chain. `changed_ns` is the time of its last change, in
    nanoseconds since 1970 UTC. `reading` is a hash of how it is read, which its facts keep.
    """

    table: str
    path: str
    n_bytes: int
    changed_ns: int
    columns: list[str]
    reading: str


def raw_contents(
    dataset: Dataset,
    listing: Listing,
    known: dict[str, FileFacts],
    *,
    columns: Mapping[str, list[str]],
    versions: str,
    read: Callable[[Sequence[NewFile]], Iterable[FileFacts]],
) -> dict[str, Content]:
    """Return for each raw table its Content: the number of rows and the sum of their hashes in its files.

    `listing` names those files. For the given `columns` of a table the least and the greatest value in each
    file are found as well. `known` has what was found of each file, by its path in the dataset, so that only
    new files are read; this is done by `read`. What other `versions` of the libraries, or of the contract,
    found is read again: their hashes of the same rows may differ. The function adds new files to `known` and
    removes files that are gone. Raises duckdb.Error for a file that cannot be read.
    """
    found, new = {}, []
    for name, files in listing.items():
        named = columns.get(name, [])
        reading = digest([versions, [column.name for column in TABLES[name].columns], named])
        for file in files:
            status = (dataset.folder / file).stat()
            one = NewFile(name, file, status.st_size, status.st_mtime_ns, named, reading)
            facts = known.get(file, [])
            if len(facts) == FACTS and [*facts[:2], facts[5]] == [one.n_bytes, one.changed_ns, reading]:
                found[file] = facts
            else:
                new.append(one)
    found |= {file.path: facts for file, facts in zip(new, read(new), strict=True)}
    known.clear()
    known.update(found)
    return {name: _of_files({file: found[file] for file in files}) for name, files in listing.items()}


def read_files(
    connection: duckdb.DuckDBPyConnection, dataset: Dataset, n_at_once: int, files: Sequence[NewFile]
) -> list[FileFacts]:
    """Return what is found in each of some files of raw tables; `n_at_once` are read at the same time."""

    def read(file: NewFile, own: duckdb.DuckDBPyConnection) -> FileFacts:
        table, path, n_bytes, changed_ns, columns, reading = file
        query = _query(TABLES[table], contract_rows(TABLES[table], [dataset.folder / path]), columns)
        ((_, n_rows, total, *both),) = own.execute(query).fetchall()
        return [n_bytes, changed_ns, n_rows, int(total), to_extent(columns, both), reading]

    return in_threads(connection, n_at_once, read, files)


def file_stamps(dataset: Dataset) -> list[tuple[str, int, int]]:
    """Return the path, the size and the time of the last change of every file of the dataset.

    Paths are relative to the dataset's folder, sizes in bytes, times in nanoseconds since 1970 UTC.
    """
    return [
        (file, status.st_size, status.st_mtime_ns)
        for files in listed_files(dataset).values()
        for file in files
        for status in ((dataset.folder / file).stat(),)
    ]


def contents_of_relations(connection: duckdb.DuckDBPyConnection) -> dict[str, Content]:
    """Return for each raw table its Content, read from the relations of a connection with the tables' names.

    A Content is the number of rows and the sum of their hashes.
    """
    queries = [_query(table, name) for name, table in TABLES.items()]
    rows = connection.execute(" UNION ALL ".join(queries)).fetchall()  # one plan costs less than many
    return {name: Content(n_rows, int(total)) for name, n_rows, total in rows}


def _of_files(facts: Mapping[str, FileFacts]) -> Content:
    """Return the Content of a raw table from the facts on its files, which come by their paths."""
    files = tuple(File(path, f"{each[2]} {each[3]}", each[4], each[2]) for path, each in facts.items())
    return Content(sum(each[2] for each in facts.values()), sum(each[3] for each in facts.values()), files)


def _query(table: Table, rows: str, asked: Iterable[str] = ()) -> str:
    """Return a SQL query for a table's name, the number of its rows, and the sum of the rows' hashes.

    The least and greatest values of the columns `asked` follow.
    """
    columns = ", ".join(column.name for column in table.columns)
    extents = "".join(f", {extent_sql(name)}" for name in asked)
    return f"SELECT '{table.name}', count(*), coalesce(sum(hash({columns})), 0){extents} FROM {rows}"  # noqa: S608 - names of the contract
