"""Let threads share tasks; the work in them releases the GIL.

The threads are kept from call to call: a batch of one block takes less time than starting a thread.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gpuhash.errors import InvalidInputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MOST_THREADS = 256  # started only when that many tasks are shared
THREADS_VARIABLE = "GPUHASH_THREADS"


def usable_cpus() -> int:
    """Count the logical CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_threads() -> int:
    """Return how many threads the cpu backend uses: $GPUHASH_THREADS, else one per usable CPU.

    Raises InvalidInputError when the variable is no number from 1 to 256.
    """
    text = os.environ.get(THREADS_VARIABLE, "").strip()
    if not text:
        return min(usable_cpus(), MOST_THREADS)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_THREADS):
        raise InvalidInputError(
            f"{THREADS_VARIABLE} is {text!r}; set it to a number from 1 to {MOST_THREADS}, or unset it"
        )
    return int(text)


def share(tasks: Sequence[Callable[[], None]], thread_count: int | None = None) -> None:
    """Run every task, by up to thread_count threads (one per task when None), the caller among them.

    The first error a task raises is raised here when all threads have stopped; tasks that have not begun
    by then are left out.
    """
    waiting = list(reversed(tasks))
    errors: list[Exception] = []

    def run() -> None:
        while waiting and not errors:
            try:
                task = waiting.pop()
            except IndexError:
                return  # another thread took the last one
            try:
                task()
            except Exception as error:  # noqa: BLE001 - raised again in the calling thread
                errors.append(error)

    helpers = []
    with contextlib.suppress(RuntimeError):  # no new work is taken while the interpreter ends
        for _ in range(min(thread_count or len(waiting), len(waiting)) - 1):
            helpers.append(_threads().submit(run))  # noqa: PERF401 - those that were taken count
    run()
    for helper in helpers:
        if not helper.cancel():  # it has begun
            helper.result()
    if errors:
        raise errors[0]


@cache
def _threads() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - raises RuntimeError in an exit handler

    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="gpuhash")


# A child process inherits the memory of the threads, not the threads.
os.register_at_fork(after_in_child=_threads.cache_clear)
