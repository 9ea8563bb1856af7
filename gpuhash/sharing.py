"""Run tasks on several threads; the tasks release the GIL while they work.

The threads are kept for the next call, because hashing a block takes less time than starting a thread.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from gpuhash.errors import InvalidInputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

MOST_THREADS = 256  # a limit: no more threads start than there are tasks
THREADS_VARIABLE = "GPUHASH_THREADS"


def usable_cpus() -> int:
    """Return the number of logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_threads() -> int:
    """Return how many threads the cpu backend uses: $GPUHASH_THREADS, or else one per usable CPU, up to 256.

    Raises InvalidInputError if the variable is not a number from 1 to 256.
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
    """Run every task on up to thread_count threads (None: one per task), the calling thread included.

    After an error no further task starts. When all threads have stopped, the first error is raised here.
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
            helpers.append(_threads().submit(run))  # noqa: PERF401 - keeps those submitted before an error
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


# A forked child has a copy of the pool but none of its threads, so it makes a pool of its own.
os.register_at_fork(after_in_child=_threads.cache_clear)
