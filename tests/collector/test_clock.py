"""Test the detection of steps of the wall clock."""

import time

import pytest

from collector.clock import StepDetector

SECOND_NS = 1_000_000_000


class Clock:
    """Gives the real wall clock plus the time by which the test has set it."""

    def __init__(self) -> None:
        self.set_by_ns = 0

    def __call__(self) -> int:
        """Return the nanoseconds of this clock."""
        return time.time_ns() + self.set_by_ns


@pytest.mark.parametrize("by_s", [-3600.0, -0.6, 0.6, 86400.0])
def test_a_step_is_noticed_once_with_its_size(by_s: float) -> None:
    """A step ahead or back is found once, with its size."""
    clock = Clock()
    detector = StepDetector(500_000, clock)
    assert detector.step() is None
    clock.set_by_ns += round(by_s * SECOND_NS)
    step = detector.step()
    assert step is not None
    assert step.by_us == pytest.approx(by_s * 1e6, abs=100_000)
    assert detector.step() is None


@pytest.mark.parametrize("by_s", [-0.4, 0.4, 0.0])
def test_less_than_the_threshold_is_no_step(by_s: float) -> None:
    """A difference below the threshold of 0.5 s is not a step."""
    clock = Clock()
    detector = StepDetector(500_000, clock)
    clock.set_by_ns += round(by_s * SECOND_NS)
    assert detector.step() is None


@pytest.mark.parametrize("by_s", [-10, 10])
def test_stamps_show_on_which_side_of_a_step_they_are(by_s: int) -> None:
    """`is_before` is False for stamps taken before the clock was set and True for later ones."""
    clock = Clock()
    detector = StepDetector(500_000, clock)
    earlier_ns = [clock() - SECOND_NS, clock()]  # one had waited for a second
    clock.set_by_ns += by_s * SECOND_NS
    later_ns = clock() + SECOND_NS // 10
    step = detector.step()
    assert step is not None
    assert [step.is_before(stamp_ns) for stamp_ns in (*earlier_ns, later_ns)] == [False, False, True]
