"""Test that marts are made at the same time, in an order that is right, and by other processes as by one."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from analysis import database, engine, incremental, tasks
from analysis.database import connect, default_memory_gb, in_threads, interrupt_queries, open_cursors
from analysis.engine import build
from analysis.errors import DatabaseError
from analysis.parts import Part, parts_folder
from analysis.processes import ProcessWorkers, memory_of_each_gb
from analysis.schedule import Crew, Made, Task, make_all, open_crew, urgencies
from analysis.tasks import Result
from tests.analysis.days import PlantedDays
from tests.analysis.test_same_build import contents
from tests.bench.planted_world import Size

# a is read by b and c, both by d; e reads nothing and nobody reads it.
GRAPH = {name: frozenset(read) for name, read in {"a": "", "b": "a", "c": "a", "d": "bc", "e": ""}.items()}


class Threads:
    """Makes empty parts in threads of this process, and notes their marts as they begin."""

    def __init__(self, n_at_once: int = 1, work: Callable[[str], object] = lambda _mart: None) -> None:
        self.n_at_once = n_at_once
        self.begun: list[str] = []
        self._work = work

    def made(self, task: Task) -> Made:
        """Note the mart, do the work of the test, and return a part."""
        self.begun.append(task.mart)
        self._work(task.mart)
        part = Part(
            file=f"{task.name}/1.parquet",
            inputs=task.inputs,
            content="",
            columns={},
            n_bytes=0,
            n_rows=0,
            wall_s=0,
        )
        return Made(part, {})


def task(mart: str, number: int) -> Task:
    """Return the task of making the part of a mart that has a number."""
    return Task(mart=mart, name=mart, inputs={"part": str(number)}, rows={})


def made_by(crew: Crew, n_parts: int, done: list[str]) -> Callable[[str], None]:
    """Return the making of marts of `n_parts` parts each; `done` gets the names of marts that are done."""

    def make(name: str) -> None:
        parts = [crew.begin(task(name, number)) for number in range(n_parts)]
        for part in parts:
            part.result()
        done.append(name)

    return make


def test_a_mart_begins_when_all_that_it_reads_is_done() -> None:
    """The mart with the longest way behind it comes first; each part is kept once."""
    hands, done, kept = Threads(), list[str](), list[Part]()

    def keep(part: Part) -> Part:
        kept.append(part)
        return part

    with open_crew(hands, urgencies(GRAPH), keep) as crew:
        make_all(GRAPH, made_by(crew, 2, done), 2, crew.drop_waiting)

    assert urgencies(GRAPH) == {"a": 3, "b": 2, "c": 2, "d": 1, "e": 1}
    assert (
        sorted(part.name for part in kept)
        == sorted(hands.begun)
        == [name for name in "abcde" for _ in range(2)]
    )
    assert hands.begun[:2] == ["a", "a"]
    assert done.index("a") < min(done.index("b"), done.index("c"))
    assert max(done.index("b"), done.index("c")) < done.index("d")


@pytest.mark.parametrize("n_at_once", [1, 2])
def test_marts_are_made_in_threads_the_most_urgent_first(n_at_once: int) -> None:
    """With one thread the order is fixed; with two, those that do not read each other wait for each other."""
    both = threading.Barrier(2, timeout=60)
    begun = list[str]()

    def make(name: str) -> None:
        begun.append(name)
        if n_at_once == 2 and name in "bc":
            both.wait()

    make_all(GRAPH, make, n_at_once, lambda: None)

    assert begun == list("abcde") if n_at_once == 1 else sorted(begun) == list("abcde")


def test_parts_of_marts_that_do_not_read_each_other_are_made_at_the_same_time() -> None:
    """Two parts wait for each other, which only ends where both have begun."""
    both = threading.Barrier(2, timeout=60)
    hands, done = Threads(2, lambda name: both.wait() if name in "bc" else None), list[str]()
    with open_crew(hands, urgencies(GRAPH), lambda part: part) as crew:
        make_all(GRAPH, made_by(crew, 1, done), 3, crew.drop_waiting)

    assert sorted(done) == list("abcde")


def test_a_failed_part_ends_the_build_and_begins_no_other() -> None:
    """The error comes out as it is, and no other mart is begun."""

    def fail(name: str) -> None:
        raise DatabaseError(f"{name} fails")

    hands, done = Threads(1, fail), list[str]()
    with (
        pytest.raises(DatabaseError, match=r"[ae] fails"),
        open_crew(hands, urgencies(GRAPH), lambda part: part) as crew,
    ):
        make_all(GRAPH, made_by(crew, 3, done), 2, crew.drop_waiting)

    assert done == []
    assert set(hands.begun) <= {"a", "e"}


def test_parts_that_wait_are_dropped_and_the_one_in_work_ends() -> None:
    """Who waits for a dropped part is told, and does not wait for ever."""
    began, go_on = threading.Event(), threading.Event()

    def work(_name: str) -> None:
        began.set()
        assert go_on.wait(60)

    with open_crew(Threads(1, work), urgencies(GRAPH), lambda part: part) as crew:
        first, second = (crew.begin(task("a", number)) for number in range(2))
        assert began.wait(60)
        crew.drop_waiting()
        go_on.set()

    assert first.result().part is not None
    assert second.cancelled()


def test_an_error_shortens_the_work_of_other_threads() -> None:
    """A mart that fails has `give_up` called, and its error is raised when the other mart has ended."""
    given_up, other_began = threading.Event(), threading.Event()
    ended = list[str]()

    def make(name: str) -> None:
        if name == "a":
            assert other_began.wait(60)
            raise DatabaseError("a fails")
        other_began.set()
        assert given_up.wait(60)
        ended.append(name)

    with pytest.raises(DatabaseError, match="a fails"):
        make_all(GRAPH, make, 2, given_up.set)

    assert ended == ["e"]


def test_what_is_begun_after_an_error_is_shortened_as_well() -> None:
    """A thread that was between two queries when a mart failed is not left to do the next one."""
    given_up, ended = threading.Semaphore(0), list[str]()

    def make(name: str) -> None:
        if name == "a":
            raise DatabaseError("a fails")
        if given_up.acquire(timeout=10) and given_up.acquire(timeout=10):
            ended.append(name)

    with pytest.raises(DatabaseError, match="a fails"):
        make_all(GRAPH, make, 2, given_up.release)

    assert ended == ["e"]


def test_after_an_error_no_other_item_is_begun_and_queries_are_stopped() -> None:
    """The error of an item is seen at once, not when the items before it have ended."""
    first_began, given_up, begun = threading.Event(), threading.Event(), list[int]()

    def work(item: int, cursor: duckdb.DuckDBPyConnection) -> None:
        begun.append(item)
        if item == 1:
            assert first_began.wait(60)
            raise DatabaseError("1 fails")
        for _ in range(5 if item else 200):
            first_began.set()
            cursor.execute("SELECT count(*) FROM range(20_000_000) AS a(n) WHERE hash(n) % 7 = 1")

    with connect(threads=1) as connection, pytest.raises(DatabaseError, match="1 fails"):
        in_threads(connection, 2, work, range(6), given_up.set)

    assert sorted(begun) in ([0, 1], [0, 1, 2])
    assert given_up.is_set()


def test_ctrl_c_stops_queries_beside_a_cursor_that_was_just_closed() -> None:
    """The thread that waits for Ctrl-C lives on: it stops every other query, and hears the second Ctrl-C."""
    with connect() as connection, open_cursors(connection, 3):
        for cursor in list(database._open - {connection}):
            cursor.close()
        interrupt_queries()


class Mortal(ProcessWorkers):
    """Works in two processes, one of which ends in the midst of its work; notes what is handed out."""

    def __init__(self) -> None:
        super().__init__(2)
        self.handed_out: set[str] = set()
        self.n_killed = 0

    def call(self, what: str, work: Callable[[], Result]) -> Result:
        """Note what is handed out."""
        self.handed_out.add(what)
        return super().call(what, work)

    def submit(self, pool: ProcessPoolExecutor, work: Callable[[], Result]) -> "Future[Result]":
        """Hand out work; beside the first range of a mart of stays, end a process."""
        if "a part of mempool_residence" in self.handed_out and not self.n_killed:
            self.n_killed += 1
            pool.submit(os._exit, 9)
        return super().submit(pool, work)


def forget_looks(database: Path) -> None:
    """Remove from parts.json what builds found out of the rows that ranges read."""
    state = parts_folder(database) / "parts.json"
    facts = json.loads(state.read_text())
    for made in facts["in_ranges"].values():
        made["rows"] = {}
    state.write_text(json.dumps(facts))


@pytest.mark.timeout(900)
def test_every_mart_of_other_processes_is_that_of_one(tmp_path: Path) -> None:
    """Ranges and whole marts are handed out, day after day, and a process is killed: no bit differs.

    A process that finds out that a range of an earlier day reads the same rows does not make it again.
    """
    world = PlantedDays(tmp_path, Size(n_blocks=250, entering=30, taken=24, seed=3))
    dataset, database = tmp_path / "days", tmp_path / "a.duckdb"
    with closing(Mortal()) as workers:
        world.add(dataset, world.days[:-1])
        build(dataset, world.pools, database, workers=workers)
        forget_looks(database)
        before = {path: path.stat().st_ino for path in parts_folder(database).glob("*/*")}
        world.add(dataset, world.days[-1:])
        made = build(dataset, world.pools, database, workers=workers)
        assert build(dataset, world.pools, database, workers=workers).made == ()
    expected = contents(build(dataset, world.pools, tmp_path / "b.duckdb").database)
    found = contents(database)
    ranges = json.loads((parts_folder(database) / "parts.json").read_text())["in_ranges"]
    kept = {
        name
        for name, one in ranges.items()
        if any(parts_folder(database) / file in before for file in one["files"])
    }

    assert workers.n_killed == 1
    assert [name for name in expected if not found[name].equals(expected[name])] == []
    marts = {what.removeprefix("a part of ") for what in workers.handed_out}
    assert {"mempool_residence", "inclusion_sample", "user_day", "block_order"} <= marts
    assert "pool_share_window" in set(made.made) - marts
    assert any(what.startswith("the check ") for what in workers.handed_out)
    assert any(what.startswith("the content of ") for what in workers.handed_out)
    assert all(path.stat().st_ino == node for path, node in before.items() if path.exists())
    assert {"mempool_features", "transaction_lags"} <= kept


class Here:
    """Does work in this process, one piece at a time, and counts the pieces of each kind."""

    n_at_once = 1

    def __init__(self) -> None:
        self.n_calls = Counter[str]()

    def call(self, what: str, work: Callable[[], Result]) -> Result:
        """Count the piece of work, and do it."""
        self.n_calls[what] += 1
        return work()


def test_a_new_day_hands_out_no_range_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What builds before found out of rows is used with workers as well: ranges of old days stay here."""
    monkeypatch.setattr(incremental, "LEAST_ROWS", 5)
    monkeypatch.setattr(tasks, "_kept", kept := [])
    world = PlantedDays(tmp_path, Size(n_blocks=450, entering=6, taken=4))
    dataset, database = tmp_path / "days", tmp_path / "a.duckdb"
    marts = ["mempool_clusters", "full_rbf", "block_messages", "mempool_exits", "policy_trials"]

    world.add(dataset, world.days[:-1])
    build(dataset, world.pools, database, marts=marts, workers=Here())
    world.add(dataset, world.days[-1:])
    workers = Here()
    build(dataset, world.pools, database, marts=marts, workers=workers)
    kept.pop().close()

    # The new day, and the day before it where rows of that may have changed; late columns are a part more.
    assert len(world.days) > 3
    n_parts = {name: workers.n_calls[f"a part of {name}"] for name in marts}
    assert n_parts["policy_trials"] <= 3
    assert {name for name in marts[:-1] if 1 <= n_parts[name] <= 2} == set(marts[:-1])


def test_processes_that_are_always_killed_are_one_sentence() -> None:
    """After some attempts the error says what to do."""

    class Dying(ProcessWorkers):
        def submit(self, pool: ProcessPoolExecutor, _work: object) -> Future[Any]:
            return pool.submit(os._exit, 9)

    with closing(Dying(1)) as workers, pytest.raises(DatabaseError, match=r"block_order.*fewer --workers"):
        workers.call("a part of block_order", int)


def test_workers_share_the_memory() -> None:
    """The build and its workers get equal parts of --memory, or of what DuckDB would take."""
    assert memory_of_each_gb(6, 2) == 2
    assert memory_of_each_gb(None, 3) == pytest.approx(default_memory_gb() / 4)


def test_a_container_has_the_memory_and_cores_that_duckdb_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine around it has does not count, so a small container makes few marts at once."""
    own_gb = default_memory_gb()
    monkeypatch.setattr(os, "sysconf", lambda _name: 1 << 30)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(512)))

    assert default_memory_gb() == own_gb
    with connect(threads=3) as connection:
        assert engine._queries_at_once(connection, 4.0) == 2
        assert engine._queries_at_once(connection, 100.0) == 3
        assert engine._queries_at_once(connection, 1.0) == 1


def test_workers_of_a_command_make_the_database(tmp_path: Path) -> None:
    """`build --workers 2` makes what one process makes; with a cluster, --workers is refused."""
    world = PlantedDays(tmp_path, Size(n_blocks=30, entering=6, taken=4))
    command = [sys.executable, "-P", "-m", "analysis", "build", "--dataset", str(world.whole)]
    command += ["--pools", str(world.pools), "--database", str(tmp_path / "a.duckdb"), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refused = subprocess.run([*command, "--engine", "local[2]"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.duckdb").exists()
    assert refused.returncode == 2
    assert "--workers is for processes here" in refused.stderr
