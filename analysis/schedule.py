"""Make several marts at the same time, each in a thread, as soon as the marts that it reads are done.

A thread makes the parts of its mart with a DuckDB connection of its own, or has a crew of other processes
make them, and waits.
"""

import graphlib
import heapq
import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from analysis.catalog import Model
from analysis.database import given_up_after_an_error
from analysis.parts import Inputs, LookedAt, Part, Rows
from analysis.ranges import RangeRows

Graph = Mapping[str, frozenset[str]]  # by mart, the other marts that it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Describes one part of a mart to be made: mart, name and inputs.

    `rows` has each stored mart that the query reads, directly or through a view, as the build has it: DuckDB
    plans a query on tables otherwise than one on files. With `early`, the query that reads the early parts of
    the mart, its late columns are filled in.

    With `range_rows` the part is that range, and `inputs` are those of the mart: who makes it finds out which
    rows it reads, and so its own inputs. A part of `made_before` with these is taken as it is.
    """

    mart: str
    name: str
    inputs: Inputs
    rows: Mapping[str, Rows]
    early: str | None = None
    range_rows: RangeRows | None = None
    made_before: Sequence[Part] = ()


class Made(NamedTuple):
    """Holds a part that was made, or None for a range that reads no rows, and what was found out of rows."""

    part: Part | None
    looks: Mapping[str, LookedAt]


class Hands(Protocol):
    """Declares the calls by which other processes make parts of marts and count rows for checks.

    They make `n_at_once` parts at a time; see analysis/tasks.py.
    """

    @property
    def n_at_once(self) -> int:
        """Return how many parts of marts are made at the same time."""

    def made(self, task: Task) -> Made:
        """Have another process make one part of a mart; return it when it is made."""

    def counted(self, check: str, reads: frozenset[str], rows: Mapping[str, Rows], query: str) -> int:
        """Have another process count the rows of a query of a check, which reads the relations `reads`.

        `rows` has the stored marts below them.
        """


class Job(NamedTuple):
    """Holds one part of a mart that another process is to make: the call that makes it, and its future."""

    work: Callable[[], Made]
    future: Future[Made]


class Crew:
    """Has other processes make parts, those of the most urgent mart first; `keep` records each part."""

    def __init__(
        self,
        hands: Hands,
        urgencies: Mapping[str, int],
        keep: Callable[[Part], object],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._hands = hands
        self._urgencies = urgencies
        self._keep = keep
        self._threads = threads
        self._waiting: queue.PriorityQueue[tuple[int, int, Job]] = queue.PriorityQueue()
        self._numbers = itertools.count()

    def begin(self, task: Task) -> Future[Made]:
        """Queue one part to be made as by `Hands.made`, and return its future at once.

        It begins when a thread is free and no part of a more urgent mart waits.
        """
        job = Job(partial(self._hands.made, task), Future())
        self._waiting.put((-self._urgencies[task.mart], next(self._numbers), job))
        self._threads.submit(self._do_most_urgent)
        return job.future

    def drop_waiting(self) -> None:
        """Cancel the parts that were not begun."""
        for job in self._jobs_waiting():
            job.future.cancel()

    def _jobs_waiting(self) -> Iterator[Job]:
        """Take the jobs out of the queue, the most urgent first, until there is none."""
        while True:
            try:
                *_, job = self._waiting.get_nowait()
            except queue.Empty:
                return
            yield job

    def _do_most_urgent(self) -> None:
        for job in itertools.islice(self._jobs_waiting(), 1):
            try:
                made = job.work()
                if made.part is not None:
                    self._keep(made.part)
                job.future.set_result(made)
            except BaseException as error:  # noqa: BLE001 - raised again by the result of the future
                job.future.set_exception(error)


@contextmanager
def open_crew(hands: Hands, urgencies: Mapping[str, int], keep: Callable[[Part], object]) -> Iterator[Crew]:
    """Yield a Crew that orders parts by `urgencies`; at the end wait for those that were begun."""
    with ThreadPoolExecutor(hands.n_at_once) as threads:
        yield Crew(hands, urgencies, keep, threads)


def graph_of(models: Iterable[Model]) -> dict[str, frozenset[str]]:
    """Return, by the name of each model, which of the other given models it reads."""
    by_name = {model.name: model for model in models}
    return {name: model.references & by_name.keys() for name, model in by_name.items()}


def urgencies(graph: Graph) -> dict[str, int]:
    """Return the urgency of each mart: the number of marts, itself included, that wait for it in a row.

    That is the number of marts on the longest way from it to a mart that nobody reads.
    """
    found: dict[str, int] = {}
    for name in reversed(list(graphlib.TopologicalSorter(graph).static_order())):
        found.setdefault(name, 1)
        for read in graph[name]:
            found[read] = max(found.get(read, 1), found[name] + 1)
    return found


def make_all(
    graph: Graph, make: Callable[[str], object], n_at_once: int, give_up: Callable[[], object]
) -> None:
    """Make every mart of a graph, each after those that it reads, `n_at_once` at the same time in threads.

    `make` makes the mart of a name. Of those that can be made, the one with the longest way behind it comes
    first. After an error no other mart is begun. `give_up`, which shortens the work of those that were, is
    called until they have ended; then the first error is raised.
    """
    order = graphlib.TopologicalSorter(graph)
    order.prepare()
    urgency = urgencies(graph)
    ready: list[tuple[int, str]] = []
    made: dict[Future[object], str] = {}
    with ThreadPoolExecutor(n_at_once, "mart") as threads, given_up_after_an_error(made, give_up):
        while order.is_active():
            for name in order.get_ready():
                heapq.heappush(ready, (-urgency[name], name))
            while ready and len(made) < n_at_once:
                _, name = heapq.heappop(ready)
                made[threads.submit(make, name)] = name
            for future in wait(made, return_when=FIRST_COMPLETED).done:
                future.result()
                order.done(made.pop(future))
