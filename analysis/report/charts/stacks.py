"""Draws the shares of pools as areas stacked on each other, one step for each day, week or month."""

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import altair as alt
from markupsafe import Markup

from analysis.report.charts.marks import DatedEvent, day_axis, event_layers, hover_layer, place, plot_marks
from analysis.report.charts.svg import (
    INK,
    NARROW_PX,
    PAPER,
    PERCENT_LABEL,
    UNKNOWN_FILL,
    WIDE_PX,
    ChartRows,
    Drawing,
    draw,
)
from analysis.report.model import LegendKey, Panel
from analysis.report.plot import Plot, Series, number
from analysis.report.text import plural

HEIGHT_PX: Final = 300
NAMES_PX: Final = 118
_LEFT_PX: Final = 46
_RIGHT_PX: Final = 14
_TOP_PX: Final = 26
_BOTTOM_PX: Final = 44
_LEAST_NAMED_RATIO: Final = 0.045  # a thinner layer has no room for its name


PARTIAL_KEY: Final = LegendKey(label="only a part of the period", colour="var(--ink)", shape="frame")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Describes one layer of a stacked chart: a pool, all other pools, or the unknown blocks."""

    key: str
    label: str
    colour: str
    is_hatched: bool = False

    @property
    def legend(self) -> LegendKey:
        """Return the key of the legend for this layer: its label, its colour, and whether it is hatched."""
        return LegendKey(label=self.label, colour=self.colour, shape="hatch" if self.is_hatched else "bar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Holds the shares of one period: a ratio per layer key, from `from_day` to the day before `to_day`.

    `words` says the same in text. A period of which the data has only a part is drawn in a dashed frame.
    """

    from_day: dt.date
    to_day: dt.date
    ratios: dict[str, float]
    words: str
    is_complete: bool = True


class Slab(NamedTuple):
    """Holds the lower and upper edge of one layer in one period, each as a ratio (0 to 1) of all blocks."""

    key: str
    low: float
    high: float


def slabs(layers: Sequence[Layer], period: Period) -> list[Slab]:
    """Return the edges of each layer when the shares of one period are stacked; the first lies at the top."""
    found = []
    top = 1.0
    for layer in layers:
        low = max(0.0, top - period.ratios.get(layer.key, 0.0))
        found.append(Slab(layer.key, low, top))
        top = low
    return found


def stack_panel(
    name: str,
    title: str,
    layers: Sequence[Layer],
    periods: Sequence[Period],
    *,
    events: Sequence[DatedEvent] = (),
) -> Panel:
    """Return the chart of stacked shares as a wide SVG, with names beside the layers, and a narrow one.

    `name` is the prefix of the ids in the SVG, so it must be unique on the page.
    """
    last = periods[-1]
    description = f"{plural(len(periods), 'period')}; the last: {last.words}"

    def at(width_px: int, suffix: str) -> Markup:
        chart = stack_chart(layers, periods, events=events, width_px=width_px)
        return draw(chart, name=f"{name}-{suffix}", title=title, description=description)

    return Panel(
        title="",
        wide=at(WIDE_PX, "wide"),
        narrow=at(NARROW_PX, "narrow"),
        plot=stack_plot(f"{title}. {description}", layers, periods, events),
    )


def stack_plot(
    label: str, layers: Sequence[Layer], periods: Sequence[Period], events: Sequence[DatedEvent] = ()
) -> Plot:
    """Return a chart of stacked shares as a Plot, from which a page can draw it."""

    def points(layer: Layer) -> list[tuple[float, float | None, float | None, float | None]]:
        return [
            (number(at), slab and slab.high, slab and slab.low, slab and slab.high)
            for at, slab in _steps(layers, periods, layer.key)
        ]

    return Plot(
        label=label,
        x_unit="time",
        y_unit="percent",
        x_title="Day (UTC)",
        y_title="Part of blocks",
        y_domain=(0, 1),
        series=[
            Series(
                label=layer.label,
                colour=layer.colour,
                form="area",
                points=points(layer),
                is_hatched=layer.is_hatched,
            )
            for layer in layers
        ],
        words=[(number(each.from_day), number(each.to_day), each.words) for each in periods],
        marks=plot_marks(events),
        frames=[(number(each.from_day), number(each.to_day)) for each in periods if not each.is_complete],
    )


def stack_chart(
    layers: Sequence[Layer], periods: Sequence[Period], *, events: Sequence[DatedEvent] = (), width_px: int
) -> Drawing:
    """Return the Altair chart of stacked shares.

    It is empty between periods that are not neighbours in time.
    """
    is_wide = width_px > NARROW_PX
    right_px = NAMES_PX if is_wide else _RIGHT_PX
    plot_px = width_px - _LEFT_PX - right_px
    first, last = periods[0].from_day, periods[-1].to_day
    x = day_axis("x", first, last, plot_px)
    drawn = [_area(layer, _edges(layers, periods, layer.key), x) for layer in layers]
    frames = [period for period in periods if not period.is_complete]
    drawn += [_frame(period, x) for period in frames]
    drawn += event_layers(events, x, first, last, plot_px)
    if is_wide:
        drawn.append(_names(layers, periods[-1], plot_px))
        spans = [(period.from_day, period.to_day, period.words) for period in periods]
        drawn.append(hover_layer(spans, x, HEIGHT_PX))
    return alt.layer(
        *drawn,
        width=plot_px,
        height=HEIGHT_PX,
        padding={"left": _LEFT_PX, "right": right_px, "top": _TOP_PX, "bottom": _BOTTOM_PX},
        autosize="none",
    )


def _steps(layers: Sequence[Layer], periods: Sequence[Period], key: str) -> list[tuple[dt.date, Slab | None]]:
    """Return the steps of one layer of a stacked chart as (x, edges from there on); None is a break."""
    steps: list[tuple[dt.date, Slab | None]] = []
    for period, following in itertools.zip_longest(periods, periods[1:]):
        slab = next(slab for slab in slabs(layers, period) if slab.key == key)
        steps.append((period.from_day, slab))
        if following is None or following.from_day != period.to_day:
            end = period.to_day
            steps.append((end, slab))
            steps.append((dt.datetime(end.year, end.month, end.day, 1, tzinfo=dt.UTC), None))
    return steps[:-1]


def _edges(layers: Sequence[Layer], periods: Sequence[Period], key: str) -> list[dict[str, Any]]:
    """Return the steps of one layer of a stacked chart as dicts (x, low, high).

    There is one per period; a missing period is a break.
    """
    return [
        {"x": place(at), "low": slab and slab.low, "high": slab and slab.high}
        for at, slab in _steps(layers, periods, key)
    ]


def _area(layer: Layer, rows: Sequence[dict[str, Any]], x: alt.X) -> alt.Chart:
    """Return the Altair layer that fills one layer of a stacked chart between the edges of `_edges`."""
    fill = UNKNOWN_FILL if layer.is_hatched else layer.colour
    scale = alt.Scale(domain=[0, 1], nice=False)
    look: dict[str, Any] = {
        "titleAngle": 0,
        "titleAlign": "left",
        "titleAnchor": "end",
        "titleX": 4 - _LEFT_PX,
    }
    axis = alt.Axis(
        title="Part of blocks", titleY=-12, labelExpr=PERCENT_LABEL, tickCount=5, domain=False, **look
    )
    mark = alt.Chart(ChartRows(values=list(rows))).mark_area(
        fill=fill, stroke=PAPER, strokeWidth=0.75, interpolate="step-after"
    )
    chart: alt.Chart = mark.encode(x=x, y=alt.Y("high:Q", scale=scale, axis=axis), y2=alt.Y2("low:Q"))
    return chart


def _frame(period: Period, x: alt.X) -> alt.Chart:
    """Return the Altair layer of a dashed frame over a period of which the data has only a part."""
    rows = [{"x": f"{period.from_day}", "to": f"{period.to_day}"}]
    mark = alt.Chart(ChartRows(values=rows)).mark_rect(
        fill=PAPER, fillOpacity=0.45, stroke=INK, strokeDash=[3, 3]
    )
    frame: alt.Chart = mark.encode(x=x, x2=alt.X2("to:T"), y=alt.YValue(0), y2=alt.Y2Value(HEIGHT_PX))
    return frame


def _names(layers: Sequence[Layer], period: Period, plot_px: int) -> alt.Chart:
    """Return the Altair layer with the name of each layer to the right of the last period.

    A layer that is too thin gets no name.
    """
    colours = {layer.key: layer for layer in layers}
    rows = [
        {"y": (slab.low + slab.high) / 2, "label": colours[slab.key].label}
        for slab in slabs(layers, period)
        if slab.high - slab.low >= _LEAST_NAMED_RATIO
    ]
    mark = alt.Chart(ChartRows(values=rows)).mark_text(align="left", limit=NAMES_PX - 10, color=INK)
    names: alt.Chart = mark.encode(
        x=alt.XValue(plot_px + 8),
        y=alt.Y("y:Q", scale=alt.Scale(domain=[0, 1], nice=False)),
        text=alt.Text("label:N"),
    )
    return names
