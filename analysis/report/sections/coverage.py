"""Makes the report's section on how much was really observed, and what was left out of the results."""

import datetime as dt
from typing import Final

from markupsafe import Markup

from analysis.report.charts.svg import NARROW_PX, WIDE_PX, draw
from analysis.report.charts.timeline import Span, timeline_chart
from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Figure, LegendKey, Panel, SectionContent, Table, TableColumn, TableRow
from analysis.report.tables import column, mart_table, shown_rows, text_column, text_head
from analysis.report.text import count, duration, listed, moment, percent, plural, printable, text_of
from analysis.report.topic import Topic

MAX_HOLES: Final = 50
SEEN_COLOUR: Final = "var(--accent-1)"
HOLE_COLOUR: Final = "var(--accent-2)"
FROM_TO: Final = tuple(TableColumn(label=label, unit="UTC", kind="text") for label in ("From", "To"))


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how many holes the observed streams have, and which was observed least.

    If there are no holes, the sentence says how long the shortest stream was observed.
    """
    watched = [row for row in marts.coverage if row["observed_ratio"] is not None]
    if not watched:
        return []
    names = sorted({printable(row["node"]) for row in watched})
    nodes = f"{'Node' if len(names) == 1 else 'Nodes'} {listed(names)}"
    shortest = duration(min(row["window_s"] for row in watched))
    least = min(watched, key=lambda row: (row["observed_ratio"], row["node"], row["topic"]))
    n_gaps = sum(row["n_gaps"] for row in watched)
    if not n_gaps:
        return [f"{nodes}: every stream was observed without a hole, the shortest one for {shortest}."]
    part = f"{percent(least['observed_ratio'])} of {duration(least['window_s'])}"
    return [
        f"{nodes}: {plural(n_gaps, 'hole')} in {plural(len(watched), 'stream')}.",
        (f"The least observed stream is {printable(least['topic'])} of {printable(least['node'])}: {part}."),
    ]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: when each stream was observed, holes, exclusions, failed checks."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    if marts.coverage:
        parts += [_figure(marts), _table(marts)]
    else:
        missing.append(
            "No node was watched. `pool-collector run` records what it received, and when it did not listen."
        )
    if marts.holes:
        parts.append(_hole_table(marts.holes))
    parts += [table for table in (_exclusion_table(marts), _check_table(marts)) if table.rows]
    return SectionContent(parts=parts, missing=missing)


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
            timeline_chart(spans, from_at=from_at, to_at=to_at, width_px=width_px),
            name=f"coverage-{suffix}",
            title="Time observed per node and topic",
            description="; ".join(
                f"{_stream(row)} {percent(row['observed_ratio'])}" for row in marts.coverage
            ),
        )

    legend = [LegendKey(label="observed", colour=SEEN_COLOUR, shape="bar")]
    if marts.holes:
        legend.append(LegendKey(label="hole", colour=HOLE_COLOUR, shape="bar"))
    return Figure(
        figure_id="coverage-chart",
        title="Time observed",
        caption="Per node and topic, in UTC. Every hole is drawn wide enough to be seen.",
        panels=[Panel(title="", wide=at(WIDE_PX, "wide"), narrow=at(NARROW_PX, "narrow"))],
        marts=("coverage_summary", "coverage_hole"),
        rests_on="The collector's own record of what it received.",
        legend=legend,
    )


def _span(row: Row, from_at: dt.datetime, to_at: dt.datetime, colour: str) -> Span:
    label = _stream(row)
    return Span(row=label, label=label, from_at=from_at, to_at=to_at, colour=colour)


def _stream(row: Row) -> str:
    return f"{text_of(row['node'])} {text_of(row['topic'])}"


def _from_to(row: Row) -> tuple[str, str]:
    """Return the UTC times of the start and the end of a row as two texts for table cells."""
    return moment(row["from_at"]), moment(row["to_at"])


def _table(marts: Marts) -> Table:
    return Table(
        table_id="coverage-table",
        caption="Time observed per node and topic",
        head="Node and topic",
        columns=[
            *FROM_TO,
            TableColumn(label="Observed"),
            TableColumn(label="Of"),
            TableColumn(label="Part"),
            TableColumn(label="Holes"),
            TableColumn(label="Messages"),
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
        mart="coverage_summary",
        records=marts.coverage,
        is_folded=True,  # the chart shows the same
    )


def _hole_table(holes: list[Row]) -> Table:
    shown = shown_rows(holes, MAX_HOLES)
    cut = len(holes) - len(shown)
    return Table(
        table_id="hole-table",
        caption="Holes, and why the observation before each one ended",
        head="Node and topic",
        columns=[
            *FROM_TO,
            TableColumn(label="Length"),
            TableColumn(label="Reason", kind="text"),
            TableColumn(label="Detail", kind="long"),
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
            for row in shown
        ],
        mart="coverage_hole",
        records=holes,
        note=f"{plural(cut, 'more hole')}: `pool-analysis show coverage_hole`." if cut > 0 else "",
        is_folded=len(holes) > MAX_HOLES // 5,
    )


def _exclusion_table(marts: Marts) -> Table:
    """Return the table of what was left out: how many blocks or transactions, and of which results."""
    rows = [row for row in _exclusions(marts) if row["count"]]
    return mart_table(
        "exclusion-table",
        "What was left out",
        text_head("What", "what"),
        [
            column("count", "Left out"),
            column("total", "Of"),
            text_column("where", "Of which results", kind="long"),
        ],
        rows,
        mart="",
        is_folded=True,
    )


def _exclusions(marts: Marts) -> list[Row]:
    window = marts.window
    n_blocks = window["n_blocks"]
    measured = next(
        (row for row in marts.feerates if row["pool"] == ALL and row["feerate_kind"] == "package"), None
    )
    revenue = next((row for row in marts.rows("revenue") if row["period_kind"] == "all"), None)
    spells = next((row for row in marts.rows("confirmation_decile") if not row["decile"]), None)
    unknown = next((row["block_count"] for row in marts.shares if row["is_unknown"]), 0)
    found = [
        (
            "Stale blocks",
            window["n_stale"],
            n_blocks + window["n_stale"],
            "all results except those on stale blocks",
        ),
        ("Blocks of unknown pools", unknown, n_blocks, "ranks, and indices except for their bounds"),
        ("Blocks without an interval", n_blocks - window["n_timed"], n_blocks, "intervals between arrivals"),
    ]
    if measured is not None:
        reason = "all results about waiting transactions: feerates, captured fees"
        found += [
            ("Blocks for which the mempool is not known", measured["n_unmeasured"], n_blocks, reason),
            ("Empty blocks", measured["n_empty"], n_blocks, "feerate strategy: an empty block has none"),
        ]
    if revenue is not None:
        n_unknown = revenue["block_count"] - revenue["fee_block_count"]
        found.append(("Blocks whose fees are not known", n_unknown, revenue["block_count"], "revenue"))
    if spells is not None:
        where = "none: each counts for as long as we watched it"
        found.append(
            ("Transactions whose end is not known", spells["n_censored"], spells["n_entered"], where)
        )
    return [
        {"what": what, "count": number, "total": total, "where": where}
        for what, number, total, where in found
    ]


def _check_table(marts: Marts) -> Table:
    """Return the table of the build's checks that found something, with a note on how many passed."""
    failed = [check for check in marts.checks if check.n_offending]
    rows = [
        {"name": check.name, "severity": check.severity, "n": check.n_offending, "summary": check.summary}
        for check in failed
    ]
    n_passed = len(marts.checks) - len(failed)
    return mart_table(
        "check-table",
        "Checks of the build that found something",
        text_head("Check", "name"),
        [
            text_column("severity", "Severity"),
            column("n", "Rows"),
            text_column("summary", "What it looks for", kind="long"),
        ],
        rows,
        mart="",
        note=f"{n_passed} of {plural(len(marts.checks), 'check')} found nothing.",
        is_folded=all(check.severity == "warn" for check in failed),
    )


TOPIC: Final = Topic(
    section_id="coverage",
    title="Coverage and exclusions",
    question="How much was really observed?",
    intro=(
        "A node announces each event once. We lose what it sends while nobody listens, and what "
        "it drops when a queue is full; the counters in its messages show where. We record every "
        "span that was watched without a hole, and every result above rests on these spans."
    ),
    sentences=sentences,
    content=figures_and_tables,
)
