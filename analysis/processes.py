"""Have work of a build done by processes of this machine, each with a DuckDB of one thread."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Final

from analysis.database import default_memory_gb
from analysis.errors import DatabaseError
from analysis.tasks import Result
from collector.child_processes import open_process_pool

ATTEMPTS: Final = 3  # at one piece of work, where the processes end in the middle of it
PRELOADED: Final = ["analysis.tasks"]


class ProcessWorkers:
    """Does work in `n_at_once` processes; it implements `analysis.tasks.Workers`.

    Where a process is killed, the work that was being done is done again by new processes.
    """

    def __init__(self, n_at_once: int) -> None:
        self.n_at_once = n_at_once
        self._lock = threading.Lock()
        self._pool = open_process_pool(n_at_once, PRELOADED)

    def call(self, what: str, work: Callable[[], Result]) -> Result:
        """Call `work` in a process, and return what it returns; `what` tells people what it is.

        Raises duckdb.Error where a query fails, and DatabaseError where processes are killed again and again.
        """
        for _ in range(ATTEMPTS):
            pool = self._pool
            try:
                return self.submit(pool, work).result()
            except BrokenProcessPool:
                self._replace(pool)
        raise DatabaseError(
            f"processes that worked at {what} were killed {ATTEMPTS} times, probably because memory ran out;"
            " use fewer --workers or less --memory, and build again: parts that are made stay"
        )

    def submit(self, pool: ProcessPoolExecutor, work: Callable[[], Result]) -> "Future[Result]":
        """Hand one piece of work to a process of a pool."""
        return pool.submit(work)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """Start new processes in place of a broken pool, if no other thread has done so."""
        with self._lock:
            if self._pool is broken:
                self._pool = open_process_pool(self.n_at_once, PRELOADED)


@contextmanager
def open_processes(n_at_once: int) -> Iterator[ProcessWorkers]:
    """Start processes that work for builds, yield them, and end them."""
    workers = ProcessWorkers(n_at_once)
    try:
        yield workers
    finally:
        workers.close()


def memory_of_each_gb(memory_gb: float | None, n_workers: int) -> float:
    """Return the memory (10^9 bytes) of one process, where a build and its workers share `memory_gb`.

    None stands for four fifths of the memory of the machine or container.
    """
    return (default_memory_gb() if memory_gb is None else memory_gb) / (n_workers + 1)
