"""Open DuckDB the way every part of the analysis uses it: in UTC, with the functions of analysis.stats.

A built database is opened for reading only, and confined: a query can read the database and the dataset that
it was built from, and nothing else on this machine. A query must be one statement that only reads.
"""

import glob
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import duckdb

from analysis.errors import DatabaseError
from analysis.parts import is_parts_folder, parts_folder
from analysis.relations import unknown_relation
from analysis.stats import FUNCTIONS
from analysis.stats.sql_functions import create_functions
from collector.dataset.files import allow_many_open_files
from collector.dataset.open import Dataset, is_utf8
from collector.dataset.schema import CHAINS, DATASET_MARKER

# DuckDB writes the file in the form of this older version, so that every client since then can read it.
STORAGE: Final = "v1.4.0"
GIVE_UP_S: Final = 0.1  # after so long, queries that were begun meanwhile are stopped as well
# Bytes of the units in which DuckDB tells sizes.
UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
OWN_GB: Final = 0.35  # what a build of a year took beside DuckDB was 0.25 GB
MAGIC: Final = b"DUCK"  # behind the checksum of 8 bytes with which a database begins
MAGIC_BYTES: Final = 12
BUILD_TABLES: Final = ("build_facts", "run_manifest")  # the second of releases before there was the first
RELATIONS: Final = """
    SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal
"""
# Connections that are open now, so that Ctrl-C can stop their queries.
_open: Final[set[duckdb.DuckDBPyConnection]] = set()

Item = TypeVar("Item")
Result = TypeVar("Result")

EXPLAIN: Final = re.compile(r"\s*explain(\s+analyze|\s*\([^)]*\))?\s", re.IGNORECASE)
MISSING: Final = re.compile(r"Table with name (\S+) does not exist")
PIVOT: Final = re.compile(r"\s*pivot\s", re.IGNORECASE)


@contextmanager
def connect(
    database: Path | str = ":memory:",
    *,
    read_only: bool = False,
    memory_gb: float | None = None,
    temp_gb: float | None = None,
    threads: int | None = None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB in UTC with the functions of analysis.stats; yield the connection, and close it at the end.

    No extension is downloaded or loaded on demand. `memory_gb` limits the memory of DuckDB, and `temp_gb` its
    temporary files, which lie beside the database; both in units of 10^9 bytes.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "storage_compatibility_version": STORAGE,
    }
    if memory_gb is not None:
        config["memory_limit"] = f"{memory_gb}GB"
    if temp_gb is not None:
        config["max_temp_directory_size"] = f"{temp_gb}GB"
    if threads is not None:
        config["threads"] = threads
    if not is_utf8(Path(database).absolute()):
        raise DatabaseError(
            f"the path {Path(database).absolute()} is not UTF-8, which DuckDB needs; choose another name"
        )
    allow_many_open_files()
    connection = duckdb.connect(str(database), read_only=read_only, config=config)
    _open.add(connection)
    try:
        # First of all: casting a zoned timestamp to a date uses the zone of the session.
        # Global, so that a cursor of this connection has the zone as well.
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        # Else DuckDB draws a bar over whatever an interactive Python or `python -c` prints, also in a file.
        connection.execute("SET enable_progress_bar = false")
        create_functions(connection, FUNCTIONS)
        yield connection
    finally:
        _open.discard(connection)
        connection.close()


class Cursors:
    """Lends further connections to one database to threads.

    Each has temporary views, tables and variables of its own.
    """

    def __init__(self, cursors: Iterable[duckdb.DuckDBPyConnection]) -> None:
        self._all = tuple(cursors)
        self._free: SimpleQueue[duckdb.DuckDBPyConnection] = SimpleQueue()
        for cursor in self._all:
            self._free.put(cursor)

    @contextmanager
    def lent(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Wait for a connection that nobody uses, and yield it."""
        cursor = self._free.get()
        try:
            yield cursor
        finally:
            self._free.put(cursor)

    def interrupt(self) -> None:
        """Stop the queries that run now; each ends with duckdb.Error."""
        for cursor in self._all:
            cursor.interrupt()


@contextmanager
def open_cursors(connection: duckdb.DuckDBPyConnection, n_cursors: int) -> Iterator[Cursors]:
    """Open so many further connections to the database of `connection`; Ctrl-C stops their queries, too."""
    cursors = [connection.cursor() for _ in range(n_cursors)]
    _open.update(cursors)
    try:
        yield Cursors(cursors)
    finally:
        for cursor in cursors:
            _open.discard(cursor)
            cursor.close()


def in_threads(
    connection: duckdb.DuckDBPyConnection,
    n_threads: int,
    work: Callable[[Item, duckdb.DuckDBPyConnection], Result],
    items: Iterable[Item],
    give_up_more: Callable[[], object] = lambda: None,
) -> list[Result]:
    """Return `work(item, cursor)` for each item, in order; so many threads work at the same time.

    Each has a further connection to the database. After an error no other item is begun, the queries that run
    are stopped, and `give_up_more` is called; the first error is raised when all have ended.
    """
    with open_cursors(connection, n_threads) as cursors, ThreadPoolExecutor(n_threads) as threads:

        def work_on(item: Item) -> Result:
            with cursors.lent() as cursor:
                return work(item, cursor)

        def give_up() -> None:
            for future in begun:
                future.cancel()
            cursors.interrupt()
            give_up_more()

        begun: list[Future[Result]] = []
        with given_up_after_an_error(begun, give_up):
            begun.extend(threads.submit(work_on, item) for item in items)
            for future in wait(begun, return_when=FIRST_EXCEPTION).done:
                future.result()
        return [future.result() for future in begun]


@contextmanager
def given_up_after_an_error(
    begun: Collection["Future[Any]"], give_up: Callable[[], object]
) -> Iterator[None]:
    """After an error in the `with` block call `give_up` until all futures in `begun` have ended; raise it.

    One call would not do: a thread that is between two queries would begin the next one.
    """
    try:
        yield
    except BaseException:
        give_up()
        while wait(begun, GIVE_UP_S).not_done:
            give_up()
        raise


def default_memory_gb() -> float:
    """Return the memory (10^9 bytes) that DuckDB may take where nothing else is said.

    DuckDB takes a part of what the machine has, or of what a container may use.
    """
    with connect() as connection:
        ((limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit.split()
    return float(number) * UNITS[unit] / 1e9


def duckdb_gb(memory_gb: float | None) -> float | None:
    """Return how much of the `memory_gb` of a process that makes marts its DuckDB may take (10^9 bytes).

    OWN_GB stay for Python, the libraries and what DuckDB does not count, but no more than half. None stays
    None: DuckDB then takes its default.
    """
    return None if memory_gb is None else max(memory_gb - OWN_GB, memory_gb / 2)


def interrupt_queries() -> None:
    """Stop all running queries of this process from another thread; each ends with duckdb.Error."""
    for connection in list(_open):
        with suppress(duckdb.ConnectionException):  # it has just been closed
            connection.interrupt()


def refuse_other_file(database: Path) -> None:
    """Raise DatabaseError where a build would replace a folder, or a file that no build has made."""
    if database.is_dir():
        raise DatabaseError(f"{database} is a folder; name a file for the database with --database")
    if not database.is_file() or not database.stat().st_size:
        return
    is_database = _is_database(database)
    if is_database and (is_parts_folder(parts_folder(database)) or _is_of_a_build(database)):
        return
    what = "no database of pool-analysis" if is_database else "no DuckDB database"
    raise DatabaseError(
        f"{database} is {what}, so it is not replaced; choose another --database, or remove it"
    )


def _is_of_a_build(database: Path) -> bool:
    """Return whether a DuckDB file has a table that every build makes, or nothing at all."""
    try:
        with connect(database, read_only=True) as connection:
            names = connection.execute(RELATIONS).fetchall()
    except duckdb.Error:  # damaged, or of a newer DuckDB
        return False
    return not names or any(name in BUILD_TABLES for (name,) in names)


def missing_database(database: Path) -> DatabaseError:
    """Return the error for a database that does not exist; it says how to make it or to name another."""
    return DatabaseError(
        f"there is no database {database}; name another with --database, or make this one with"
        f" pool-analysis build --database {database}"
    )


@contextmanager
def open_database(
    database: Path, *, memory_gb: float | None = None, threads: int | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the database of a build read-only, and yield the connection.

    The connection can read no file outside the database, its folder of parts, and the dataset that it was
    built from. `memory_gb` limits the memory of DuckDB, and `threads` its threads. Raises DatabaseError where
    the file does not exist or cannot be read.
    """
    if database.is_dir():
        raise DatabaseError(f"{database} is a folder; name the file of the database")
    if not database.is_file():
        raise missing_database(database)
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(
                connect(database, read_only=True, memory_gb=memory_gb, threads=threads)
            )
            _confine(connection, built_from(connection), named_parts(connection))
        except duckdb.Error as error:
            if not _is_database(database):
                raise DatabaseError(
                    f"{database} is no DuckDB database; name the file that pool-analysis build wrote"
                ) from None
            reason = str(error).splitlines()[0]
            raise DatabaseError(
                f"{database} cannot be read ({reason}); make it anew with pool-analysis build"
            ) from None
        yield connection


def _is_database(path: Path) -> bool:
    """Return whether a file begins as a DuckDB database does; True also for one that cannot be opened."""
    try:
        with path.open("rb") as file:
            return file.read(MAGIC_BYTES).endswith(MAGIC)
    except OSError:
        return True


@contextmanager
def version_explained() -> Iterator[None]:
    """Turn the error of a query that misses a mart or a column into a DatabaseError that says what to do.

    Put it around our own queries, as a `with` block or on a function. In a database that this version built
    they miss nothing.
    """
    try:
        yield
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        reason = str(error).splitlines()[0]
        raise DatabaseError(
            f"another version built this database: run pool-analysis build again ({reason})"
        ) from None


def built_from(connection: duckdb.DuckDBPyConnection) -> Dataset | None:
    """Return the dataset that a database was built from; None if that folder is gone or was not recorded."""
    dataset = named_dataset(connection)
    if dataset is None or not (dataset.root / DATASET_MARKER).is_file():
        return None
    return dataset


def named_dataset(connection: duckdb.DuckDBPyConnection) -> Dataset | None:
    """Return the dataset that a database names as its source, there or not; None if it names none."""
    facts = _facts(connection, "FROM build_log UNION ALL SELECT key, value FROM run_manifest")
    root, chain = facts.get("dataset"), facts.get("chain")
    if root is None or chain not in CHAINS:
        return None
    return Dataset(Path(root), chain)


def named_parts(connection: duckdb.DuckDBPyConnection) -> Path | None:
    """Return the folder with the Parquet files (parts) of large marts that a database names.

    The result is None if that folder is gone.
    """
    folder = _facts(connection, "FROM build_log").get("parts")
    return Path(folder) if folder is not None and is_parts_folder(Path(folder)) else None


def confined_to(folders: Iterable[Path]) -> str:
    """Return the value of DuckDB's setting allowed_directories that permits access to these folders alone.

    A DuckDB view names its files by a pattern in which special characters are escaped, so each folder is
    listed in its escaped form as well.
    """
    names = [name for folder in folders for name in names_in_queries(folder)]
    return "[{}]".format(", ".join("'{}'".format(name.replace("'", "''")) for name in names))


def names_in_queries(folder: Path) -> tuple[str, str]:
    """Return the two forms in which DuckDB names a folder: as a path, and escaped as in a pattern."""
    return str(folder), glob.escape(str(folder))


def _facts(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, str]:
    """Return the answer to a query of keys and values as a dict; empty if the database lacks the relation."""
    try:
        return dict(connection.execute(query).fetchall())
    except duckdb.CatalogException:
        return {}


def ask(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """Run one SQL query and return its result as a DuckDB relation.

    Raises DatabaseError unless the text is one statement that only reads, UnknownRelationError for a relation
    that does not exist, and duckdb.Error where the query fails for another reason.
    """
    try:
        query.encode()
    except UnicodeEncodeError:
        raise DatabaseError("the query is not UTF-8; write it in that encoding") from None
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise DatabaseError(
            f"give one query at a time, this is {len(statements)}; without any the shell opens"
        )
    if not _only_reads(connection, statements[0]):
        kind = statements[0].type.name
        raise DatabaseError(
            f"the query failed: {kind} is not a statement that only reads; write SELECT, FROM, WITH, VALUES,"
            " DESCRIBE, SHOW, SUMMARIZE, PIVOT, or EXPLAIN before one of these"
        )
    try:
        return connection.sql(query)
    except duckdb.CatalogException as error:
        missing = MISSING.search(str(error))
        if missing is None:
            raise
        names = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY ALL").fetchall()
        raise unknown_relation(missing[1], [name for (name,) in names]) from None


def _only_reads(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> bool:
    """Return whether a SQL statement only reads and changes nothing.

    For EXPLAIN the statement after it decides, because EXPLAIN ANALYZE runs that statement.
    """
    if statement.type is duckdb.StatementType.SELECT:
        return True
    if statement.type is duckdb.StatementType.MULTI:  # what PIVOT without a list of values becomes
        return PIVOT.match(statement.query) is not None
    explained = EXPLAIN.match(statement.query)
    if statement.type is not duckdb.StatementType.EXPLAIN or explained is None:
        return False
    inner = connection.extract_statements(statement.query[explained.end() :])
    return len(inner) == 1 and _only_reads(connection, inner[0])


def _confine(connection: duckdb.DuckDBPyConnection, dataset: Dataset | None, parts: Path | None) -> None:
    """Let a connection read only files of a dataset and a folder of parts; forbid extensions and settings."""
    folders = (None if dataset is None else dataset.folder, parts)
    allowed = confined_to(folder for folder in folders if folder is not None)
    connection.execute(f"SET allowed_directories = {allowed}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def query_explained(error: duckdb.Error) -> str:
    """Return DuckDB's reason for a failed query on one line, with the columns that it suggests."""
    first, *others = str(error).splitlines()
    suggested = next((line for line in others if line.startswith(("Candidate", "Did you mean"))), None)
    if suggested is not None:
        return f"{first} {suggested}"
    return f"{first}; pool-analysis describe RELATION names its columns" if "column" in first else first
