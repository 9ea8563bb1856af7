"""Draws distributions of block intervals as steps: how many blocks came within a time of their parent."""

from collections.abc import Iterable, Sequence
from typing import Final

import altair as alt
from markupsafe import Markup

from analysis.report.charts.svg import NARROW_PX, PERCENT_LABEL, WIDE_PX, ChartRows, Drawing, draw
from analysis.report.model import Panel

Curve = Sequence[tuple[float, float]]  # (interval in seconds, ratio of intervals that are not longer)

# With fewer intervals than this the longest one is shown; with more, the slowest 1 % are cut off.
MIN_FOR_CUT: Final = 200
CUT_AT_RATIO: Final = 0.99
_CURVE_HEIGHT_PX: Final = 260


def distribution_panel(
    name: str,
    title: str,
    description: str,
    curves: Sequence[tuple[str, Curve]],
    *,
    end_s: float,
) -> Panel:
    """Return a chart of distributions of block intervals up to `end_s` seconds, as a wide and a narrow SVG.

    `curves` has a pair (colour, points) for each distribution.
    """

    def at(width_px: int, suffix: str) -> Markup:
        chart = step_chart(curves, end_s=end_s, width_px=width_px)
        return draw(chart, name=f"{name}-{suffix}", title=title, description=description)

    return Panel(title="", wide=at(WIDE_PX, "wide"), narrow=at(NARROW_PX, "narrow"))


def end_to_draw(curves: Iterable[Curve]) -> float:
    """Return the number of seconds at which an axis of block intervals ends.

    It ends at the longest interval; a curve of 200 points or more counts only up to its fastest 99 %.
    """
    ends = (
        points[-1][0]
        if len(points) < MIN_FOR_CUT
        else next(interval_s for interval_s, ratio in points if ratio >= CUT_AT_RATIO)
        for points in curves
    )
    return max(ends) or 1.0


def step_chart(curves: Sequence[tuple[str, Curve]], *, end_s: float, width_px: int) -> Drawing:
    """Return an Altair chart of distributions of block intervals in seconds, as steps up to `end_s`.

    `curves` has a pair (colour, points) for each distribution. A point is (seconds, ratio of intervals that
    are not longer), and each curve has at least one point.
    """
    start_s = min(0.0, *(points[0][0] for _, points in curves))
    rows = []
    for colour, points in curves:
        shown = [(start_s, 0.0), *points]
        rows += [{"colour": colour, "interval_s": at, "ratio": ratio} for at, ratio in shown]
        if points[-1][0] < end_s:
            rows.append({"colour": colour, "interval_s": end_s, "ratio": 1.0})
    left, bottom = 58, 44
    x = alt.X(
        "interval_s:Q",
        scale=alt.Scale(domain=[start_s, end_s], nice=False),
        axis=alt.Axis(title="Seconds since the parent block arrived", tickCount=5, grid=False),
    )
    y = alt.Y(
        "ratio:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(
            title="Part of blocks",
            titleAngle=0,
            titleAlign="left",
            titleAnchor="end",
            titleX=4 - left,
            titleY=-16,
            labelExpr=PERCENT_LABEL,
            values=[0, 0.25, 0.5, 0.75, 1],
            domain=False,
        ),
    )
    lines = (
        alt.Chart(ChartRows(values=rows))
        .mark_line(interpolate="step-after", strokeWidth=2.5, clip=True)
        .encode(x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None))
    )
    return alt.layer(
        lines,
        width=width_px - left - 14,
        height=_CURVE_HEIGHT_PX,
        padding={"left": left, "right": 14, "top": 34, "bottom": bottom},
        autosize="none",
    )
