"""Draws charts of a value over time, age or delay, as lines or steps with 95 % bands around them."""

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import altair as alt
from markupsafe import Markup

from analysis.report.charts.marks import DatedEvent, day_axis, event_layers, hover_layer, place, plot_marks
from analysis.report.charts.svg import (
    MAX_POINTED_DAYS,
    NARROW_PX,
    PANEL_PX,
    PAPER,
    PERCENT_LABEL,
    WIDE_PX,
    ChartRows,
    Drawing,
    day_format,
    draw,
)
from analysis.report.data import Row
from analysis.report.model import LegendKey, Panel
from analysis.report.plot import Form, Plot, Series, Unit, number
from analysis.report.text import decimal, duration, metric, percent, plural

X = float | dt.date
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
_PX_BETWEEN_LABELS: Final = 8  # a reader's font may be wider than the one that is measured here
_MIN_TICKS: Final = 4
_MAX_STEPS: Final = 3
_MAX_STRIPS: Final = 150
MAX_PLOTTED: Final = 2000  # values of a plot that have words
WRITERS: Final[Mapping[str, Callable[[Any], str]]] = MappingProxyType(
    {
        PLAIN_LABEL: decimal,
        USD_LABEL: lambda value: f"${decimal(value)}",
        HASHRATE_LABEL: lambda value: metric(value, "H/s"),
        DURATION_LABEL: duration,
        PERCENT_LABEL: percent,
    }
)  # how Python writes the numbers that an axis writes by a Vega expression
UNITS: Final[Mapping[str, Unit]] = MappingProxyType(
    {
        PLAIN_LABEL: "number",
        USD_LABEL: "usd",
        HASHRATE_LABEL: "hashrate",
        DURATION_LABEL: "duration",
        PERCENT_LABEL: "percent",
    }
)  # and how the script of a page is told to write them


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Describes one axis of a chart: its title, range, ticks and scale, linear or logarithmic.

    `label` is the Vega expression that writes a number. With `cuts_bands` the axis ends at twice the largest
    value, even where a band is wider.
    """

    title: str
    label: str = PLAIN_LABEL
    is_log: bool = False
    domain: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    cuts_bands: bool = False  # a band that is too high is cut, and CUT_MARK shows where


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Holds a value at x, with its 95 % interval if it has one. A y of None makes a gap in the line.

    A value that rests on a part of its period (`is_partial`) is drawn as an open circle on a dashed line.
    """

    x: X
    y: float | None
    low: float | None = None
    high: float | None = None
    is_partial: bool = False


def interval_point(x: X, row: Row, name: str, unit: str, *, is_partial: bool = False) -> Point:
    """Return the point at x with the value `<name>_<unit>` of a row and its interval.

    The two ends of the interval are the columns `<name>_low_<unit>` and `<name>_high_<unit>`.
    """
    low, high = row[f"{name}_low_{unit}"], row[f"{name}_high_{unit}"]
    return Point(x=x, y=row[f"{name}_{unit}"], low=low, high=high, is_partial=is_partial)


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
        """Return the key of the legend for this series: its label, its colour, and dot, line or dashes."""
        return LegendKey(
            label=self.label,
            colour=self.colour,
            shape="dot" if self.shape == "points" else "line" if self.stroke == "solid" else self.stroke,
        )


PARTIAL_KEY: Final = LegendKey(label="rests on a part of its period", colour="var(--muted)", shape="ring")


def line_panel(
    name: str,
    title: str,
    lines: Sequence[Line],
    *,
    x: Axis,
    y: Axis,
    events: Sequence[DatedEvent] = (),
    is_half: bool = False,
) -> Panel:
    """Return a chart of lines as a wide and a narrow SVG; if `is_half`, as one for half of the page.

    `name` is the prefix of the ids in the SVG, so it must be unique on the page. Without a single value the
    panel is empty, and a section leaves it out.
    """
    if not any(point.y is not None for line in lines for point in line.points):
        return Panel(title=title)
    description = "; ".join(_in_words(line) for line in lines)

    def at(width_px: int, suffix: str) -> Markup:
        chart = line_chart(lines, x=x, y=y, events=events, width_px=width_px)
        return draw(chart, name=f"{name}{suffix}", title=title, description=description)

    plot = line_plot(f"{title}. {description}", lines, x=x, y=y, events=events)
    if is_half:
        return Panel(title=title, wide=at(PANEL_PX, ""), plot=plot)
    return Panel(title="", wide=at(WIDE_PX, "-wide"), narrow=at(NARROW_PX, "-narrow"), plot=plot)


def line_plot(
    label: str, lines: Sequence[Line], *, x: Axis, y: Axis, events: Sequence[DatedEvent] = ()
) -> Plot:
    """Return a chart of lines as a Plot, from which a page can draw it; `label` is for screen readers."""
    lines = [replace(line, points=_with_breaks(line.points)) for line in lines]
    is_cut = y.cuts_bands and bool(_cut_points(lines, y))
    is_time = any(isinstance(point.x, dt.date) for line in lines for point in line.points)
    return Plot(
        label=label,
        x_unit="time" if is_time else UNITS.get(x.label, "number"),
        y_unit=UNITS.get(y.label, "number"),
        x_title=x.title or ("Day (UTC)" if is_time else ""),
        y_title=y.title,
        is_x_log=x.is_log,
        is_y_log=y.is_log,
        y_domain=y.domain or ((0, _most(lines)) if is_cut else None),
        series=[series for line in lines for series in _series(line)],
        words=[
            (number(low), number(high), words)
            for low, high, words in hover_strips(lines, x, y, most=MAX_PLOTTED)
        ],
        marks=plot_marks(events),
    )


def _series(line: Line) -> Iterator[Series]:
    """Yield the Plot series of a line: whole periods, then dotted lines and rings for incomplete ones."""

    def made(form: Form, points: Sequence[Point], dashes: Sequence[int]) -> Series:
        numbers = [(number(point.x), point.y, point.low, point.high) for point in points]
        return Series(label=line.label, colour=line.colour, form=form, points=numbers, dashes=dashes)

    whole = [replace(p, y=None, low=None, high=None) if p.is_partial else p for p in line.points]
    yield made(line.shape, whole, () if line.stroke == "solid" else DASHES[line.stroke])
    if not any(point.is_partial for point in line.points):
        return
    if line.shape == "line":
        joined = []
        for before, point, after in zip(
            [None, *line.points], line.points, [*line.points[1:], None], strict=False
        ):
            is_near = any(each is not None and each.is_partial for each in (before, point, after))
            joined.append(Point(x=point.x, y=point.y if is_near else None))
        yield made("line", joined, DASHES["dotted"])
    yield made("rings", [point for point in line.points if point.is_partial], ())


def _in_words(line: Line) -> str:
    known = [point.y for point in line.points if point.y is not None]
    return (
        f"{line.label}: {plural(len(known), 'value')}, {min(known):.4g} to {max(known):.4g}"
        if known
        else line.label
    )


def line_chart(
    lines: Sequence[Line], *, x: Axis, y: Axis, events: Sequence[DatedEvent] = (), width_px: int
) -> Drawing:
    """Return the Altair chart of lines over numbers or UTC days. At least one point must have a value."""
    lines = [replace(line, points=_with_breaks(line.points)) for line in lines]
    x_axis = _x(lines, x, width_px)
    plot_px = width_px - _LEFT_PX - _RIGHT_PX
    if y.is_log and y.domain is None:
        low, high = _reach(lines)
        y = replace(y, domain=(low, high), ticks=log_ticks(low, high))
    cut = _cut_points(lines, y) if y.cuts_bands else []
    if cut:
        y = replace(y, domain=(0, _most(lines)))
    places = [point.x for line in lines for point in line.points if point.y is not None]
    first, last = (x.domain or (min(places), max(places)))[:2]
    layers: list[Any] = event_layers(events, x_axis, first, last, plot_px)
    layers += [_cut_layer(point, colour, x_axis) for point, colour in cut]
    for line in lines:
        layers += _line_layers(line, x_axis, y)
    strips = [strip for strip in hover_strips(lines, x, y) if strip[0] != strip[1]]
    if strips:
        layers.append(hover_layer(strips, x_axis, HEIGHT_PX))
    return alt.layer(
        *layers,
        width=plot_px,
        height=HEIGHT_PX,
        padding={"left": _LEFT_PX, "right": _RIGHT_PX, "top": _TOP_PX, "bottom": _BOTTOM_PX},
        autosize="none",
    )


def _with_breaks(points: Sequence[Point]) -> list[Point]:
    """Return the points of a line, with a gap where two days are more than three usual steps apart."""
    found: list[Point] = []
    steps = sorted(
        (later.x - sooner.x).days
        for sooner, later in itertools.pairwise(points)
        if isinstance(sooner.x, dt.date) and isinstance(later.x, dt.date)
    )
    usual = steps[len(steps) // 2] if steps else 0
    for point in points:
        before = found[-1].x if found else None
        if (
            isinstance(point.x, dt.date)
            and isinstance(before, dt.date)
            and len(steps) > 1
            and (point.x - before).days > _MAX_STEPS * usual
        ):
            found.append(Point(x=before + dt.timedelta(days=usual), y=None))
        found.append(point)
    return found


def hover_strips(
    lines: Sequence[Line], x: Axis, y: Axis, *, most: int = _MAX_STRIPS
) -> list[tuple[X, X, str]]:
    """Return a strip (from, to, words) for each x of the lines; a pointer in the strip is nearest to x.

    The words give x and the value of each line there. For lines drawn as steps, a strip reaches from one x to
    the next. There are about `most` strips at most; of more, every second, third and so on is left out.
    """
    said: dict[X, list[str]] = {}
    for line in lines:
        for point in line.points:
            if point.y is not None:
                said.setdefault(point.x, []).append(_words(line, point, y))
    places = sorted(said)
    if len(places) > most:
        places = places[:: math.ceil(len(places) / most)]
    are_steps = all(line.shape == "step" for line in lines)
    ends = [
        later if are_steps else _middle(sooner, later, is_log=x.is_log)
        for sooner, later in itertools.pairwise(places)
    ]
    return [
        (low, high, f"{_x_words(place, x)}: {', '.join(said[place])}")
        for place, low, high in zip(
            places, places if are_steps else [*places[:1], *ends], [*ends, *places[-1:]], strict=True
        )
    ]


def _words(line: Line, point: Point, y: Axis) -> str:
    write = WRITERS.get(y.label, decimal)
    interval = (
        "" if point.low is None or point.high is None else f" ({write(point.low)} to {write(point.high)})"
    )
    part = ", of a part of the period" if point.is_partial else ""
    return f"{line.label} {write(point.y)}{interval}{part}"


def _x_words(x: X, axis: Axis) -> str:
    return f"{x}" if isinstance(x, dt.date) else f"{axis.title} {WRITERS.get(axis.label, decimal)(x)}".strip()


def _middle(low: Any, high: Any, *, is_log: bool) -> Any:
    """Return the point between two x of an axis, geometric on a logarithmic one; between two days a time."""
    if isinstance(low, dt.date):
        from_at = dt.datetime(low.year, low.month, low.day, tzinfo=dt.UTC)
        return from_at + (high - low) / 2
    return math.sqrt(low * high) if is_log else (low + high) / 2


def _line_layers(line: Line, x: alt.X, y: Axis) -> Iterator[alt.Chart]:
    """Yield the Altair layers of one series: its band or error bars, its line, and its points."""
    whole = [replace(p, y=None, low=None, high=None) if p.is_partial else p for p in line.points]
    rows = [{"x": place(p.x), "y": p.y, "low": p.low, "high": p.high} for p in whole]
    shape: dict[str, Any] = {"interpolate": "step-after" if line.shape == "step" else "linear"}
    banded = [row for row in rows if row["low"] is not None and row["high"] is not None]
    chart = alt.Chart(ChartRows(values=rows))
    has_points = line.shape == "points" or (line.shape == "line" and len(rows) <= MAX_POINTED_DAYS)
    lonely = [row for row, is_alone in zip(rows, _alone(whole), strict=True) if is_alone]
    if banded and line.shape == "points":
        yield (
            alt.Chart(ChartRows(values=banded))
            .mark_rule(color=line.colour, opacity=0.6, strokeWidth=1.5)
            .encode(x=x, y=_y("low", y), y2=alt.Y2("high:Q"))
        )
    elif banded:
        yield (
            chart.mark_area(
                color=line.colour, opacity=0.16, clip=True, invalid="break-paths-filter-domains", **shape
            ).encode(x=x, y=_y("low", y), y2=alt.Y2("high:Q"))
        )
    if line.shape != "points":
        look = shape | {"strokeWidth": 2, "strokeDash": DASHES[line.stroke]}
        yield chart.mark_line(color=line.colour, clip=True, **look).encode(x=x, y=_y("y", y))
    if has_points and line.stroke == "solid":
        yield chart.mark_point(color=line.colour, fill=line.colour, size=26, opacity=1).encode(
            x=x, y=_y("y", y)
        )
    elif lonely and line.shape == "line":
        dots = alt.Chart(ChartRows(values=lonely))
        yield dots.mark_point(color=line.colour, fill=line.colour, size=26, opacity=1).encode(
            x=x, y=_y("y", y)
        )
    yield from _partial_layers(line, x, y)


def _alone(points: Sequence[Point]) -> list[bool]:
    """Return a bool per point of a line: whether it has a value and its neighbours have none.

    No line leads through such a point, so it needs a mark of its own.
    """
    has = [False, *(point.y is not None for point in points), False]
    return [
        own and not before and not after for before, own, after in zip(has, has[1:], has[2:], strict=False)
    ]


def _partial_layers(line: Line, x: alt.X, y: Axis) -> Iterator[alt.Chart]:
    """Yield the Altair layers of a line's points that rest on only a part of their day or epoch.

    They are open circles with their intervals, joined by dashed lines.
    """
    partial = [
        {"x": place(point.x), "y": point.y, "low": point.low, "high": point.high}
        for point in line.points
        if point.is_partial and point.y is not None
    ]
    if not partial:
        return
    pairs = [
        [{"x": place(point.x), "y": point.y} for point in pair]
        for pair in itertools.pairwise(line.points)
        if line.shape == "line"
        and any(point.is_partial for point in pair)
        and None not in (pair[0].y, pair[1].y)
    ]
    for pair in pairs:
        dashed = alt.Chart(ChartRows(values=pair))
        yield dashed.mark_line(
            color=line.colour, strokeWidth=1.5, strokeDash=DASHES["dotted"], clip=True
        ).encode(x=x, y=_y("y", y))
    banded = [row for row in partial if row["low"] is not None and row["high"] is not None]
    if banded:
        bars = alt.Chart(ChartRows(values=banded))
        yield bars.mark_rule(color=line.colour, opacity=0.6, clip=True).encode(
            x=x, y=_y("low", y), y2=alt.Y2("high:Q")
        )
    rings = alt.Chart(ChartRows(values=partial))
    yield rings.mark_point(color=line.colour, fill=PAPER, size=34, opacity=1, strokeWidth=1.5).encode(
        x=x, y=_y("y", y)
    )


def _most(lines: Sequence[Line]) -> float:
    """Return twice the largest value of all lines: the upper end of an axis that cuts off wide bands."""
    return 2 * max(point.y or 0 for line in lines for point in line.points)


def _cut_points(lines: Sequence[Line], y: Axis) -> list[tuple[Point, str]]:
    """Return (point, colour of its line) for each chart point whose interval ends beyond the y axis."""
    most = _most(lines)
    return [
        (point, line.colour)
        for line in lines
        for point in (line.points[:-1] if line.shape == "step" else line.points)
        if most and not y.is_log and (point.high or 0) > most
    ]


def _cut_layer(point: Point, colour: str, x: alt.X) -> alt.Chart:
    """Return the layer of a small triangle at the chart's upper edge, where a point's interval is cut off."""
    base = alt.Chart(ChartRows(values=[{"x": place(point.x), "label": CUT_MARK}]))
    mark: alt.Chart = base.mark_text(align="left", dx=3, dy=8, color=colour).encode(
        x=x, y=alt.YValue(0), text=alt.Text("label:N")
    )
    return mark


def _x(lines: Sequence[Line], axis: Axis, width_px: int) -> alt.X:
    places = [point.x for line in lines for point in line.points if point.y is not None]
    days = [at for at in places if isinstance(at, dt.date)]
    look: dict[str, Any] = {"title": axis.title or None, "grid": False}
    if days:
        first, last = min(days), max(days)
        return day_axis("x", first, last, width_px, axis.title or "Day (UTC)")
    # On a logarithm's uneven places, to leave out every other label loses some that have room.
    overlap = {"labelOverlap": "greedy" if axis.is_log else True, "labelSeparation": _PX_BETWEEN_LABELS}
    look |= {"labelExpr": axis.label} | overlap
    look |= {"values": list(axis.ticks)} if axis.ticks else {"tickCount": max(3, width_px // _PX_PER_TICK)}
    return alt.X("x:Q", scale=_scale(axis), axis=alt.Axis(**look))


def _reach(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the ends of a chart's logarithmic axis: a little beyond all values and intervals."""
    values = [value for line in lines for p in line.points for value in (p.low, p.y, p.high) if value]
    return 0.93 * min(values), 1.07 * max(values)


def _y(column: str, axis: Axis) -> alt.Y:
    """Return the Altair y axis of a chart for a column of its data.

    Its title stands above the axis, where it takes no width.
    """
    look: dict[str, Any] = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end"}
    look |= {"titleX": 4 - _LEFT_PX, "titleY": -16, "labelExpr": axis.label, "domain": False}
    look |= {"values": list(axis.ticks)} if axis.ticks else {"tickCount": 5}
    return alt.Y(f"{column}:Q", scale=_scale(axis), axis=alt.Axis(title=axis.title, **look))


def _scale(axis: Axis) -> alt.Scale:
    look: dict[str, Any] = {"type": "log", "zero": False} if axis.is_log else {"zero": axis.domain is None}
    if axis.domain:
        look |= {"domain": list(axis.domain), "nice": False}
    return alt.Scale(**look)


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers from `low` to `high` as ticks of a logarithmic axis.

    A short axis has denser ones.
    """
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
            return ticks
    return even_ticks(low, high)


def even_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers at equal distances (1, 2 or 5 times a power of ten) from `low` to `high`.

    There are three to nine of them.
    """
    power = 10.0 ** math.floor(math.log10((high - low) / _MIN_TICKS))
    step = next(step * power for step in (5, 2, 1) if (high - low) / (step * power) >= _MIN_TICKS - 1)
    first = math.ceil(low / step)
    return tuple(number * step for number in range(first, math.floor(high / step) + 1))


def whole_ticks(first: int, last: float) -> tuple[float, ...]:
    """Return at most eleven whole numbers from `first` to `last`, evenly spaced, as the ticks of an axis."""
    return tuple(range(first, int(last) + 1, max(1, math.ceil((last - first) / 10))))


def duration_ticks(low_s: float, high_s: float) -> tuple[float, ...]:
    """Return the ticks in seconds of a logarithmic axis of times from `low_s` to `high_s`, as 1, 10, 60.

    A short axis gets finer ticks.
    """
    for ticks in (DURATION_TICKS, FINE_DURATION_TICKS):
        found = tuple(tick for tick in ticks if low_s <= tick <= high_s)
        if len(found) >= _MIN_TICKS:
            return found
    return log_ticks(low_s, high_s)


_DAY_HEIGHT_PX: Final = 90


def day_chart(
    rows: Sequence[tuple[dt.date, float, float, float]], *, largest: float, colour: str, width_px: int
) -> Drawing:
    """Return a small Altair chart of a pool's ratio by day, with its 95 % band.

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
    base = alt.Chart(ChartRows(values=data)).encode(x=x)
    points = {"size": 22, "filled": True, "fill": colour} if len(data) <= MAX_POINTED_DAYS else False
    left = 42
    return alt.layer(
        base.mark_area(color=colour, opacity=0.22).encode(y=y, y2=alt.Y2("high:Q")),
        base.mark_line(color=colour, strokeWidth=2, point=points).encode(y=alt.Y("ratio:Q")),
        width=width_px - left - 12,
        height=_DAY_HEIGHT_PX,
        padding={"left": left, "right": 12, "top": 6, "bottom": 22},
        autosize="none",
    )
