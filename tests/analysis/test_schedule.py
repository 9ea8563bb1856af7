"""Test that marts are made at the same time, in an order that is right, and by other processes as by one."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from analysis.engine import build
from analysis.errors import DatabaseError
from analysis.parts import Inputs, Part, Rows
from analysis.ranges import Piece
from analysis.schedule import Crew, Making, make_all, open_crew, urgencies
from analysis.tasks import Task, Workplace, make_part
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

    def made(  # noqa: PLR0917 - as in `Hands.made`
        self,
        mart: str,
        name: str,
        inputs: Inputs,
        rows: Mapping[str, Rows],
        early: str | None,
        piece: Piece | None,
    ) -> Part:
        """Note the mart, do the work of the test, and return a part."""
        assert not rows
        assert early is None
        assert piece is None
        self.begun.append(mart)
        self._work(mart)
        return Part(
            file=f"{name}/1.parquet", inputs=inputs, content="", columns={}, n_bytes=0, n_rows=0, wall_s=0
        )


def made_by(crew: Crew, n_parts: int, done: list[str]) -> Callable[[str], Making]:
    """Return the making of marts of `n_parts` parts each; `done` gets the names of marts that are done."""

    def making(name: str) -> Making:
        yield [crew.begin(name, name, {"part": str(number)}, {}) for number in range(n_parts)]
        done.append(name)

    return making


def test_a_mart_begins_when_all_that_it_reads_is_done() -> None:
    """The mart with the longest way behind it comes first; each part is kept once."""
    hands, done, kept = Threads(), list[str](), list[str]()
    with open_crew(hands, urgencies(GRAPH)) as crew:
        make_all(GRAPH, made_by(crew, 2, done), crew, lambda job: kept.append(job.future.result().name))

    assert urgencies(GRAPH) == {"a": 3, "b": 2, "c": 2, "d": 1, "e": 1}
    assert sorted(kept) == sorted(hands.begun) == [name for name in "abcde" for _ in range(2)]
    assert hands.begun[:2] == ["a", "a"]
    assert done.index("a") < min(done.index("b"), done.index("c"))
    assert max(done.index("b"), done.index("c")) < done.index("d")


def test_marts_that_do_not_read_each_other_are_made_at_the_same_time() -> None:
    """Two jobs wait for each other, which only ends where both have begun."""
    both = threading.Barrier(2, timeout=60)
    hands, done = Threads(2, lambda name: both.wait() if name in "bc" else None), list[str]()
    with open_crew(hands, urgencies(GRAPH)) as crew:
        make_all(GRAPH, made_by(crew, 1, done), crew, lambda job: job.future.result())

    assert sorted(done) == list("abcde")


def test_a_failed_part_ends_the_build_and_begins_no_other() -> None:
    """The error comes out as it is; what waited for its turn is dropped."""

    def fail(name: str) -> None:
        raise DatabaseError(f"{name} fails")

    hands, done = Threads(1, fail), list[str]()
    with pytest.raises(DatabaseError, match="a fails"), open_crew(hands, urgencies(GRAPH)) as crew:
        make_all(GRAPH, made_by(crew, 1, done), crew, lambda job: job.future.result())

    assert done == []
    assert set(hands.begun) <= {"a", "e"}


class Processes:
    """Makes tasks in two other processes, and notes their marts."""

    n_at_once = 2

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool
        self.marts: set[str] = set()

    def make(self, workplace: Workplace, task: Task) -> Part:
        """Make a task and wait for it."""
        self.marts.add(task.mart)
        return self._pool.submit(make_part, workplace, task).result()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Start two processes."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield Processes(pool)


def test_every_mart_of_other_processes_is_that_of_one(tmp_path: Path, processes: Processes) -> None:
    """Ranges and whole marts are handed out; all marts are those of a build in one process, bit for bit."""
    world = PlantedDays(tmp_path, Size(n_blocks=250, entering=30, taken=24, seed=3))
    database = tmp_path / "a.duckdb"
    made = build(world.whole, world.pools, database, workers=processes)
    expected = contents(build(world.whole, world.pools, tmp_path / "b.duckdb").database)
    found = contents(database)

    assert [name for name in expected if not found[name].equals(expected[name])] == []
    assert {"mempool_residence", "inclusion_sample", "user_day", "block_order"} <= processes.marts
    assert "pool_share_window" in set(made.made) - processes.marts
    assert build(world.whole, world.pools, database, workers=processes).made == ()
