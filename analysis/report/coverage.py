"""Section: what was really observed, and the holes in it."""

import datetime as dt
from typing import Final

from markupsafe import Markup

from analysis.report import charts
from analysis.report.charts import Span
from analysis.report.data import Marts, Row
from analysis.report.model import Column, Figure, LegendEntry, Panel, Section, Table, TableRow
from analysis.report.parts import NARROW_PX, WIDE_PX
from analysis.report.svg import draw
from analysis.report.text import count, duration, moment, percent, plural, text_of

MAX_HOLES: Final = 50
SEEN_COLOUR: Final = "var(--accent-1)"
HOLE_COLOUR: Final = "var(--accent-2)"
FROM_TO: Final = tuple(Column(label=label, unit="UTC", kind="text") for label in ("From", "To"))


def coverage_section(marts: Marts) -> Section:
    """Show how long each stream of each node was observed, and where it was not."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    if marts.coverage:
        parts += [_figure(marts), _table(marts)]
    else:
        missing.append("Not enough data: no coverage is recorded.")
    if marts.holes:
        parts.append(_hole_table(marts.holes))
    return Section(
        section_id="coverage",
        title="Coverage",
        question="How much was really observed?",
        intro=(
            "A node announces each event once. What it sends while nobody listens, or drops when a queue is "
            "full, is lost to us; the counters in its messages show where. Each stretch that was watched "
            "without a hole is recorded, and every result above rests on those stretches."
        ),
        parts=parts,
        missing=missing,
    )


def _figure(marts: Marts) -> Figure:
    from_at = min(row["from_at"] for row in marts.coverage)
    to_at = max(row["to_at"] for row in marts.coverage)
    spans = [_span(row, row["from_at"], row["to_at"], SEEN_COLOUR) for row in marts.coverage]
    streams = {span.row for span in spans}
    for hole in marts.holes or ():
        span = _span(hole, hole["from_at"], hole["to_at"] or to_at, HOLE_COLOUR)
        if span.row in streams:
            spans.append(span)

    def at(width_px: int, suffix: str) -> Markup:
        return draw(
            charts.timeline(spans, from_at=from_at, to_at=to_at, width_px=width_px),
            name=f"coverage-{suffix}",
            title="Time observed per node and topic",
            description="; ".join(
                f"{_stream(row)} {percent(row['observed_ratio'])}" for row in marts.coverage
            ),
        )

    legend = [LegendEntry(label="observed", colour=SEEN_COLOUR, shape="bar")]
    if marts.holes:
        legend.append(LegendEntry(label="hole", colour=HOLE_COLOUR, shape="bar"))
    return Figure(
        figure_id="coverage-chart",
        title="Time observed",
        caption="Per node and topic, in UTC. A hole is drawn at least as wide as a stroke.",
        panels=[Panel(title="", wide=at(WIDE_PX, "wide"), narrow=at(NARROW_PX, "narrow"))],
        legend=legend,
    )


def _span(row: Row, from_at: dt.datetime, to_at: dt.datetime, colour: str) -> Span:
    label = _stream(row)
    return Span(row=label, label=label, from_at=from_at, to_at=to_at, colour=colour)


def _stream(row: Row) -> str:
    return f"{text_of(row['node'])} {text_of(row['topic'])}"


def _from_to(row: Row) -> tuple[str, str]:
    """Give the cells of FROM_TO."""
    return moment(row["from_at"]), moment(row["to_at"])


def _table(marts: Marts) -> Table:
    return Table(
        table_id="coverage-table",
        caption="Time observed per node and topic",
        head="Node and topic",
        columns=[
            *FROM_TO,
            Column(label="Observed"),
            Column(label="Of"),
            Column(label="Part"),
            Column(label="Holes"),
            Column(label="Messages"),
        ],
        rows=[
            TableRow(
                head=_stream(row),
                cells=[
                    *_from_to(row),
                    duration(row["observed_s"]),
                    duration(row["window_s"]),
                    percent(row["observed_ratio"]),
                    count(row["n_gaps"]),
                    count(row["n_messages"]),
                ],
            )
            for row in marts.coverage
        ],
    )


def _hole_table(holes: list[Row]) -> Table:
    cut = len(holes) - MAX_HOLES
    return Table(
        table_id="hole-table",
        caption="Holes, and why each stretch before them ended",
        head="Node and topic",
        columns=[
            *FROM_TO,
            Column(label="Length"),
            Column(label="Reason", kind="text"),
            Column(label="Detail", kind="long"),
        ],
        rows=[
            TableRow(
                head=_stream(row),
                cells=[
                    *_from_to(row),
                    duration(row["hole_s"]),
                    text_of(row["end_reason"]),
                    text_of(row["detail"]),
                ],
            )
            for row in holes[:MAX_HOLES]
        ],
        note=f"{plural(cut, 'more hole')}: pool-analysis show coverage_hole." if cut > 0 else "",
        is_folded=len(holes) > MAX_HOLES // 5,
    )
