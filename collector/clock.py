"""Read the two clocks of this machine: the wall clock stamps rows, the monotonic clock measures every wait.

Somebody may set the wall clock, and it jumps ahead when a suspended machine wakes up. Waits do not depend on
it, and no stamp is ever rewritten: a step only ends the intervals in `coverage`.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

MOST_APART_NS: Final = (
    1_000_000  # between two readings of the monotonic clock, with the wall clock read in between
)
ATTEMPTS: Final = 10


def wall_us() -> int:
    """Return the wall clock in microseconds since 1970 UTC, the unit of every `_at` column."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Return the monotonic clock in microseconds since an arbitrary moment; use it for waits, not rows."""
    return time.monotonic_ns() // 1000


class Step(NamedTuple):
    """Says that the wall clock was set ahead or back by `by_us` microseconds.

    `newest_us` is the last reading of the wall clock before that.
    """

    by_us: int  # negative when it was set back
    newest_us: int  # wall clock, at the last reading before the step

    def is_before(self, stamp_ns: int) -> bool:
        """Return whether the wall clock was set before `stamp_ns` (nanoseconds of the wall clock) was taken.

        Stamps must be passed in the order in which they were taken. After a step back, a stamp is well below
        the last reading. After a step ahead, it is at least as far above the reading as the step.
        """
        if self.by_us < 0:
            return stamp_ns // 1000 < self.newest_us + self.by_us // 2
        return stamp_ns // 1000 >= self.newest_us + self.by_us


class StepDetector:
    """Finds out when somebody set the wall clock, by comparing it with the monotonic clock.

    Time daemons correct small errors by slewing (less than a millisecond per second), which is not a step. A
    difference of `threshold_us` or more is a step.
    """

    def __init__(self, threshold_us: int, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._threshold_us = threshold_us
        self._wall_ns = wall_ns
        self._ahead_us, self._newest_us = self._read_us()

    def step(self) -> Step | None:
        """Return the step by which the wall clock was set since the last call; None when it was not set."""
        before_us, newest_us = self._ahead_us, self._newest_us
        self._ahead_us, self._newest_us = self._read_us()
        by_us = self._ahead_us - before_us
        return Step(by_us, newest_us) if abs(by_us) >= self._threshold_us else None

    def _read_us(self) -> tuple[int, int]:
        """Return how far the wall clock is ahead of the monotonic clock, and the wall clock itself."""
        for _ in range(ATTEMPTS):  # another one when the two clocks were read too far apart
            before_ns = time.monotonic_ns()
            wall_ns = self._wall_ns()
            after_ns = time.monotonic_ns()
            if after_ns - before_ns <= MOST_APART_NS:
                break
        return (wall_ns - (before_ns + after_ns) // 2) // 1000, wall_ns // 1000
