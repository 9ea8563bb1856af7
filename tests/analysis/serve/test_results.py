"""Test that questions are bounded in time and memory, and that a new build is opened under open requests."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from analysis.errors import DatabaseError
from analysis.serve.results import BusyError, Reader, Results
from tests.analysis.serve.conftest import copied

ENDLESS = (
    "SELECT count(*) AS n FROM range(1000000000) AS a, range(1000000) AS b WHERE (a.range * b.range) % 7 = 3"
)


def built_at(reader: Reader) -> str:
    """Ask when the open database was built."""
    return str(reader.rows("SELECT value FROM build_log WHERE key = 'built_at'")[0]["value"])


def rebuilt(database: Path, moment: str) -> None:
    """Put another database in the place of this one by rename, as a build does."""
    new = database.with_suffix(".new")
    new.write_bytes(database.read_bytes())
    with duckdb.connect(str(new)) as connection:
        connection.execute("UPDATE build_log SET value = ? WHERE key = 'built_at'", [moment])
    new.replace(database)


def test_an_endless_question_is_stopped(served_database: Path, tmp_path: Path) -> None:
    """It ends at its deadline with one sentence, and the next question is answered."""
    results = Results(copied(served_database, tmp_path), question_s=0.3)

    with pytest.raises(BusyError, match="was stopped"):
        results.read(lambda reader: reader.rows(ENDLESS))
    # A short question may take long on a busy machine.
    assert results.read(lambda reader: reader.rows("SELECT 1 AS one"), question_s=60) == [{"one": 1}]
    results.close()


def test_a_question_that_works_between_queries_is_stopped_too(served_database: Path, tmp_path: Path) -> None:
    """Its deadline comes while no query runs; the query after it is stopped."""
    results = Results(copied(served_database, tmp_path), question_s=0.1)

    def slow(reader: Reader) -> object:
        reader.rows("SELECT 1")
        time.sleep(0.3)  # longer than its time
        return reader.rows(ENDLESS)

    with pytest.raises(BusyError, match="was stopped"):
        results.read(slow)
    results.close()


def test_a_database_of_another_version_is_one_sentence(served_database: Path, tmp_path: Path) -> None:
    """A question for a mart that it lacks says what to do."""
    results = Results(copied(served_database, tmp_path))

    with pytest.raises(DatabaseError, match="another version built this database: run pool-analysis build"):
        results.read(lambda reader: reader.rows("FROM mart_of_tomorrow"))
    results.close()


def test_a_server_that_ends_stops_its_questions(served_database: Path, tmp_path: Path) -> None:
    """Closing stops running questions, one long query or many short ones, and refuses later questions."""
    results = Results(copied(served_database, tmp_path), question_s=3600)
    is_asked, refused = threading.Event(), []

    def ask(question: Callable[[Reader], object]) -> None:
        with pytest.raises(BusyError, match="the server stops") as error:
            results.read(question)
        refused.append(error)

    def endless(reader: Reader) -> object:
        is_asked.set()
        return reader.rows(ENDLESS)

    def often(reader: Reader) -> None:
        while True:
            reader.rows("SELECT 1")

    asking = [threading.Thread(target=ask, args=(each,)) for each in (often, endless)]
    for thread in asking:
        thread.start()
    assert is_asked.wait(60)

    results.close()

    for thread in asking:
        thread.join()
    assert len(refused) == 2
    ask(built_at)


def test_a_question_cannot_take_all_memory(served_database: Path, tmp_path: Path) -> None:
    """What needs more than its bound ends with one sentence."""
    results = Results(copied(served_database, tmp_path))

    with pytest.raises(BusyError, match="1 GB of memory"):
        results.read(lambda reader: reader.rows("SELECT list(range) AS a FROM range(400000000)"))
    results.close()


def test_a_question_cannot_change_or_leave_the_database(served_database: Path, tmp_path: Path) -> None:
    """Neither the marts nor other files are within reach."""
    results = Results(copied(served_database, tmp_path))

    for query in ("DELETE FROM pool_share", "FROM read_text('/etc/hostname')", "SET memory_limit = '9GB'"):
        with pytest.raises(duckdb.Error):
            results.read(lambda reader, query=query: reader.cursor.execute(query))  # type: ignore[misc]
    results.close()


def test_a_new_build_is_opened_without_a_restart(served_database: Path, tmp_path: Path) -> None:
    """A question that runs keeps its database; those after it see the new one, and the version changes."""
    database = copied(served_database, tmp_path)
    results = Results(database)
    before, version = results.read(built_at), results.version
    is_asked, is_replaced = threading.Event(), threading.Event()

    def slow(reader: Reader) -> tuple[str, str]:
        first = built_at(reader)
        is_asked.set()
        assert is_replaced.wait(60)
        return first, built_at(reader)

    found: list[tuple[str, str]] = []
    running = threading.Thread(target=lambda: found.append(results.read(slow)))
    running.start()
    assert is_asked.wait(60)
    rebuilt(database, "a later moment")
    later = threading.Thread(target=lambda: found.append((results.read(built_at), "")))
    later.start()
    is_replaced.set()
    running.join()
    later.join()

    assert sorted(found) == sorted([(before, before), ("a later moment", "")])
    assert results.version != version
    results.close()


def test_a_database_that_is_gone_is_named(served_database: Path, tmp_path: Path) -> None:
    """Without a file there is one sentence; an unreadable new one is answered so until a good one comes."""
    with pytest.raises(DatabaseError, match="there is no database"):
        Results(tmp_path / "missing.duckdb")
    database = copied(served_database, tmp_path)
    good = database.read_bytes()
    results = Results(database)
    database.with_suffix(".bad").write_text("no database")
    database.with_suffix(".bad").replace(database)
    with pytest.raises(DatabaseError, match="is no DuckDB database"):
        results.read(built_at)
    database.with_suffix(".good").write_bytes(good)
    database.with_suffix(".good").replace(database)
    assert results.read(built_at)
    results.close()


def test_the_version_is_that_of_the_build_that_answers(served_database: Path, tmp_path: Path) -> None:
    """While the file is away the open build answers, so the version stays."""
    database = copied(served_database, tmp_path)
    results = Results(database)
    version = results.version
    away = database.rename(tmp_path / "away.duckdb")
    assert (results.read(built_at) != "", results.version) == (True, version)
    away.rename(database)
    rebuilt(database, "a later moment")
    assert results.version != version
    results.close()
