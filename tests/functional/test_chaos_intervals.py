"""Tests of how the chaos judge reads `coverage`: what it finds wrong with intervals, and what not."""

import pytest

from tests.functional.chaos.intervals import COUNTER_RANGE, Interval, holes

TOP = COUNTER_RANGE - 1


def interval(first: int, last: int, n_messages: int, span_us: tuple[int, int], reason: str) -> Interval:
    """Make an interval of `rawblock`."""
    return Interval(
        topic="rawblock",
        from_us=span_us[0],
        to_us=span_us[1],
        first=first,
        last=last,
        n_messages=n_messages,
        reason=reason,
    )


@pytest.mark.parametrize("first", [0, TOP - 1, TOP])
def test_a_counter_that_wraps_is_no_hole(first: int) -> None:
    """A node counts in 32 bits: 0 follows the highest counter, within an interval and across a seal."""
    last = (first + 1) % COUNTER_RANGE
    following = (first + 2) % COUNTER_RANGE
    parts = [
        interval(first, last, 2, (10, 20), "sealed"),
        interval(following, following, 1, (20, 30), "shutdown"),
    ]
    assert holes(parts) == []


def test_a_skipped_counter_and_an_overlap_are_named() -> None:
    """So is a number of messages that the counters do not give."""
    parts = [interval(TOP, 0, 3, (10, 20), "sealed"), interval(2, 2, 1, (15, 30), "shutdown")]
    assert holes(parts) == [
        f"3 messages from counter {TOP} to 0",
        "the next begins 5 us before it ends (sealed)",
        "counter 2 follows 0 across `sealed`",
    ]
