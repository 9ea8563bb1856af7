"""Run units in worker processes, so many at a time that memory stays small."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Self

from collector.backfill.work import Done, load_kernels, prepare
from collector.errors import CollectorError

QUEUED_PER_WORKER: Final = 2
PRELOADED: Final = ["collector.backfill.work"]


class Here(AbstractContextManager["Here"]):
    """One worker: this process."""

    count = 1

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""

    def run(self, work: Callable[[Any], Done], units: Iterable[Any]) -> Iterator[Done]:
        """Do the units in order."""
        return map(work, units)

    def wait_until_ready(self) -> None:
        """Load or compile what the first unit would wait for."""
        load_kernels()


class Workers(AbstractContextManager["Workers"]):
    """Worker processes; they start at once, while the caller still takes stock.

    They are forked from a server that has the modules loaded and no threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._executor = ProcessPoolExecutor(count, mp_context=context, initializer=prepare)
        with _interrupts_held():
            self._started = [self._executor.submit(int) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def run(self, work: Callable[[Any], Done], units: Iterable[Any]) -> Iterator[Done]:
        """Do the units, in any order; raises what a unit raised, after those under way have ended."""
        pending: set[Future[Done]] = set()
        todo = iter(units)
        try:
            while True:
                while (
                    len(pending) < self.count * QUEUED_PER_WORKER and (unit := next(todo, None)) is not None
                ):
                    pending.add(self._executor.submit(work, unit))
                if not pending:
                    return
                ended, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
        except BrokenProcessPool:
            raise CollectorError(
                "a worker process was killed, most likely for want of memory; use fewer --workers and run "
                "again: what is written stays"
            ) from None

    def wait_until_ready(self) -> None:
        """Return when every worker can take a unit."""
        wait(self._started)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C, which is for the parent, from processes that begin here: they inherit what is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_pool(workers: int) -> Here | Workers:
    """Return what does units with this many workers."""
    return Here() if workers == 1 else Workers(workers)
