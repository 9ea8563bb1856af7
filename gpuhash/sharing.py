"""Let threads share tasks; the work in them releases the GIL."""

import threading
from collections.abc import Callable, Sequence


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

    helpers = min(thread_count or len(waiting), len(waiting)) - 1
    threads = [threading.Thread(target=run) for _ in range(helpers)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
