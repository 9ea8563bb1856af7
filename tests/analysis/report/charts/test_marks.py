"""Tests what charts over time share: marked moments whose labels never touch."""

import datetime as dt
import itertools

from analysis.report.charts.marks import LETTER_PX, DatedEvent, merged_labels

FIRST, LAST = dt.date(2026, 1, 1), dt.date(2026, 4, 11)  # 100 days
PLOT_PX = 1000  # ten pixels per day


def event(day: int, label: str) -> DatedEvent:
    """Return an event some days after the first day of the chart."""
    return DatedEvent(x=FIRST + dt.timedelta(days=day), label=label, words=f"{label} on day {day}")


def test_labels_with_room_stay_apart() -> None:
    """Two events with more than the width of a letter between them keep a label each."""
    found = merged_labels([event(10, "H"), event(12, "O")], FIRST, LAST, PLOT_PX)

    assert [label for _, label, _ in found] == ["H", "O"]


def test_labels_that_would_touch_become_one_that_says_both() -> None:
    """Events closer than a letter share one text; the words of both can still be read."""
    found = merged_labels([event(10, "H"), event(11, "O")], FIRST, LAST, PLOT_PX)

    assert found == [(FIRST + dt.timedelta(days=10), "HO", "H on day 10; O on day 11")]


def test_many_equal_events_are_written_once() -> None:
    """A run of equal events at one place has one letter, and labels never overlap."""
    found = merged_labels([event(day, "G") for day in range(40)], FIRST, LAST, PLOT_PX)

    places = [(at - FIRST).days * 10 for at, _, _ in found]
    assert {label for _, label, _ in found} == {"G"}
    assert all(right - left >= LETTER_PX for left, right in itertools.pairwise(places))
