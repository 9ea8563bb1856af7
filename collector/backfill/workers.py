"""Run units of work in worker processes; few units are in work at a time, so that memory stays small."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from collector.backfill.store import WorkResult
from collector.child_processes import open_process_pool
from collector.codec.feerates import effective_feerates
from collector.codec.parents import in_block_parents
from collector.codec.traits import transaction_traits
from collector.codec.transaction import transaction_ids
from collector.codec.undo import spent_outputs
from collector.codec.walk import walk_blocks
from collector.errors import CollectorError
from collector.log import configure_logging
from collector.unneeded import hide_unneeded

QUEUED_PER_WORKER: Final = 2
LOCAL: Final = "local"  # the engine that is no cluster: processes on this machine
PRELOADED: Final = ["collector.backfill.file_work", "collector.backfill.node_work"]


class Workers(Protocol):
    """Runs units of work of a backfill, `count` at a time."""

    count: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, work: Callable[[Any], WorkResult], units: Iterable[Any]) -> Iterator[WorkResult]:
        """Run `work` on each of `units`, `count` at a time; yield the results."""

    def wait_until_ready(self) -> None:
        """Wait until the first unit of work can begin."""


class InProcess(AbstractContextManager["InProcess"]):
    """Runs units of work one after the other in this process, for a backfill with one worker."""

    count = 1

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no process to end."""

    def run(self, work: Callable[[Any], WorkResult], units: Iterable[Any]) -> Iterator[WorkResult]:
        """Run each unit of work when its result is asked for; yield the results in the order of the units."""
        return map(work, units)

    def wait_until_ready(self) -> None:
        """Compile, or load from disk, the functions that the first unit of work needs."""
        load_compiled_functions()


class BoundedPool(ABC):
    """Runs units of work in other processes, `count` at a time; only a few more are queued."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def submit(self, work: Callable[[Any], WorkResult], unit: Any) -> "Future[WorkResult]":
        """Start `work` on one unit in another process; return the Future of the result."""

    def run(self, work: Callable[[Any], WorkResult], units: Iterable[Any]) -> Iterator[WorkResult]:
        """Run `work` on each of `units` in other processes; yield the results as they come.

        When a unit raises an error, the units that have started are finished first; then the error is raised
        here.
        """
        pending: set[Future[WorkResult]] = set()
        todo = iter(units)
        while True:
            while len(pending) < self.count * QUEUED_PER_WORKER and (unit := next(todo, None)) is not None:
                pending.add(self.submit(work, unit))
            if not pending:
                return
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()


class WorkerPool(BoundedPool, AbstractContextManager["WorkerPool"]):
    """Runs units of work, each of which is a list of blocks, in worker processes.

    The processes start when the pool is made, so that they load while the caller finds the blocks.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._executor = open_process_pool(count, PRELOADED, prepare)
        self._started = [self._executor.submit(int) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[[Any], WorkResult], unit: Any) -> "Future[WorkResult]":
        """Start `work` on one unit in a worker process; return the Future of the result."""
        return self._executor.submit(work, unit)

    def run(self, work: Callable[[Any], WorkResult], units: Iterable[Any]) -> Iterator[WorkResult]:
        """Run `work` on each of `units`, and yield the results as they come.

        Raises CollectorError when a worker process was killed.
        """
        try:
            yield from super().run(work, units)
        except BrokenProcessPool:
            raise CollectorError(
                "a worker process was killed, probably because memory ran out; use fewer --workers and run "
                "again: what is written stays"
            ) from None

    def wait_until_ready(self) -> None:
        """Wait until every worker process can take a unit of work."""
        wait(self._started)


def open_pool(workers: int, engine: str = LOCAL) -> "Workers":
    """Return a pool of worker processes for units of work; a single worker is this process itself.

    Where `engine` is not `local`, it is the address of a Spark cluster, which has workers of its own.
    """
    if engine != LOCAL:
        from collector.backfill.cluster import SparkPool  # noqa: PLC0415 - loads PySpark

        return SparkPool(engine)
    return InProcess() if workers == 1 else WorkerPool(workers)


def prepare() -> None:
    """Set up a worker process: one core, compiled functions loaded."""
    configure_logging("auto", "warning")
    hide_unneeded()
    # The other cores belong to the other workers.
    pa.set_cpu_count(1)
    os.environ["GPUHASH_THREADS"] = "1"
    load_compiled_functions()


def load_compiled_functions() -> None:
    """Compile, or load from disk, every compiled function that the work on blocks needs."""
    data, limits = np.empty(0, np.uint8), np.zeros(1, np.int64)
    layout = walk_blocks(data, limits)
    ids = transaction_ids(data, layout)
    parent_limits, parents = in_block_parents(data, layout, ids[0])
    values, spent_types = spent_outputs(data, limits, layout.blocks, layout.txs)
    transaction_traits(data, layout, spent_types)
    effective_feerates(layout.blocks, values, values, parent_limits, parents)
