"""Open the built database for many readers at once, limit each query's time, and follow new builds.

A build replaces the file by rename. DuckDB shares one instance per path within a process, so a new file can
only be opened when the old one is closed: new questions wait until those that run have ended. Each question
has a deadline, so this wait has one, too.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import duckdb
from fastapi import Response

from analysis.database import built_from, missing_database, open_database, version_explained
from analysis.errors import DatabaseError, DatasetGoneError
from analysis.raw_views import raw_files_locked

QUESTION_S: Final = 10.0  # the longest time of one answer, to the end of its last query
MAX_QUESTIONS: Final = 4  # questions that are asked at once; further ones wait
WAIT_S: Final = 15.0  # the longest wait for a turn, and for questions that are to end
STOP_AGAIN_S: Final = 0.1  # a question that was between two queries when it was stopped goes on so long
STOPPED: Final = "the server stops; ask again when it runs"
MEMORY_GB: Final = 1.0  # of DuckDB, for all questions together
T = TypeVar("T")
Row = Mapping[str, Any]


class BusyError(DatabaseError):
    """Means that other questions kept the database busy, or that this one needed too much time or memory."""


class NotBuiltError(DatabaseError):
    """Means that there is no build yet; the results come with the first one."""

    def __init__(self) -> None:
        super().__init__("nothing is built yet; the pages come with the first build")


class _Stamp(NamedTuple):
    """Identifies one file by inode, time and size; a file that replaces it has others."""

    inode: int
    mtime_ns: int
    size_bytes: int


class Reader:
    """Runs the queries for one answer to a client. Times are in UTC, and every query can be interrupted."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, build: "_OpenBuild") -> None:
        self.cursor = cursor
        self.lacked_dataset = False
        self._build = build

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the facts on the build: keys and values of run_manifest and build_log."""
        return self._build.facts

    def rows(self, query: str, *values: Any, **named: Any) -> list[Row]:
        """Run a SQL query and return its rows as dictionaries.

        `values` are its parameters for question marks, `named` those for `$name`.
        """
        found: list[Row] = self.cursor.sql(query, params=named or list(values)).to_arrow_table().to_pylist()
        return found

    def raw_rows(self, query: str, *values: Any, **named: Any) -> list[Row] | None:
        """Run a query of raw tables or staging as `rows` does; return None if the dataset is gone."""
        try:
            with raw_files_locked(self.cursor):
                return self.rows(query, *values, **named)
        except (DatasetGoneError, duckdb.IOException, duckdb.PermissionException) as error:
            # It may go or come back while the query runs. A connection opened without it may not read it.
            if isinstance(error, duckdb.PermissionException) and not self._build.was_without_dataset:
                raise
            self.lacked_dataset = True
            return None

    def columns(self, relation: str) -> list[str]:
        """Return the names of the columns of a relation; the list is empty if the database lacks it."""
        found = self.rows(
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?"
            " ORDER BY ordinal_position",
            relation,
        )
        return [row["column_name"] for row in found]

    def cached(self, name: str, make: Callable[["Reader"], T]) -> T:
        """Return what `make` returns for this build; it is called once per build and `name`, then kept."""
        return self._build.cached(name, lambda: make(self))


class _OpenBuild:
    """Holds one opened database of a build: its connection, facts, and what was made from it."""

    def __init__(self, database: Path, stamp: _Stamp) -> None:
        self.stamp = stamp
        self.cursors: set[duckdb.DuckDBPyConnection] = set()  # of the questions that run
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(open_database(database, memory_gb=MEMORY_GB))
        self.facts: Mapping[str, str] = dict(
            self.connection.execute("FROM run_manifest UNION ALL FROM build_log").fetchall()
        )
        self.was_without_dataset = built_from(self.connection) is None
        self._made: dict[str, Any] = {}
        self._locks: dict[str, threading.Lock] = {}  # by name: what is made may rest on another thing
        self._naming = threading.Lock()  # of the dict above

    def cached(self, name: str, make: Callable[[], T]) -> T:
        with self._naming:
            making = self._locks.setdefault(name, threading.Lock())
        with making:  # nobody waits for anything else that is being made
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]
            return made

    @property
    def may_read_more(self) -> bool:
        """Return whether the dataset was gone when the database was opened, and is there now.

        Only a connection that is opened anew may read its files.
        """
        return self.was_without_dataset and built_from(self.connection) is not None

    def close(self) -> None:
        self._stack.close()


class Results:
    """Answers questions from the newest build of a database; several threads may ask at once.

    Raises DatabaseError if the file does not exist or `pool-analysis build` did not make it. With `waits` the
    file may come later; until then each question raises NotBuiltError.
    """

    def __init__(self, database: Path, *, question_s: float = QUESTION_S, waits: bool = False) -> None:
        self.database = database
        self._waits = waits
        self._question_s = question_s
        self._turns = threading.BoundedSemaphore(MAX_QUESTIONS)
        self._idle = threading.Condition()
        self._is_closed = False
        self._build: _OpenBuild | None = None
        if not self.lacks_build:
            self._build = _opened(database)

    def read(self, question: Callable[[Reader], T], *, question_s: float | None = None) -> T:
        """Call `question` with a Reader of the newest build, and return what it returns.

        It may take `question_s` seconds; without that, as long as every question.
        Raises BusyError if it needs more than its time or memory, or if other questions do not end, and
        DatabaseError if a mart or a column is missing, as in a database that another version built.
        """
        most_s = self._question_s if question_s is None else question_s
        if not self._turns.acquire(timeout=WAIT_S):
            raise BusyError("other questions keep the database busy; ask again in a moment")
        try:
            try:
                return self._read_once(question, most_s)
            except duckdb.IOException:
                # A new build may have removed files of the one that was open.
                return self._read_once(question, most_s)
        except duckdb.InterruptException:
            after = f"the question was stopped after {most_s:.0f} s; ask for less, as with a limit"
            raise BusyError(STOPPED if self._is_closed else after) from None
        except duckdb.OutOfMemoryException:
            raise BusyError(
                f"the question needs more than {MEMORY_GB:.0f} GB of memory; ask for less"
            ) from None
        finally:
            self._turns.release()

    @property
    def lacks_build(self) -> bool:
        """Return whether there is no build yet and the first one is awaited."""
        return self._waits and self._build is None and _stamp(self.database) is None

    @property
    def version(self) -> str:
        """Return a short text that differs after each build and for each version of this software.

        It names the build that answers a question now: the one that is open where the file is gone.
        """
        build = self._build
        stamp = _stamp(self.database) or (build and build.stamp)
        return hashlib.sha256(f"{_software()} {stamp}".encode()).hexdigest()[:16]

    def close(self) -> None:
        """Stop the questions that run, wait until they have ended, and close the database.

        It stays open if a question goes on for WAIT_S without a query.
        """
        with self._idle:
            self._is_closed = True
            until_s = time.monotonic() + WAIT_S
            while self._build is not None and self._build.cursors and time.monotonic() < until_s:
                for cursor in self._build.cursors:
                    cursor.interrupt()
                self._idle.wait(STOP_AGAIN_S)
            if self._build is not None and not self._build.cursors:
                self._build.close()
                self._build = None

    def _read_once(self, question: Callable[[Reader], T], most_s: float) -> T:
        with self._reading() as (build, cursor):
            reader = Reader(cursor, build)
            with _stopped_after(most_s, cursor), version_explained():
                answer = question(reader)
            if reader.lacked_dataset and isinstance(answer, Response):
                answer.headers["cache-control"] = "no-store"  # the dataset may be there again
            return answer

    @contextmanager
    def _reading(self) -> Iterator[tuple[_OpenBuild, duckdb.DuckDBPyConnection]]:
        """Yield the newest build and a cursor of it, and keep both open until the `with` block ends.

        If it is to be opened anew, first wait until the questions to the old one have ended.
        """
        with self._idle:
            if self._is_closed:
                raise BusyError(STOPPED)
            if not self._idle.wait_for(self._is_newest_or_free, timeout=WAIT_S):
                raise BusyError("the database is being replaced; ask again in a moment")
            build = self._newest()
            cursor = build.connection.cursor()
            build.cursors.add(cursor)
        try:
            yield build, cursor
        finally:
            with self._idle:
                build.cursors.remove(cursor)
                cursor.close()
                self._idle.notify_all()

    def _is_newest_or_free(self) -> bool:
        build = self._build
        return build is None or not build.cursors or self._is_newest(build)

    def _is_newest(self, build: _OpenBuild) -> bool:
        """Return whether an open build is to answer; not if its file was replaced or may read more now."""
        stamp = _stamp(self.database)
        return stamp is None or (stamp == build.stamp and not build.may_read_more)

    def _newest(self) -> _OpenBuild:
        """Return the open database of the newest build.

        If the file was replaced, or its dataset came back, the old one is closed and the new one opened.
        """
        if self._build is not None and self._is_newest(self._build):
            return self._build
        if self._build is not None:
            self._build.close()
            self._build = None  # stays so if the new file cannot be read, until it can
        if self.lacks_build:
            raise NotBuiltError
        self._build = _opened(self.database)
        return self._build


@contextmanager
def _stopped_after(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Stop each query of the `with` block that runs after so many seconds.

    DuckDB forgets an interrupt that comes between two queries, so it is repeated until the block ends.
    """
    is_over = threading.Event()

    def stop() -> None:
        is_over.wait(seconds)
        while not is_over.is_set():
            cursor.interrupt()
            is_over.wait(STOP_AGAIN_S)

    thread = threading.Thread(target=stop, name="deadline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()  # so that it cannot interrupt a closed cursor


@cache
def _software() -> str:
    return metadata.version("pool-measurement")


def _opened(database: Path) -> _OpenBuild:
    stamp = _stamp(database)
    if stamp is None:
        raise missing_database(database)
    try:
        return _OpenBuild(database, stamp)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise DatabaseError(
            f"{database} cannot be read ({reason}); make it anew with pool-analysis build"
        ) from None


def _stamp(database: Path) -> _Stamp | None:
    """Return the stamp (inode, time, size) of the file at a path; None if there is no file."""
    try:
        found = database.stat()
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
