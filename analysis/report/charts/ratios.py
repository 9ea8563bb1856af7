"""Draws charts with one row per pool or metric: a dot for the value, and a line for the 95 % interval."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import altair as alt
from markupsafe import Markup

from analysis.report.charts.lines import WRITERS
from analysis.report.charts.svg import (
    HOVER_MARK,
    INK,
    MUTED,
    NARROW_PX,
    PERCENT_LABEL,
    ROW_HEIGHT_PX,
    WIDE_PX,
    ChartRows,
    Drawing,
    draw,
    label_width,
    row_labels,
    tick_count,
)
from analysis.report.model import Panel
from analysis.report.text import decimal

Mark = Literal["dot", "ring", "diamond"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow:
    """Holds one mark of a chart of ratios: a value, its 95 % interval, its labels and its CSS colour.

    Marks with the same `row` stand on one line, each with its own shape (`mark`). Without an interval only
    the mark is drawn.
    """

    row: str
    label: str
    value: str
    ratio: float
    low: float | None
    high: float | None
    colour: str
    mark: Mark = "dot"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAxis:
    """Describes the axis of a chart of ratios, in percent by default. A dotted line marks `reference`.

    `label` is the Vega expression that writes a number.
    """

    label: str = PERCENT_LABEL
    title: str = ""
    largest: float | None = None
    smallest: float = 0.0
    limit: float | None = 1.0  # no value can be larger
    reference: float | None = None
    is_log: bool = False


SHARES: Final = RatioAxis(title="Part of blocks")
TRANSACTIONS: Final = RatioAxis(title="Part of transactions")


def ratio_panel(name: str, title: str, rows: Sequence[RatioRow], axis: RatioAxis = SHARES) -> Panel:
    """Return a chart of ratios, one row per pool or metric, as an SVG for wide and one for narrow screens.

    `name` is the prefix of the ids in the SVG, so it must be unique on the page. Without a row the panel is
    empty, and a section leaves it out.
    """
    if not rows:
        return Panel(title="")
    return Panel(
        title="",
        wide=ratio_drawing(f"{name}-wide", title, rows, width_px=WIDE_PX, axis=axis),
        narrow=ratio_drawing(f"{name}-narrow", title, rows, width_px=NARROW_PX, axis=axis),
    )


def ratio_drawing(
    name: str, title: str, rows: Sequence[RatioRow], *, width_px: int, axis: RatioAxis = SHARES
) -> Markup:
    """Return a chart of ratios as one SVG of the given width, with its values in words for screen readers."""
    chart = ratio_chart(rows, width_px=width_px, axis=axis)
    description = "; ".join(f"{row.label} {row.value}" for row in rows)
    return draw(chart, name=name, title=title, description=description)


def ratio_chart(rows: Sequence[RatioRow], *, width_px: int, axis: RatioAxis) -> Drawing:
    """Return the Altair chart: ratios as dots, their 95 % intervals as lines, labels and values as text."""
    label_px, value_px = label_width(width_px), 66
    order = list(dict.fromkeys(row.row for row in rows))
    marks = list(dict.fromkeys(row.mark for row in rows))
    scale = alt.Scale(domain=_domain(rows, axis), nice=False, type="log" if axis.is_log else "linear")
    look: dict[str, Any] = {
        "labelExpr": axis.label,
        "tickCount": tick_count(width_px),
        "domain": False,
        "labelOverlap": True,
        "labelFlush": False,
    }
    ruler = alt.Axis(title=axis.title or None, **look)
    x = alt.X("low:Q", scale=scale, axis=ruler)
    base = alt.Chart(_data(rows, axis)).encode(y=alt.Y("row:N", sort=order, axis=None))
    marked = base.encode(
        yOffset=alt.YOffset("mark:N", sort=marks), color=alt.Color("colour:N", scale=None, legend=None)
    )
    layers: list[alt.Chart] = []
    if axis.reference is not None:
        line = alt.Chart(ChartRows(values=[{"at": axis.reference}]))
        layers.append(
            line.mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x=alt.X("at:Q", scale=scale, axis=ruler))
        )
    layers += [
        marked.mark_rule(strokeWidth=2, opacity=0.7).encode(x=x, x2=alt.X2("high:Q")),
        marked.mark_point(size=64, strokeWidth=2, opacity=1).encode(
            x=alt.X("ratio:Q"),
            fill=alt.Fill("fill:N", scale=None, legend=None),
            shape=alt.Shape("shape:N", scale=None, legend=None),
        ),
        marked.mark_text(align="right").encode(
            x=alt.XValue(width_px - label_px - 2), text=alt.Text("value:N"), color=alt.ColorValue(INK)
        ),
        row_labels(base, label_px),
        _row_strips(base, width_px - label_px - value_px),
    ]
    return alt.layer(
        *layers,
        width=width_px - label_px - value_px,
        height=len(order) * (ROW_HEIGHT_PX + (len(marks) - 1) * 10),
        padding={"left": label_px, "right": value_px, "top": 4, "bottom": 44 if axis.title else 24},
        autosize="none",
    )


def _row_strips(base: alt.Chart, plot_px: int) -> alt.Chart:
    """Return an Altair layer of invisible strips, one per row, that show the row's values to a pointer."""
    once = base.transform_aggregate(words="min(words)", groupby=["row"])
    strips: alt.Chart = once.mark_rect(fill=INK, opacity=0).encode(
        x=alt.XValue(0), x2=alt.X2Value(plot_px), description=alt.Description("words:N")
    )
    return strips


def _words(rows: Sequence[RatioRow], axis: RatioAxis) -> str:
    """Return the text for a pointer: the label of a row, and the value of each mark with its interval."""
    write = WRITERS.get(axis.label, decimal)
    said = [
        row.value
        if row.low is None or row.high is None
        else f"{row.value} ({write(row.low)} to {write(row.high)})"
        for row in rows
    ]
    return f"{HOVER_MARK}{rows[0].label}: {'; '.join(said)}"


def _domain(rows: Sequence[RatioRow], axis: RatioAxis) -> list[float]:
    """Return the two ends of the axis of ratios; the upper one is `largest`, or a little above all values.

    It is at most the axis's `limit`.
    """
    highest = 1.08 * max(row.high or row.ratio for row in rows)
    end = axis.largest or (highest if axis.limit is None else min(axis.limit, highest)) or 1.0
    if not axis.is_log:
        return [axis.smallest, end]
    lowest = min(value for row in rows for value in (row.low, row.ratio) if value)
    return [0.92 * lowest, max(end, 1.08 * (axis.reference or 0))]


def _data(rows: Sequence[RatioRow], axis: RatioAxis) -> ChartRows:
    marks: dict[str, list[RatioRow]] = {}
    for row in rows:
        marks.setdefault(row.row, []).append(row)
    said = {name: _words(found, axis) for name, found in marks.items()}
    return ChartRows(values=[_values(asdict(row)) | {"words": said[row.row]} for row in rows])


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of one mark of a chart as a dict for JSON, with its shape and its fill.

    Rings and diamonds are filled with the colour of the paper.
    """
    fill = row["colour"] if row["mark"] == "dot" else "var(--paper)"
    return row | {"fill": fill, "shape": "diamond" if row["mark"] == "diamond" else "circle"}
