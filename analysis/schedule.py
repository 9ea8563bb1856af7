"""Make several marts at the same time: each begins as soon as the marts that it reads are done.

The making of a mart is a generator. It hands jobs, the parts to be made, to a crew, yields those that it must
wait for, and goes on when they are done. So a single thread uses the DuckDB of the build, and other threads
wait for the jobs.
"""

import graphlib
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import PriorityQueue, SimpleQueue
from typing import Protocol

from analysis.catalog import Model
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


@dataclass(eq=False)
class Job:
    """Holds one part of a mart that another process is to make: the call that makes it, and its future."""

    work: Callable[[], Part]
    future: Future[Part] = field(default_factory=Future)


# The making of a mart: it yields the jobs that must end before it goes on.
Making = Generator[list[Job], None, None]
Waiting = Generator[list[Job], None, list[Part]]


class Crew:
    """Runs jobs (each makes a part of a mart) in threads, the most urgent first; returns them as they end."""

    def __init__(self, hands: Hands, urgencies: Mapping[str, int], threads: ThreadPoolExecutor) -> None:
        self._hands = hands
        self._urgencies = urgencies
        self._threads = threads
        self._waiting: PriorityQueue[tuple[int, int, Job]] = PriorityQueue()
        self._ended: SimpleQueue[Job] = SimpleQueue()
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
    ) -> Job:
        """Queue one part to be made as by `Hands.made`, and return its Job at once.

        It begins when a thread is free and no job of a more urgent mart waits.
        """
        job = Job(partial(self._hands.made, mart, name, inputs, rows, early, piece))
        self._waiting.put((-self._urgencies[mart], next(self._numbers), job))
        self._threads.submit(self._do_most_urgent)
        return job

    def next_ended(self) -> Job:
        """Wait until a job ends, with a part or with an error, and return the job."""
        return self._ended.get()

    def _do_most_urgent(self) -> None:
        *_, job = self._waiting.get_nowait()
        try:
            job.future.set_result(job.work())
        except BaseException as error:  # noqa: BLE001 - raised again by the result of the future
            job.future.set_exception(error)
        self._ended.put(job)


@contextmanager
def open_crew(hands: Hands, urgencies: Mapping[str, int]) -> Iterator[Crew]:
    """Yield a Crew that orders jobs by `urgencies`; at the end drop jobs that did not begin, await others."""
    with ThreadPoolExecutor(hands.n_at_once) as threads:
        try:
            yield Crew(hands, urgencies, threads)
        finally:
            threads.shutdown(cancel_futures=True)


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
    graph: Graph, making: Callable[[str], Making], crew: Crew, keep: Callable[[Job], object]
) -> None:
    """Make every mart of a graph, each after those that it reads.

    `making` begins the mart of a name, and `keep` is called with each job that has ended.
    """
    order = graphlib.TopologicalSorter(graph)
    order.prepare()
    urgency = urgencies(graph)
    begun: dict[str, Making] = {}
    awaited: dict[Job, str] = {}
    n_awaited: Counter[str] = Counter()

    def go_on(name: str) -> None:
        for jobs in begun[name]:
            if jobs:
                awaited.update(dict.fromkeys(jobs, name))
                n_awaited[name] = len(jobs)
                return
        order.done(name)

    while order.is_active():
        for name in sorted(order.get_ready(), key=lambda each: (-urgency[each], each)):
            begun[name] = making(name)
            go_on(name)
        if awaited:
            job = crew.next_ended()
            keep(job)
            name = awaited.pop(job)
            n_awaited[name] -= 1
            if not n_awaited[name]:
                go_on(name)
