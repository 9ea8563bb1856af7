"""Says what a chart over time marks: dated events, and periods of which the data has only a part."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.lines import PARTIAL_KEY
from analysis.report.charts.marks import DatedEvent
from analysis.report.data import EPOCH_BLOCKS, Marts, Read, Row
from analysis.report.model import LegendKey
from analysis.report.text import count, duration, moment, percent, printable

READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "dated_change": Read("dated_change", "from_at, kind, subject, other"),
        "incomplete_days": Read(
            "pool_share_period", "from_day, pool", "period_kind = 'day' AND NOT is_complete"
        ),
    }
)
LETTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "halving": "H",
        "retarget": "D",
        "owner": "O",
        "proxy": "O",
        "name": "O",
        "succession": "O",
        "hole": "G",
    }
)
MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "H": "H: halving",
        "D": "D: new difficulty",
        "O": "O: owner, group or name of a pool changes",
        "G": "G: gap in our own observation",
    }
)
RETARGETS_UP_TO: Final = dt.timedelta(days=120)  # a longer chart would have a line every few millimetres
MAX_HOLES: Final = 40


def events(marts: Marts, first: dt.date, last: dt.date) -> list[DatedEvent]:
    """Return what a chart from day `first` to `last` marks: halvings, new difficulties, gaps and the like.

    New difficulties are left out of a chart of more than 120 days. Of the gaps in observation, the longest 40
    are marked.
    """
    rows = [row for row in marts.rows("dated_change") if first <= row["from_at"].date() <= last]
    if last - first > RETARGETS_UP_TO:
        rows = [row for row in rows if row["kind"] != "retarget"]
    holes = sorted((row for row in rows if row["kind"] == "hole"), key=_length, reverse=True)[:MAX_HOLES]
    shown = [row for row in rows if row["kind"] != "hole"] + holes
    return [
        DatedEvent(x=row["from_at"], to_x=row["to_at"], label=LETTERS[row["kind"]], words=_words(marts, row))
        for row in sorted(shown, key=lambda row: (row["from_at"], row["kind"]))
    ]


def legend(found: Sequence[DatedEvent]) -> list[LegendKey]:
    """Return the entries of a chart's legend that explain the letters of its marked events."""
    letters = {event.label for event in found}
    return [
        LegendKey(label=text, colour="var(--muted)", shape="bar" if letter == "G" else "dotted")
        for letter, text in MEANINGS.items()
        if letter in letters
    ]


def course_legend(
    marts: Marts, course: Sequence[tuple[dt.date, Row]], found: Sequence[DatedEvent]
) -> list[LegendKey]:
    """Return the legend of a chart over time: open circles for incomplete periods, letters for events."""
    partial = [PARTIAL_KEY] if any(is_partial(marts, row) for _, row in course) else []
    return [*partial, *legend(found)]


def is_partial(marts: Marts, row: Row) -> bool:
    """Return whether the data has only a part of the day or difficulty epoch of a row."""
    if row["period_kind"] == "epoch":
        return bool(row.get("block_count", row.get("n_blocks")) < EPOCH_BLOCKS)
    return row["period"] in {f"{found['from_day']}" for found in marts.rows("incomplete_days")}


def _length(row: Row) -> dt.timedelta:
    return row["to_at"] - row["from_at"]  # type: ignore[no-any-return]


def _words(marts: Marts, row: Row) -> str:
    """Return a text on one dated event: its day, what happened, and by how much or at which block."""
    day = moment(row["from_at"].date())
    pool, other = (printable(row[name]) for name in ("subject", "other"))
    kind = row["kind"]
    if kind == "halving":
        return f"{day}: halving, block {count(row['height'])}"
    if kind == "retarget":
        change = row["relative_change"]
        way = "up" if change > 0 else "down"
        return f"{day}: difficulty {way} {percent(abs(change))}, block {count(row['height'])}"
    if kind == "hole":
        length = duration(_length(row).total_seconds())
        return f"{moment(row['from_at'])}: {length} of {other} of {pool} not observed"
    name = marts.name(row["subject"])
    if kind == "succession":
        return f"{day}: {marts.name(row['other'])} is paid where {name} was paid"
    what = {"owner": "belongs to", "proxy": "shares templates with", "name": "is called"}[kind]
    return f"{day}: {name} no longer {what} {other}" if row["is_end"] else f"{day}: {name} {what} {other}"
