"""The charts of the report, as Altair specifications over rows that are ready to be shown.

Every chart is one plain view of fixed size: the page lays out several panels beside or below each
other. Labels of rows are drawn as text with room of a fixed width, so no font changes the layout.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import altair as alt

from analysis.report.charts.svg import INK, MUTED

Mark = Literal["dot", "ring", "diamond"]
Drawing = alt.LayerChart | alt.FacetChart

ROW_HEIGHT_PX: Final = 26
PERCENT_LABEL: Final = "format(100 * datum.value, '.3~g') + '\u00a0%'"
MAX_POINTED_DAYS: Final = 31
_CURVE_HEIGHT_PX: Final = 260
_DAY_HEIGHT_PX: Final = 90
_PX_PER_TICK: Final = 120
_WIDE_FROM_PX: Final = 600
_SECONDS_SHOWN_BELOW: Final = dt.timedelta(minutes=10)
_HOURS_SHOWN_BELOW: Final = dt.timedelta(days=2)
_YEARS_SHOWN_FROM: Final = dt.timedelta(days=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow:
    """One row of a ratio chart: a ratio in 0..1 with its 95 % interval, ready labels and a CSS colour.

    Rows with the same `row` share a line and differ in `mark`. Without an interval only the dot is drawn.
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
class Span:
    """One bar of a timeline, from and to a UTC time, on the line `row`."""

    row: str
    label: str
    from_at: dt.datetime
    to_at: dt.datetime
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAxis:
    """What a chart of dots measures: parts of a whole unless said otherwise. `reference` is a line to see."""

    label: str = PERCENT_LABEL
    title: str = ""
    largest: float | None = None
    smallest: float = 0.0
    limit: float | None = 1.0  # no value can be larger
    reference: float | None = None
    is_log: bool = False


def ratios(rows: Sequence[RatioRow], *, width_px: int, axis: RatioAxis) -> Drawing:
    """Draw ratios as dots with their 95 % intervals as lines, one row each."""
    label_px, value_px = _label_width(width_px), 66
    order = list(dict.fromkeys(row.row for row in rows))
    marks = list(dict.fromkeys(row.mark for row in rows))
    scale = alt.Scale(domain=_domain(rows, axis), nice=False, type="log" if axis.is_log else "linear")
    look: dict[str, Any] = {
        "labelExpr": axis.label,
        "tickCount": _ticks(width_px),
        "domain": False,
        "labelOverlap": True,
        "labelFlush": False,
    }
    ruler = alt.Axis(title=axis.title or None, **look)
    x = alt.X("low:Q", scale=scale, axis=ruler)
    base = alt.Chart(_data(rows)).encode(y=alt.Y("row:N", sort=order, axis=None))
    marked = base.encode(
        yOffset=alt.YOffset("mark:N", sort=marks), color=alt.Color("colour:N", scale=None, legend=None)
    )
    layers: list[alt.Chart] = []
    if axis.reference is not None:
        line = alt.Chart(alt.InlineData(values=[{"at": axis.reference}]))
        layers.append(
            line.mark_rule(color=MUTED, strokeDash=[2, 3]).encode(x=alt.X("at:Q", scale=scale, axis=ruler))
        )
    layers += [
        marked.mark_rule(strokeWidth=2, opacity=0.7).encode(x=x, x2="high:Q"),
        marked.mark_point(size=64, strokeWidth=2, opacity=1).encode(
            x="ratio:Q",
            fill=alt.Fill("fill:N", scale=None, legend=None),
            shape=alt.Shape("shape:N", scale=None, legend=None),
        ),
        marked.mark_text(align="right").encode(
            x=alt.value(width_px - label_px - 2), text="value:N", color=alt.value(INK)
        ),
        _row_labels(base, label_px),
    ]
    return alt.layer(*layers).properties(
        width=width_px - label_px - value_px,
        height=len(order) * (ROW_HEIGHT_PX + (len(marks) - 1) * 10),
        padding={"left": label_px, "right": value_px, "top": 4, "bottom": 44 if axis.title else 24},
        autosize="none",
    )


def _domain(rows: Sequence[RatioRow], axis: RatioAxis) -> list[float]:
    """Give the ends of the axis: from its smallest to a little beyond the largest value."""
    highest = 1.08 * max(row.high or row.ratio for row in rows)
    end = axis.largest or (highest if axis.limit is None else min(axis.limit, highest)) or 1.0
    if not axis.is_log:
        return [axis.smallest, end]
    lowest = min(value for row in rows for value in (row.low, row.ratio) if value)
    return [0.92 * lowest, max(end, 1.08 * (axis.reference or 0))]


def distribution(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, end_s: float, width_px: int
) -> Drawing:
    """Draw empirical distributions of intervals in seconds as steps, one (colour, points) each.

    Points are (seconds, ratio of intervals that are not longer), at least one; what exceeds `end_s` is cut.
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


def days(
    rows: Sequence[tuple[dt.date, float, float, float]], *, largest: float, colour: str, width_px: int
) -> Drawing:
    """Draw one pool's ratio per UTC day as a line in its 95 % band; rows are (day, ratio, low, high)."""
    data = [{"day": f"{day:%Y-%m-%d}", "ratio": r, "low": lo, "high": hi} for day, r, lo, hi in rows]
    x = alt.X(
        "day:T",
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(
            title=None,
            values=[f"{day:%Y-%m-%d}" for day in (rows[0][0], rows[-1][0])],
            labelExpr=f"utcFormat(datum.value, '{_day_format(rows[-1][0] - rows[0][0])}')",
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


def timeline(spans: Sequence[Span], *, from_at: dt.datetime, to_at: dt.datetime, width_px: int) -> Drawing:
    """Draw spans of time as bars, one line per row; the shortest is still a visible stroke."""
    label_px = _label_width(width_px)
    order = list(dict.fromkeys(span.row for span in spans))
    base = alt.Chart(_data(spans)).encode(y=alt.Y("row:N", sort=order, axis=None))
    x = alt.X(
        "from_at:T",
        scale=alt.Scale(type="utc", domain=[_stamp(from_at), _stamp(to_at)], nice=False),
        axis=alt.Axis(
            title="Time (UTC)",
            tickCount=_ticks(width_px),
            labelExpr=f"utcFormat(datum.value, '{_time_format(to_at - from_at)}')",
            grid=False,
        ),
    )
    bars = base.mark_bar(height=10, strokeWidth=1.5).encode(
        x=x,
        x2="to_at:T",
        fill=alt.Fill("colour:N", scale=None, legend=None),
        stroke=alt.Stroke("colour:N", scale=None, legend=None),
    )
    return alt.layer(bars, _row_labels(base, label_px)).properties(
        width=width_px - label_px - 30,
        height=len(order) * ROW_HEIGHT_PX,
        padding={"left": label_px, "right": 30, "top": 4, "bottom": 44},
        autosize="none",
    )


def _row_labels(base: alt.Chart, label_px: int) -> alt.Chart:
    """Write each row's label left of the plot, cut where it is longer than its room."""
    once = base.transform_aggregate(label="min(label)", groupby=["row"])
    text: alt.Chart = once.mark_text(align="left", limit=label_px - 10).encode(
        x=alt.value(-label_px), text="label:N", color=alt.value(INK)
    )
    return text


def _data(rows: Sequence[RatioRow] | Sequence[Span]) -> alt.InlineData:
    return alt.InlineData(values=[_values(asdict(row)) for row in rows])


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """Give one row as JSON can hold it; a ring and a diamond are filled with the paper's colour."""
    values = {key: _stamp(value) if isinstance(value, dt.datetime) else value for key, value in row.items()}
    if "mark" in row:
        values["fill"] = row["colour"] if row["mark"] == "dot" else "var(--paper)"
        values["shape"] = "diamond" if row["mark"] == "diamond" else "circle"
    return values


def _stamp(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _label_width(width_px: int) -> int:
    """Give the room for the labels of rows."""
    return 150 if width_px >= _WIDE_FROM_PX else 108


def _ticks(width_px: int) -> int:
    return max(3, width_px // _PX_PER_TICK)


def _day_format(length: dt.timedelta) -> str:
    return "%d %b" if length < _YEARS_SHOWN_FROM else "%b %Y"


def _time_format(length: dt.timedelta) -> str:
    if length < _SECONDS_SHOWN_BELOW:
        return "%H:%M:%S"
    return "%H:%M" if length < _HOURS_SHOWN_BELOW else _day_format(length)
