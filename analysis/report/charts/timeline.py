"""Draws a chart of time spans: one row for each stream of a node, and one bar for each span."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import altair as alt

from analysis.report.charts.svg import (
    ROW_HEIGHT_PX,
    ChartRows,
    Drawing,
    day_format,
    label_width,
    row_labels,
    tick_count,
    timestamp,
)

_SECONDS_SHOWN_BELOW: Final = dt.timedelta(minutes=10)
_HOURS_SHOWN_BELOW: Final = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Describes one bar of a timeline: the row in which it lies, and the UTC times of its start and end."""

    row: str
    label: str
    from_at: dt.datetime
    to_at: dt.datetime
    colour: str


def timeline_chart(
    spans: Sequence[Span], *, from_at: dt.datetime, to_at: dt.datetime, width_px: int
) -> Drawing:
    """Return an Altair chart of time spans as bars, one line per row. Even the shortest bar can be seen."""
    label_px = label_width(width_px)
    order = list(dict.fromkeys(span.row for span in spans))
    rows = [
        {**asdict(span), "from_at": timestamp(span.from_at), "to_at": timestamp(span.to_at)} for span in spans
    ]
    base = alt.Chart(ChartRows(values=rows)).encode(y=alt.Y("row:N", sort=order, axis=None))
    x = alt.X(
        "from_at:T",
        scale=alt.Scale(type="utc", domain=[timestamp(from_at), timestamp(to_at)], nice=False),
        axis=alt.Axis(
            title="Time (UTC)",
            tickCount=tick_count(width_px),
            labelExpr=f"utcFormat(datum.value, '{_time_format(to_at - from_at)}')",
            grid=False,
        ),
    )
    bars = base.mark_bar(height=10, strokeWidth=1.5).encode(
        x=x,
        x2=alt.X2("to_at:T"),
        fill=alt.Fill("colour:N", scale=None, legend=None),
        stroke=alt.Stroke("colour:N", scale=None, legend=None),
    )
    return alt.layer(
        bars,
        row_labels(base, label_px),
        width=width_px - label_px - 30,
        height=len(order) * ROW_HEIGHT_PX,
        padding={"left": label_px, "right": 30, "top": 4, "bottom": 44},
        autosize="none",
    )


def _time_format(length: dt.timedelta) -> str:
    """Return the strftime format of the times on an axis of the given length: seconds, minutes or days."""
    if length < _SECONDS_SHOWN_BELOW:
        return "%H:%M:%S"
    return "%H:%M" if length < _HOURS_SHOWN_BELOW else day_format(length)
