"""The two clocks of this machine: the wall clock stamps, the monotonic clock measures every wait.

Someone may set the wall clock, and a suspended machine finds it far ahead. No wait may hang on that, and no
stamp is ever rewritten: a step only ends what `coverage` claims.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

MOST_APART_NS: Final = 1_000_000  # between two looks at the monotonic clock around one at the wall clock
ATTEMPTS: Final = 10


def wall_us() -> int:
    """Return the wall clock, in microseconds since 1970 UTC: what every `_at` column holds."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Return the monotonic clock, in microseconds since some moment: for waits, never for a row."""
    return time.monotonic_ns() // 1000


class Step(NamedTuple):
    """The wall clock was set, by so much and at some moment behind a look at it."""

    by_us: int  # negative: back
    newest_us: int  # wall clock of the look before

    def is_before(self, stamp_ns: int) -> bool:
        """Whether a stamp, one of those taken in order, shows that the clock has been set by then.

        Stamps before a step back go on from the look; a step ahead is seen in the first that is so far ahead.
        """
        if self.by_us < 0:
            return stamp_ns // 1000 < self.newest_us + self.by_us // 2
        return stamp_ns // 1000 >= self.newest_us + self.by_us


class StepDetector:
    """Notices when the wall clock was set, by comparing it with the monotonic clock.

    Slewing, by which time daemons correct small errors, moves it less than a millisecond per second and is no
    step. `threshold_us` is the least that is one.
    """

    def __init__(self, threshold_us: int, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._threshold_us = threshold_us
        self._wall_ns = wall_ns
        self._ahead_us, self._newest_us = self._look_us()

    def step(self) -> Step | None:
        """Return how the wall clock was set since the last call; None when it was not."""
        before_us, newest_us = self._ahead_us, self._newest_us
        self._ahead_us, self._newest_us = self._look_us()
        by_us = self._ahead_us - before_us
        return Step(by_us, newest_us) if abs(by_us) >= self._threshold_us else None

    def _look_us(self) -> tuple[int, int]:
        """Return how far the wall clock is ahead of the monotonic one, and what it says."""
        for _ in range(ATTEMPTS):  # again when we were interrupted
            before_ns = time.monotonic_ns()
            wall_ns = self._wall_ns()
            after_ns = time.monotonic_ns()
            if after_ns - before_ns <= MOST_APART_NS:
                break
        return (wall_ns - (before_ns + after_ns) // 2) // 1000, wall_ns // 1000
