"""Draws what charts share: an axis of days, marked moments, and strips that show values on hover."""

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from analysis.report.charts.svg import HOVER_MARK, INK, MUTED, ChartRows, day_format
from analysis.report.plot import Mark, number

LETTER_PX: Final = 13  # letters closer than this would touch
_PX_PER_TICK: Final = 110
_MONTHS_NAMED_FROM_DAYS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedEvent:
    """Describes a moment or a span that a chart marks: a letter above the plot, and a text in `words`.

    With `to_x` the span is shaded; without it the moment has an upright line.
    """

    x: float | dt.date
    label: str
    words: str = ""
    to_x: float | dt.date | None = None


def place(x: float | dt.date) -> float | str:
    """Return a value of x as Vega reads it: a day or a time as ISO 8601 text in UTC, a number unchanged."""
    if isinstance(x, dt.datetime):
        return x.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{x:%Y-%m-%d}" if isinstance(x, dt.date) else x


def day_axis(column: str, first: dt.date, last: dt.date, plot_px: int, title: str = "Day (UTC)") -> alt.X:
    """Return an Altair x axis of UTC days from `first` to `last` for a plot of `plot_px` pixels."""
    look: dict[str, Any] = {"title": title, "grid": False, "labelOverlap": True}
    look |= {"labelExpr": f"utcFormat(datum.value, '{day_format(last - first)}')"}
    most = max(2, plot_px // _PX_PER_TICK)
    days = (last - first).days
    if days < _MONTHS_NAMED_FROM_DAYS:  # an axis that chooses its ticks would name one day twice
        step = math.ceil(max(days, 1) / most)
        look |= {"values": [f"{first + dt.timedelta(days=day)}" for day in range(0, days + 1, step)]}
    else:
        look |= {"tickCount": most}
    scale = alt.Scale(type="utc", domain=[f"{first}", f"{last}"], nice=False)
    return alt.X(f"{column}:T", scale=scale, axis=alt.Axis(**look))


def event_layers(
    events: Sequence[DatedEvent], x: alt.X, first: float | dt.date, last: float | dt.date, plot_px: int
) -> list[Any]:
    """Return the Altair layers that mark the events between `first` and `last` in a chart.

    Events are moments or spans with a label. Equal labels are written once. Different labels of one place
    stand beside each other as one text. Of labels that would touch, only one is written.
    """
    inside = sorted(
        (event for event in events if number(first) <= number(event.x) <= number(last)), key=_order
    )
    spans = [event for event in inside if event.to_x is not None]
    layers: list[Any] = []
    if spans:
        rows = [
            {
                "x": place(event.x),
                "to": place(min(event.to_x or last, last, key=number)),
                "words": _hover(event),
            }
            for event in spans
        ]
        mark = alt.Chart(ChartRows(values=rows)).mark_rect(fill=MUTED, opacity=0.25, stroke=MUTED)
        layers.append(
            mark.encode(
                x=x,
                x2=alt.X2(f"to:{'T' if isinstance(first, dt.date) else 'Q'}"),
                description=alt.Description("words:N"),
            )
        )
    moments = [event for event in inside if event.to_x is None]
    if moments:
        rows = [{"x": place(event.x), "words": _hover(event)} for event in moments]
        rule = alt.Chart(ChartRows(values=rows)).mark_rule(color=MUTED, strokeDash=[2, 3])
        layers.append(rule.encode(x=x, description=alt.Description("words:N")))
    texts = merged_labels(inside, first, last, plot_px)
    if texts:
        rows = [{"x": place(at), "label": label, "words": HOVER_MARK + words} for at, label, words in texts]
        text = alt.Chart(ChartRows(values=rows)).mark_text(align="center", dy=-8, color=INK)
        layers.append(
            text.encode(
                x=x, y=alt.YValue(0), text=alt.Text("label:N"), description=alt.Description("words:N")
            )
        )
    return layers


def merged_labels(
    events: Sequence[DatedEvent], first: float | dt.date, last: float | dt.date, plot_px: int
) -> list[tuple[float | dt.date, str, str]]:
    """Join the labels of events that lie too close for two texts; return (x, label, words) of each text.

    `events` are in order of x; the plot shows `first` to `last` on `plot_px` pixels.
    """
    length = number(last) - number(first) or 1.0
    texts: list[tuple[float | dt.date, str, str]] = []
    end_px = -1e9
    for event in events:
        at_px = (number(event.x) - number(first)) / length * plot_px
        if at_px < end_px and texts:
            x, label, words = texts[-1]
            if event.label not in label:
                label += event.label
            texts[-1] = (x, label, "; ".join(filter(None, (words, event.words))))
        else:
            texts.append((event.x, event.label, event.words))
        end_px = max(end_px, at_px + LETTER_PX * max(1.0, len(texts[-1][1]) * 0.6))
    return texts


def hover_layer(
    spans: Sequence[tuple[float | dt.date, float | dt.date, str]], x: alt.X, height_px: int
) -> alt.Chart:
    """Return an Altair layer of invisible strips, one per (from, to, words), that show the words on hover."""
    is_time = isinstance(spans[0][0], dt.date)
    rows = [{"x": place(low), "to": place(high), "words": HOVER_MARK + words} for low, high, words in spans]
    mark = alt.Chart(ChartRows(values=rows)).mark_rect(fill=INK, opacity=0)
    strips: alt.Chart = mark.encode(
        x=x,
        x2=alt.X2(f"to:{'T' if is_time else 'Q'}"),
        y=alt.YValue(0),
        y2=alt.Y2Value(height_px),
        description=alt.Description("words:N"),
    )
    return strips


def _hover(event: DatedEvent) -> str:
    return HOVER_MARK + (event.words or event.label)


def _order(event: DatedEvent) -> tuple[float, str]:
    return number(event.x), event.label


def plot_marks(events: Sequence[DatedEvent]) -> list[Mark]:
    """Return dated events as the marks of a Plot."""
    return [
        Mark(
            x=number(event.x),
            label=event.label,
            words=event.words or event.label,
            to_x=None if event.to_x is None else number(event.to_x),
        )
        for event in events
    ]
