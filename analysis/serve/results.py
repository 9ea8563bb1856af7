"""Opens the built database for many readers at once, bounds each question, and notices a new build.

A build replaces the file by rename. DuckDB shares one instance per path within a process, so a new file can
only be opened when the old one is closed: new questions wait until those that run have ended. Each question
has a deadline, so this wait has one, too.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import duckdb
from fastapi import Response

from analysis.database import open_database
from analysis.errors import DatabaseError
from analysis.raw_views import raw_files_locked

QUESTION_S: Final = 10.0  # the longest time for the queries of one answer
MAX_QUESTIONS: Final = 4  # questions that are asked at once; further ones wait
WAIT_S: Final = 15.0  # the longest wait for a turn
MEMORY_GB: Final = 1.0  # of DuckDB, for all questions together
T = TypeVar("T")
Row = Mapping[str, Any]


class BusyError(DatabaseError):
    """Means that other questions kept the database busy, or that this one needed too much time or memory."""


class NotBuiltError(DatabaseError):
    """Means that there is no build yet; the first one is shown when it comes."""

    def __init__(self) -> None:
        super().__init__("nothing is built yet; the pages come with the first build")


class _Stamp(NamedTuple):
    """Identifies one file: a file that replaces it has another inode or time."""

    inode: int
    mtime_ns: int
    size_bytes: int


class Reader:
    """Asks the questions of one answer. Times are in UTC, and every query can be interrupted."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, build: "_OpenBuild") -> None:
        self.cursor = cursor
        self.lacked_dataset = False
        self._build = build

    @property
    def facts(self) -> Mapping[str, str]:
        """Return what the results rest on: the rows of run_manifest and build_log."""
        return self._build.facts

    def rows(self, query: str, *values: Any, **named: Any) -> list[Row]:
        """Return the rows of a query as dictionaries.

        `values` take the places of its question marks, or the `named` ones those of `$name`.
        """
        found: list[Row] = self.cursor.sql(query, params=named or list(values)).to_arrow_table().to_pylist()
        return found

    def raw_rows(self, query: str, *values: Any, **named: Any) -> list[Row] | None:
        """Do what `rows` does for a query of raw tables or staging; return None if the dataset is gone."""
        try:
            with raw_files_locked(self.cursor):
                return self.rows(query, *values, **named)
        except duckdb.IOException:
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
        """Return what `make` made for this build under `name`; make it once."""
        return self._build.cached(name, lambda: make(self))


class _OpenBuild:
    """Holds one opened build: its connection, its facts, its readers, and what was made from it."""

    def __init__(self, database: Path, stamp: _Stamp) -> None:
        self.stamp = stamp
        self.n_readers = 0
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(open_database(database, memory_gb=MEMORY_GB))
        self.facts: Mapping[str, str] = dict(
            self.connection.execute("FROM run_manifest UNION ALL FROM build_log").fetchall()
        )
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

    def close(self) -> None:
        self._stack.close()


class Results:
    """Answers questions from the newest build of a database; several threads may ask at once.

    Raises DatabaseError if the file does not exist or `pool-analysis build` did not make it. With `waits` it
    may come later; until then each question raises NotBuiltError.
    """

    def __init__(self, database: Path, *, question_s: float = QUESTION_S, waits: bool = False) -> None:
        self.database = database
        self._waits = waits
        self._question_s = question_s
        self._turns = threading.BoundedSemaphore(MAX_QUESTIONS)
        self._idle = threading.Condition()
        self._build: _OpenBuild | None = None
        if not self.lacks_build:
            self._build = _opened(database)

    def read(self, question: Callable[[Reader], T]) -> T:
        """Ask a question and return its answer.

        Raises BusyError if it needs more than its time or memory, or if other questions do not end.
        """
        if not self._turns.acquire(timeout=WAIT_S):
            raise BusyError("other questions keep the database busy; ask again in a moment")
        try:
            try:
                return self._read_once(question)
            except duckdb.IOException:
                # A new build may have removed files of the one that was open.
                return self._read_once(question)
        except duckdb.InterruptException:
            raise BusyError(
                f"the question was stopped after {self._question_s:.0f} s; ask for less, as with a limit"
            ) from None
        except duckdb.OutOfMemoryException:
            raise BusyError(
                f"the question needs more than {MEMORY_GB:.0f} GB of memory; ask for less"
            ) from None
        finally:
            self._turns.release()

    @property
    def lacks_build(self) -> bool:
        """Tell whether the first build is waited for."""
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
        """Close the database; running questions are stopped."""
        with self._idle:
            if self._build is not None:
                self._build.close()
            self._build = None

    def _read_once(self, question: Callable[[Reader], T]) -> T:
        with self._reading() as build:
            cursor = build.connection.cursor()
            deadline = threading.Timer(self._question_s, cursor.interrupt)
            deadline.daemon = True
            deadline.start()
            try:
                reader = Reader(cursor, build)
                answer = question(reader)
                if reader.lacked_dataset and isinstance(answer, Response):
                    answer.headers["cache-control"] = "no-store"  # the dataset may be there again
                return answer
            finally:
                deadline.cancel()
                deadline.join()  # so that it cannot interrupt a closed cursor
                cursor.close()

    @contextmanager
    def _reading(self) -> Iterator[_OpenBuild]:
        """Hold the newest build open; if the file was replaced, first wait until its readers have ended."""
        with self._idle:
            if not self._idle.wait_for(self._is_newest_or_free, timeout=WAIT_S):
                raise BusyError("the database is being replaced; ask again in a moment")
            build = self._newest()
            build.n_readers += 1
        try:
            yield build
        finally:
            with self._idle:
                build.n_readers -= 1
                self._idle.notify_all()

    def _is_newest_or_free(self) -> bool:
        build = self._build
        return build is None or not build.n_readers or _stamp(self.database) in (None, build.stamp)

    def _newest(self) -> _OpenBuild:
        """Return the open build; if the file was replaced, close it first and open the new one."""
        if self._build is not None and _stamp(self.database) in (None, self._build.stamp):
            return self._build
        if self._build is not None:
            self._build.close()
            self._build = None  # stays so if the new file cannot be read, until it can
        if self.lacks_build:
            raise NotBuiltError
        self._build = _opened(self.database)
        return self._build


@cache
def _software() -> str:
    return metadata.version("pool-measurement")


def _opened(database: Path) -> _OpenBuild:
    stamp = _stamp(database)
    if stamp is None:
        raise DatabaseError(f"there is no database {database}; make it with pool-analysis build")
    try:
        return _OpenBuild(database, stamp)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise DatabaseError(
            f"{database} cannot be read ({reason}); make it anew with pool-analysis build"
        ) from None


def _stamp(database: Path) -> _Stamp | None:
    """Return what identifies the file that now has this name; None if there is none."""
    try:
        found = database.stat()
    except OSError:
        return None
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
