"""The two clocks of this machine: the wall clock stamps rows, the monotonic clock measures every wait.

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
    """Return the wall clock, in microseconds since 1970 UTC: what every `_at` column holds."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Return the monotonic clock, in microseconds since an arbitrary moment: for waits, never for a row."""
    return time.monotonic_ns() // 1000


class Step(NamedTuple):
    """The wall clock was set by `by_us`, some time after a reading of `newest_us`."""

    by_us: int  # negative when it was set back
    newest_us: int  # wall clock, at the last reading before the step

    def is_before(self, stamp_ns: int) -> bool:
        """Whether the step came before this stamp; stamps are given in the order they were taken.

        After a step back, a stamp is well below the last reading. After a step ahead, it is at least as far
        above the reading as the step.
        """
        if self.by_us < 0:
            return stamp_ns // 1000 < self.newest_us + self.by_us // 2
        return stamp_ns // 1000 >= self.newest_us + self.by_us


class StepDetector:
    """Finds out when the wall clock was set, by comparing it with the monotonic clock.

    Time daemons correct small errors by slewing, less than a millisecond per second; that is no step. A
    difference of `threshold_us` or more is one.
    """

    def __init__(self, threshold_us: int, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._threshold_us = threshold_us
        self._wall_ns = wall_ns
        self._ahead_us, self._newest_us = self._read_us()

    def step(self) -> Step | None:
        """Return the step since the last call; None when the wall clock was not set."""
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
