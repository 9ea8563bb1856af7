"""Start processes that work for this one, and that end with it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

SAFE_PATH: Final = "PYTHONSAFEPATH"


def open_process_pool(
    count: int, preloaded: Sequence[str], prepare: Callable[[], None] | None = None
) -> ProcessPoolExecutor:
    """Return a pool of `count` processes; each calls `prepare` first, and ends when this process ends.

    The processes are forked from a server process that has loaded the modules `preloaded` and runs no
    threads. They ignore Ctrl-C, which this process handles.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *preloaded])
    with _interrupts_blocked(), _safe_path():
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=partial(_begin, prepare))
        for _ in range(count):
            pool.submit(int)  # so that all processes start now
    return pool


def _begin(prepare: Callable[[], None] | None) -> None:
    """Set up a child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """Make this process end as soon as the parent ends, even by SIGKILL: half the work is of no use."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Make child processes start Python as with `-P`: files in the current folder are not imported.

    The server process of `multiprocessing` would otherwise import modules from that folder first.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in the processes that start inside the `with` block; the parent alone handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
