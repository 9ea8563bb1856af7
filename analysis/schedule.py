"""Make several marts at the same time, each in a thread, as soon as the marts that it reads are done.

A thread makes the parts of its mart with a DuckDB connection of its own, or has a crew of other processes
make them, and waits.
"""

import graphlib
import heapq
import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from analysis.catalog import Model
from analysis.database import given_up_after_an_error
from analysis.parts import Inputs, Part, Rows
from analysis.ranges import Piece

Graph = Mapping[str, frozenset[str]]  # by mart, the other marts that it reads


class Hands(Protocol):
    """Declares how other processes make parts of marts, `n_at_once` at a time; see analysis/tasks.py."""

    @property
    def n_at_once(self) -> int:
        """Return how many parts of marts are made at the same time."""

    def made(  # noqa: PLR0917 - the fields of a task
        self,
        mart: str,
        name: str,
        inputs: Inputs,
        rows: Mapping[str, Rows],
        early: str | None,
        piece: Piece | None,
    ) -> Part:
        """Have another process make one part of `mart`, called `name`; return the part when it is made.

        `inputs` are those of the part. `rows` has the stored marts that its query reads, by name. With
        `early`, the query that reads early parts, the late columns are filled in. `piece` describes the
        range; without it the part is the whole mart.
        """


class Job(NamedTuple):
    """Holds one part of a mart that another process is to make: the call that makes it, and its future."""

    work: Callable[[], Part]
    future: Future[Part]


class Crew:
    """Has other processes make parts, those of the most urgent mart first; `keep` records each part."""

    def __init__(
        self,
        hands: Hands,
        urgencies: Mapping[str, int],
        keep: Callable[[Part], Part],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._hands = hands
        self._urgencies = urgencies
        self._keep = keep
        self._threads = threads
        self._waiting: queue.PriorityQueue[tuple[int, int, Job]] = queue.PriorityQueue()
        self._numbers = itertools.count()

    def begin(
        self,
        mart: str,
        name: str,
        inputs: Inputs,
        rows: Mapping[str, Rows],
        *,
        early: str | None = None,
        piece: Piece | None = None,
    ) -> Future[Part]:
        """Queue one part to be made as by `Hands.made`, and return its future at once.

        It begins when a thread is free and no part of a more urgent mart waits.
        """
        job = Job(partial(self._hands.made, mart, name, inputs, rows, early, piece), Future())
        self._waiting.put((-self._urgencies[mart], next(self._numbers), job))
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
                job.future.set_result(self._keep(job.work()))
            except BaseException as error:  # noqa: BLE001 - raised again by the result of the future
                job.future.set_exception(error)


@contextmanager
def open_crew(hands: Hands, urgencies: Mapping[str, int], keep: Callable[[Part], Part]) -> Iterator[Crew]:
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
