"""Test that what the pages draw is made before anybody asks, and that nobody waits for other things."""

import threading
import time
from pathlib import Path

from analysis.report.sections import TOPICS
from analysis.serve.prepared import Preparation, section, stack, steps
from analysis.serve.results import Reader, Results
from tests.analysis.serve.conftest import WAIT_S, copied
from tests.analysis.serve.test_kept import LATER
from tests.analysis.serve.test_results import rebuilt


def never(_reader: Reader) -> object:
    """Fail, because it is asked for something that should have been made."""
    raise AssertionError


def wait_for_all(results: Results) -> list[object]:
    """Wait until every topic has been made for the newest build, and return what was made."""
    end_s = time.monotonic() + WAIT_S
    names = [f"topic {topic.section_id}" for topic in TOPICS]
    while True:
        assert time.monotonic() < end_s
        try:
            return results.read(lambda reader: [reader.cached(name, never) for name in names])
        except AssertionError:
            time.sleep(0.05)


def test_charts_are_made_for_each_build_before_anybody_asks(served_database: Path, tmp_path: Path) -> None:
    """After the start, and after a new build, every section is there, and the pages show that one."""
    database = copied(served_database, tmp_path)
    results = Results(database)
    preparation = Preparation(results)
    first = wait_for_all(results)
    rebuilt(database, LATER)
    second = wait_for_all(results)

    shown = results.read(lambda reader: [section(reader, database, topic) for topic in TOPICS])
    assert [id(each) for each in shown] == [id(each) for each in second]
    assert [id(each) for each in first] != [id(each) for each in second]
    preparation.close()
    results.close()


def test_nobody_waits_for_what_he_did_not_ask_for(served_database: Path, tmp_path: Path) -> None:
    """While one thing is being made, another is made and given."""
    results = Results(copied(served_database, tmp_path))
    begun, release = threading.Event(), threading.Event()

    def slow(_reader: Reader) -> str:
        begun.set()
        release.wait(WAIT_S)
        return "slow"

    thread = threading.Thread(target=lambda: results.read(lambda reader: reader.cached("slow", slow)))
    thread.start()
    begun.wait(WAIT_S)
    found = results.read(lambda reader: reader.cached("quick", lambda _each: "quick"))
    is_made = not thread.is_alive()
    release.set()
    thread.join()

    assert (found, is_made) == ("quick", False)
    results.close()


def test_every_step_is_one_that_a_page_asks_for(served_database: Path, tmp_path: Path) -> None:
    """After the steps neither the chart of shares nor a section has to be made."""
    database = copied(served_database, tmp_path)
    results = Results(database)
    for step in steps(database):
        results.read(step)

    assert results.read(lambda reader: reader.cached("stack", never)) is results.read(
        lambda reader: stack(reader, database)
    )
    results.close()
