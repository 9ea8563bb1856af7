"""The two clocks of this machine: the wall clock stamps, the monotonic clock measures every wait.

Someone may set the wall clock, and a suspended machine finds it far ahead. No wait may hang on that, and no
stamp is ever rewritten: a step only ends what `coverage` claims.
"""

import time
from collections.abc import Callable
from typing import Final

MOST_APART_NS: Final = 1_000_000  # between two looks at the monotonic clock around one at the wall clock
ATTEMPTS: Final = 10


def wall_us() -> int:
    """Return the wall clock, in microseconds since 1970 UTC: what every `_at` column holds."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Return the monotonic clock, in microseconds since some moment: for waits, never for a row."""
    return time.monotonic_ns() // 1000


class StepDetector:
    """Notices when the wall clock was set, by comparing it with the monotonic clock.

    Slewing, by which time daemons correct small errors, moves it less than a millisecond per second and is no
    step. `threshold_us` is the least that is one.
    """

    def __init__(self, threshold_us: int, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._threshold_us = threshold_us
        self._wall_ns = wall_ns
        self._ahead_us = self._look_us()

    def step_us(self) -> int:
        """Return by how much the wall clock was set since the last call: 0 for not, negative for back."""
        before_us, self._ahead_us = self._ahead_us, self._look_us()
        step_us = self._ahead_us - before_us
        return step_us if abs(step_us) >= self._threshold_us else 0

    def _look_us(self) -> int:
        """Return how far the wall clock is ahead of the monotonic one; again when we were interrupted."""
        for _ in range(ATTEMPTS):
            before_ns = time.monotonic_ns()
            wall_ns = self._wall_ns()
            after_ns = time.monotonic_ns()
            if after_ns - before_ns <= MOST_APART_NS:
                break
        return (wall_ns - (before_ns + after_ns) // 2) // 1000
