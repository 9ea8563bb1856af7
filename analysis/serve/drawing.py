"""Draw the small charts of the pages as plain SVG: shares and sizes as bars, shares over time, coverage.

They have neither axes nor a library. Each mark carries its value in `data-value`, which the page shows on
hover; a table beside each chart has the same numbers.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from analysis.report.charts.lines import Axis, Line, interval_point, line_plot
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.plot import Plot
from analysis.report.text import moment, percent, percent_interval, plural

BAR_WIDTH: Final = 200
BAR_HEIGHT: Final = 18
COURSE_WIDTH: Final = 720
COURSE_HEIGHT: Final = 150
_LEFT: Final = 44
_BOTTOM: Final = 20
_TOP: Final = 8
_TICKS: Final = 3
_BAR: Final = Markup(
    '<svg class="bar" viewBox="0 0 {width} {height}" aria-hidden="true" preserveAspectRatio="none">'
    '<rect x="0" y="3" width="{value:.2f}" height="12" rx="1.5" fill="{colour}" data-value="{words}"/>'
    "{whisker}</svg>"
)
_WHISKER: Final = Markup(
    '<path d="M{low:.2f},9H{high:.2f}" stroke="var(--ink)" stroke-width="1.5" opacity=".65"/>'
)
_COURSE: Final = Markup(
    '<svg class="course" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{marks}</svg>'
)
_BAND: Final = Markup('<path d="{path}" fill="{colour}" fill-opacity=".18"/>')
_LINE: Final = Markup(
    '<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
)
_DOT: Final = Markup('<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" data-value="{words}"/>')
_RULE: Final = Markup(
    '<path d="M{left},{y:.1f}H{right}" stroke="var(--rule)"/>'
    '<text x="{text_x}" y="{text_y:.1f}" text-anchor="end" font-size="11" fill="var(--muted)">{label}</text>'
)
_DAY: Final = Markup(
    '<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="11" fill="var(--muted)">{label}</text>'
)
_PART: Final = Markup(
    '<rect x="{x:.2f}" y="0" width="{width:.2f}" height="10" fill="var(--accent-1)" data-value="{words}"/>'
)
_COVER: Final = Markup(
    '<svg class="cover" viewBox="0 0 {width} 10" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<rect width="{width}" height="10" fill="var(--accent-2)" opacity=".55" data-value="not observed"/>'
    "{parts}</svg>"
)


def share_bar(row: Mapping[str, Any], colour: str, largest: float) -> Markup:
    """Return SVG of a pool's share as a bar on a scale up to `largest`, with a line for its 95 % interval."""

    def at(ratio: float) -> float:
        return BAR_WIDTH * min(1.0, ratio / (largest or 1.0))

    low, high = row["share_low_ratio"], row["share_high_ratio"]
    whisker = Markup("") if low is None else _WHISKER.format(low=at(low), high=at(high))
    words = f"{percent(row['share_ratio'])} ({percent_interval(low, high)})"
    return _BAR.format(
        width=BAR_WIDTH,
        height=BAR_HEIGHT,
        value=at(row["share_ratio"]),
        colour=colour,
        words=words,
        whisker=whisker,
    )


def size_bar(size: float, largest: float, words: str) -> Markup:
    """Return SVG of a size as a bar on a scale up to `largest`; `words` is its value as text."""
    return _BAR.format(
        width=BAR_WIDTH,
        height=BAR_HEIGHT,
        value=BAR_WIDTH * size / (largest or 1),
        colour="var(--accent-1)",
        words=words,
        whisker="",
    )


def course(rows: Sequence[Mapping[str, Any]], colour: str, label: str) -> Markup:
    """Return an SVG chart of a share over time with a band for its 95 % intervals.

    Rows have `from_day`, the oldest first.
    """
    first: dt.date = rows[0]["from_day"]
    last: dt.date = rows[-1]["from_day"]
    n_days = max((last - first).days, 1)
    largest: float = max(row["share_high_ratio"] or row["share_ratio"] for row in rows) or 1.0
    right, bottom = COURSE_WIDTH - 12, COURSE_HEIGHT - _BOTTOM

    def x(day: dt.date) -> float:
        return _LEFT + (right - _LEFT) * (day - first).days / n_days

    def y(ratio: float) -> float:
        return bottom - (bottom - _TOP) * ratio / largest

    def path(name: str, found: Sequence[Mapping[str, Any]]) -> str:
        return "L".join(f"{x(row['from_day']):.1f},{y(row[name]):.1f}" for row in found)

    levels = [largest * step / _TICKS for step in range(_TICKS + 1)]
    marks = [
        _RULE.format(left=_LEFT, right=right, y=y(at), text_x=_LEFT - 6, text_y=y(at) + 4, label=percent(at))
        for at in levels
    ]
    marks += [
        _DAY.format(x=x(day), y=COURSE_HEIGHT - 4, anchor=anchor, label=moment(day))
        for day, anchor in ((first, "start"), (last, "end"))
    ]
    banded = [row for row in rows if row["share_low_ratio"] is not None]
    if banded:
        band = f"M{path('share_high_ratio', banded)}L{path('share_low_ratio', banded[::-1])}Z"
        marks.append(_BAND.format(path=band, colour=colour))
    marks.append(_LINE.format(path=f"M{path('share_ratio', rows)}", colour=colour))
    for row in rows:
        interval = percent_interval(row["share_low_ratio"], row["share_high_ratio"])
        words = f"{moment(row['from_day'])}: {percent(row['share_ratio'])} ({interval})"
        marks.append(_DOT.format(x=x(row["from_day"]), y=y(row["share_ratio"]), colour=colour, words=words))
    return _COURSE.format(width=COURSE_WIDTH, height=COURSE_HEIGHT, label=label, marks=Markup("").join(marks))


def course_plot(rows: Sequence[Mapping[str, Any]], colour: str, label: str) -> Plot:
    """Return the numbers of the chart that `course` draws, with which a page draws it anew as it zooms."""
    points = [interval_point(row["from_day"], row, "share", "ratio") for row in rows]
    line = Line(label="share", colour=colour, points=points)
    return line_plot(
        label, [line], x=Axis(title="Day (UTC)"), y=Axis(title="Part of blocks", label=PERCENT_LABEL)
    )


def cover_bar(intervals: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Markup:
    """Return SVG of the time window of a node's topic as a bar that shows observed intervals and holes.

    `intervals` are those of `lookups.drawn_coverage`: holes of less than a pixel are in them, and counted.
    """
    whole_s = (row["to_at"] - row["from_at"]).total_seconds() or 1.0
    parts = []
    for each in intervals:
        if (each["node"], each["topic"]) != (row["node"], row["topic"]):
            continue
        from_s = (each["from_at"] - row["from_at"]).total_seconds()
        length_s = (each["to_at"] - each["from_at"]).total_seconds()
        holes = (
            f", but for {plural(each['n_intervals'] - 1, 'short hole')}" if each["n_intervals"] > 1 else ""
        )
        words = f"observed {moment(each['from_at'])} to {moment(each['to_at'])}{holes}"
        x, width = COURSE_WIDTH * from_s / whole_s, COURSE_WIDTH * length_s / whole_s
        parts.append(_PART.format(x=x, width=width, words=words))
    label = f"{percent(row['observed_ratio'])} observed"
    return _COVER.format(width=COURSE_WIDTH, label=label, parts=Markup("").join(parts))
