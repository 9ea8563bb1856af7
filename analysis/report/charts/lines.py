"""Draws charts of a value over time, age or delay, as lines or steps with 95 % bands around them."""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import altair as alt
from markupsafe import Markup

from analysis.report.charts.svg import (
    INK,
    MAX_POINTED_DAYS,
    MUTED,
    NARROW_PX,
    PANEL_PX,
    PERCENT_LABEL,
    WIDE_PX,
    Drawing,
    day_format,
    draw,
)
from analysis.report.data import Row
from analysis.report.model import LegendKey, Panel

X = float | dt.date
Curve = Sequence[tuple[float, float]]  # (interval in seconds, ratio of intervals that are not longer)

Shape = Literal["line", "step", "points"]

Stroke = Literal["solid", "dashed", "dotted"]

HEIGHT_PX: Final = 270
# Numbers from 1,000 to 10^9 are written in full; all others get four significant digits.
PLAIN_LABEL: Final = "format(datum.value, datum.value >= 1e3 && datum.value < 1e9 ? ',.0f' : '.4~g')"
USD_LABEL: Final = f"'$' + {PLAIN_LABEL}"
HASHRATE_LABEL: Final = "replace(format(datum.value, '.3~s'), regexp('([a-zA-Z]?)$'), '\u00a0$1') + 'H/s'"
DURATION_LABEL: Final = (
    "datum.value < 60 ? format(datum.value, '~g') + '\u00a0s'"
    " : datum.value < 3600 ? format(datum.value / 60, '~g') + '\u00a0min'"
    " : datum.value < 86400 ? format(datum.value / 3600, '~g') + '\u00a0h'"
    " : format(datum.value / 86400, '~g') + '\u00a0d'"
)
CUT_MARK: Final = "\N{BLACK UP-POINTING TRIANGLE}"
DASHES: Final[Mapping[Stroke, list[int]]] = MappingProxyType(
    {"solid": [1, 0], "dashed": [6, 4], "dotted": [2, 3]}
)
FINE_DURATION_TICKS: Final = (
    *(step * 10.0**power for power in range(-3, 1) for step in (1, 2, 5)),
    *(10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
    *(7200, 10_800, 21_600, 43_200, 86_400, 172_800, 259_200, 432_000, 604_800),
)
DURATION_TICKS: Final = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21_600, 86_400, 604_800)
_LEFT_PX: Final = 66
_RIGHT_PX: Final = 22
_TOP_PX: Final = 34
_BOTTOM_PX: Final = 46
_PX_PER_TICK: Final = 110
_MIN_TICKS: Final = 4
_DAYS_NAMED_BELOW: Final = dt.timedelta(days=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Describes one axis: its title, its ends and its ticks. `label` is the Vega expression for a number."""

    title: str
    label: str = PLAIN_LABEL
    is_log: bool = False
    domain: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    cuts_bands: bool = False  # a band that is too high is cut, and CUT_MARK shows where


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Holds a value at x, with its 95 % interval if it has one. A y of None makes a gap in the line."""

    x: X
    y: float | None
    low: float | None = None
    high: float | None = None


def interval_point(x: X, row: Row, name: str, unit: str) -> Point:
    """Make the point at x from three columns of a row: `<name>_<unit>`, and the two ends of its interval.

    The ends are the columns `<name>_low_<unit>` and `<name>_high_<unit>`.
    """
    return Point(x=x, y=row[f"{name}_{unit}"], low=row[f"{name}_low_{unit}"], high=row[f"{name}_high_{unit}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Holds one series of values with its label, colour and form. Each series of a chart looks different."""

    label: str
    colour: str
    points: Sequence[Point]
    shape: Shape = "line"
    stroke: Stroke = "solid"

    @property
    def legend(self) -> LegendKey:
        """Return the line of the legend for this series."""
        return LegendKey(
            label=self.label,
            colour=self.colour,
            shape="dot" if self.shape == "points" else "line" if self.stroke == "solid" else self.stroke,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Describes a moment that an upright line with a label marks."""

    x: X
    label: str


def line_panel(
    name: str,
    title: str,
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    events: Sequence[Event] = (),
    is_half: bool = False,
) -> Panel:
    """Draw a chart of lines in a wide and a narrow version; if `is_half`, in one version for half the page.

    `name` is the prefix of the ids in the SVG, so it must be unique on the page.
    """
    description = "; ".join(_in_words(line) for line in lines)

    def at(width_px: int, suffix: str) -> Markup:
        chart = line_chart(lines, x=x, y=y, events=events, width_px=width_px)
        return draw(chart, name=f"{name}{suffix}", title=title, description=description)

    if is_half:
        return Panel(title=title, wide=at(PANEL_PX, ""))
    return Panel(title="", wide=at(WIDE_PX, "-wide"), narrow=at(NARROW_PX, "-narrow"))


def _in_words(line: Line) -> str:
    known = [point.y for point in line.points if point.y is not None]
    return f"{line.label}: {len(known)} values, {min(known):.4g} to {max(known):.4g}" if known else line.label


def line_chart(
    lines: Sequence[Line], *, x: Axis, y: Axis, events: Sequence[Event] = (), width_px: int
) -> Drawing:
    """Build the Altair chart of lines over numbers or UTC days. At least one point must have a value."""
    x_axis = _x(lines, x, width_px)
    if y.is_log and y.domain is None:
        low, high = _reach(lines)
        y = replace(y, domain=(low, high), ticks=log_ticks(low, high))
    cut = _cut_points(lines, y) if y.cuts_bands else []
    if cut:
        y = replace(y, domain=(0, _most(lines)))
    layers: list[Any] = [_event_layer(event, x_axis) for event in events]
    layers += [_cut_layer(point, colour, x_axis) for point, colour in cut]
    for line in lines:
        layers += _line_layers(line, x_axis, y)
    return alt.layer(*layers).properties(
        width=width_px - _LEFT_PX - _RIGHT_PX,
        height=HEIGHT_PX,
        padding={"left": _LEFT_PX, "right": _RIGHT_PX, "top": _TOP_PX, "bottom": _BOTTOM_PX},
        autosize="none",
    )


def _line_layers(line: Line, x: alt.X, y: Axis) -> Iterator[alt.Chart]:
    """Yield the layers that draw one series: its band or error bars, its line, and its points."""
    rows = [{"x": _place(p.x), "y": p.y, "low": p.low, "high": p.high} for p in line.points]
    shape: dict[str, Any] = {"interpolate": "step-after" if line.shape == "step" else "linear"}
    banded = [row for row in rows if row["low"] is not None and row["high"] is not None]
    chart = alt.Chart(alt.InlineData(values=rows))
    has_points = line.shape == "points" or (line.shape == "line" and len(rows) <= MAX_POINTED_DAYS)
    if banded and line.shape == "points":
        yield (
            alt.Chart(alt.InlineData(values=banded))
            .mark_rule(color=line.colour, opacity=0.6, strokeWidth=1.5)
            .encode(x=x, y=_y("low", y), y2="high:Q")
        )
    elif banded:
        yield (
            alt.Chart(alt.InlineData(values=banded))
            .mark_area(color=line.colour, opacity=0.16, clip=True, **shape)
            .encode(x=x, y=_y("low", y), y2="high:Q")
        )
    if line.shape != "points":
        look = shape | {"strokeWidth": 2, "strokeDash": DASHES[line.stroke]}
        yield chart.mark_line(color=line.colour, clip=True, **look).encode(x=x, y=_y("y", y))
    if has_points and line.stroke == "solid":
        yield chart.mark_point(color=line.colour, fill=line.colour, size=26, opacity=1).encode(
            x=x, y=_y("y", y)
        )


def _most(lines: Sequence[Line]) -> float:
    """Return the upper end for an axis that cuts wide bands: twice the largest value."""
    return 2 * max(point.y or 0 for line in lines for point in line.points)


def _cut_points(lines: Sequence[Line], y: Axis) -> list[tuple[Point, str]]:
    """Return the points whose band reaches beyond the end of the axis, with the colour of their line."""
    most = _most(lines)
    return [
        (point, line.colour)
        for line in lines
        for point in (line.points[:-1] if line.shape == "step" else line.points)
        if most and not y.is_log and (point.high or 0) > most
    ]


def _cut_layer(point: Point, colour: str, x: alt.X) -> alt.Chart:
    """Draw a small triangle at the upper edge of the chart, where the band of a point goes on beyond it."""
    base = alt.Chart(alt.InlineData(values=[{"x": _place(point.x), "label": CUT_MARK}]))
    mark: alt.Chart = base.mark_text(align="left", dx=3, dy=8, color=colour).encode(
        x=x, y=alt.value(0), text="label:N"
    )
    return mark


def _event_layer(event: Event, x: alt.X) -> Drawing:
    """Draw the upright line of an event, with its label above the plot."""
    base = alt.Chart(alt.InlineData(values=[{"x": _place(event.x), "label": event.label}])).encode(x=x)
    rule = base.mark_rule(color=MUTED, strokeDash=[2, 3])
    text = base.mark_text(align="center", dy=-8, color=INK).encode(y=alt.value(0), text="label:N")
    return alt.layer(rule, text)


def _x(lines: Sequence[Line], axis: Axis, width_px: int) -> alt.X:
    places = [point.x for line in lines for point in line.points]
    days = [place for place in places if isinstance(place, dt.date)]
    look: dict[str, Any] = {"title": axis.title or None, "grid": False}
    if days:
        pattern = "%d %b" if max(days) - min(days) < _DAYS_NAMED_BELOW else "%b %Y"
        look |= {"labelExpr": f"utcFormat(datum.value, '{pattern}')", "labelOverlap": True}
        look |= {"tickCount": max(2, width_px // _PX_PER_TICK), "title": axis.title or "Day (UTC)"}
        return alt.X("x:T", scale=alt.Scale(type="utc"), axis=alt.Axis(**look))
    look |= {"labelExpr": axis.label, "labelOverlap": True}
    look |= {"values": list(axis.ticks)} if axis.ticks else {"tickCount": max(3, width_px // _PX_PER_TICK)}
    return alt.X("x:Q", scale=_scale(axis), axis=alt.Axis(**look))


def _reach(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the lower and upper end for a logarithmic axis: a little beyond all values and intervals."""
    values = [value for line in lines for p in line.points for value in (p.low, p.y, p.high) if value]
    return 0.93 * min(values), 1.07 * max(values)


def _y(column: str, axis: Axis) -> alt.Y:
    """Build the y axis for a column of the data. Its title stands above the axis, where it takes no width."""
    look: dict[str, Any] = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end"}
    look |= {"titleX": 4 - _LEFT_PX, "titleY": -16, "labelExpr": axis.label, "domain": False}
    look |= {"values": list(axis.ticks)} if axis.ticks else {"tickCount": 5}
    return alt.Y(f"{column}:Q", scale=_scale(axis), axis=alt.Axis(title=axis.title, **look))


def _scale(axis: Axis) -> alt.Scale:
    look: dict[str, Any] = {"type": "log", "zero": False} if axis.is_log else {"zero": axis.domain is None}
    if axis.domain:
        look |= {"domain": list(axis.domain), "nice": False}
    return alt.Scale(**look)


def _place(x: X) -> float | str:
    return f"{x:%Y-%m-%d}" if isinstance(x, dt.date) else x


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round ticks for a logarithmic axis from `low` to `high`; on a short axis they are denser."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: tuple[float, ...] = ()
    for steps in (
        (1,),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    ):
        ticks = tuple(s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high)
        if len(ticks) >= _MIN_TICKS:
            break
    return ticks


def whole_ticks(first: int, last: float) -> tuple[float, ...]:
    """Return at most eleven whole numbers from `first` to `last`, evenly spaced, as the ticks of an axis."""
    return tuple(range(first, int(last) + 1, max(1, math.ceil((last - first) / 10))))


def duration_ticks(low_s: float, high_s: float) -> tuple[float, ...]:
    """Return round ticks for a logarithmic axis of seconds: 1 s, 10 s, 1 min; finer ones for a short axis."""
    for ticks in (DURATION_TICKS, FINE_DURATION_TICKS):
        found = tuple(tick for tick in ticks if low_s <= tick <= high_s)
        if len(found) >= _MIN_TICKS:
            return found
    return log_ticks(low_s, high_s)


# With fewer intervals than this the longest one is shown; with more, the slowest 1 % are cut off.
MIN_FOR_CUT: Final = 200
CUT_AT_RATIO: Final = 0.99
_CURVE_HEIGHT_PX: Final = 260
_DAY_HEIGHT_PX: Final = 90


def distribution_panel(
    name: str,
    title: str,
    description: str,
    curves: Sequence[tuple[str, Curve]],
    *,
    end_s: float,
) -> Panel:
    """Draw distributions of block intervals in a wide and a narrow version, up to `end_s` seconds.

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
    """Build an Altair chart of distributions of block intervals in seconds, drawn as steps up to `end_s`.

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
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(interpolate="step-after", strokeWidth=2.5, clip=True)
        .encode(x=x, y=y, color=alt.Color("colour:N", scale=None, legend=None))
    )
    return alt.layer(lines).properties(
        width=width_px - left - 14,
        height=_CURVE_HEIGHT_PX,
        padding={"left": left, "right": 14, "top": 34, "bottom": bottom},
        autosize="none",
    )


def day_chart(
    rows: Sequence[tuple[dt.date, float, float, float]], *, largest: float, colour: str, width_px: int
) -> Drawing:
    """Build a small chart of a pool's ratio over time, with its 95 % band.

    Each row is (day, ratio, lower end, upper end); `largest` is the upper end of the axis.
    """
    data = [{"day": f"{day:%Y-%m-%d}", "ratio": r, "low": lo, "high": hi} for day, r, lo, hi in rows]
    x = alt.X(
        "day:T",
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(
            title=None,
            values=[f"{day:%Y-%m-%d}" for day in (rows[0][0], rows[-1][0])],
            labelExpr=f"utcFormat(datum.value, '{day_format(rows[-1][0] - rows[0][0])}')",
            labelFlush=True,
            grid=False,
        ),
    )
    y_axis = alt.Axis(title=None, labelExpr=PERCENT_LABEL, tickCount=3, domain=False)
    y = alt.Y("low:Q", scale=alt.Scale(domain=[0, largest], nice=False), axis=y_axis)
    base = alt.Chart(alt.InlineData(values=data)).encode(x=x)
    points = {"size": 22, "filled": True, "fill": colour} if len(data) <= MAX_POINTED_DAYS else False
    left = 42
    return alt.layer(
        base.mark_area(color=colour, opacity=0.22).encode(y=y, y2="high:Q"),
        base.mark_line(color=colour, strokeWidth=2, point=points).encode(y="ratio:Q"),
    ).properties(
        width=width_px - left - 12,
        height=_DAY_HEIGHT_PX,
        padding={"left": left, "right": 12, "top": 6, "bottom": 22},
        autosize="none",
    )
