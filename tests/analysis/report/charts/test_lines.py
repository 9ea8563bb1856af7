"""Tests charts of lines: steps, gaps, parts of periods, and the values that a pointer shows."""

import datetime as dt
import itertools

import pytest

from analysis.report.charts.lines import (
    DURATION_LABEL,
    HEIGHT_PX,
    PERCENT_LABEL,
    Axis,
    Line,
    Point,
    duration_ticks,
    hover_strips,
    line_panel,
)
from tests.analysis.report.charts import drawings

FIRST = dt.date(2026, 3, 2)
SOLID = {"stroke_dasharray": "1,0"}
TIME, SHARE = Axis(title=""), Axis(title="Part", label=PERCENT_LABEL, domain=(0, 1))


def line(values: dict[int, float], *, partial: tuple[int, ...] = (), shape: str = "line") -> Line:
    """Return a line with values by day after the first; those of days in `partial` are of a part of it."""
    points = [
        Point(x=FIRST + dt.timedelta(days=day), y=value, is_partial=day in partial)
        for day, value in values.items()
    ]
    return Line(label="alpha", colour="var(--pool-1)", points=points, shape=shape)  # type: ignore[arg-type]


def draw(one: Line) -> str:
    """Draw one line in a chart of half the page."""
    return line_panel("c", "t", [one], x=TIME, y=SHARE, is_half=True).wide


def test_whole_numbers_are_drawn_as_steps() -> None:
    """Between two points of a step no value lies between theirs: every edge is level or upright."""
    (path,) = drawings.elements(draw(line({0: 0.25, 1: 0.75, 2: 0.5}, shape="step")), "path", **SOLID)

    corners = drawings.corners(path)
    assert {y for _, y in corners} == {0.75 * HEIGHT_PX, 0.25 * HEIGHT_PX, 0.5 * HEIGHT_PX}
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(corners))


def test_a_value_of_a_part_of_a_period_is_an_open_circle_off_the_line() -> None:
    """The solid line leaves it out; the circle has paper inside and stands where the value is."""
    svg = draw(line({0: 0.9, 1: 0.5, 2: 0.5, 3: 0.5}, partial=(0,)))

    (solid,) = drawings.elements(svg, "path", **SOLID)
    (circle,) = drawings.elements(svg, "path", fill="var(--paper)", stroke="var(--pool-1)")
    assert {y for _, y in drawings.corners(solid)} == {0.5 * HEIGHT_PX}
    x, y = drawings.at(circle)
    assert (x, y) == pytest.approx((0, 0.1 * HEIGHT_PX))
    assert min(x for x, _ in drawings.corners(solid)) > x


def test_a_line_breaks_where_days_are_missing() -> None:
    """After more than three usual steps without a value the line begins anew."""
    (path,) = drawings.elements(draw(line({0: 0.5, 1: 0.5, 2: 0.5, 9: 0.5, 10: 0.5})), "path", **SOLID)

    assert path.attrib["d"].count("M") == 2


def test_a_pointer_reads_the_value_nearest_to_it() -> None:
    """Strips lie side by side from the first to the last point, each around its own value."""
    one = Line(
        label="alpha",
        colour="var(--ink)",
        points=[Point(x=1.0, y=0.5, low=0.4, high=0.6), Point(x=2.0, y=0.25), Point(x=5.0, y=None)],
    )

    strips = hover_strips([one], Axis(title="age"), SHARE)

    assert [(low, high) for low, high, _ in strips] == [(1.0, 1.5), (1.5, 2.0)]
    assert strips[0][2] == "age 1.00: alpha 50.0\u00a0% (40.0\u00a0% to 60.0\u00a0%)"


def test_what_a_pointer_reads_is_in_the_drawing() -> None:
    """Each value is in the title of an element that a script finds by `data-value`."""
    shown = drawings.values_shown(draw(line({0: 0.25, 1: 0.75})))

    assert shown == ["2026-03-02: alpha 25.0\u00a0%", "2026-03-03: alpha 75.0\u00a0%"]


def test_a_band_breaks_where_its_line_does() -> None:
    """No area spans the days without a value: it would claim to know what nobody measured."""
    points = [
        Point(x=FIRST + dt.timedelta(days=day), y=0.5, low=0.4, high=0.6) for day in (0, 1, 2, 3, 30, 31, 32)
    ]
    one = Line(label="alpha", colour="var(--pool-1)", points=points)

    (band,) = drawings.elements(draw(one), "path", fill="var(--pool-1)", opacity="0.16")

    assert band.attrib["d"].count("M") == 2


def test_labels_of_a_logarithmic_axis_stand_apart() -> None:
    """The first label begins where the axis does, so labels are left out where two would touch."""
    low_s, high_s = 0.001, 0.019
    blocks = [Point(x=low_s, y=0.2), Point(x=high_s, y=1.0)]
    time = Axis(
        title="",
        label=DURATION_LABEL,
        is_log=True,
        domain=(low_s, high_s),
        ticks=duration_ticks(low_s, high_s),
    )
    one = Line(label="blocks", colour="var(--pool-1)", points=blocks, shape="step")
    svg = line_panel("c", "t", [one], x=time, y=SHARE).narrow

    shown = [each for each in drawings.elements(svg, "text", opacity="1") if each.text.endswith("\u00a0s")]
    assert [each.text for each in shown] == ["0.001\u00a0s", "0.005\u00a0s", "0.01\u00a0s"]
