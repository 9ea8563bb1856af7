"""Section: how blocks differ from our own node's templates, and what may have been paid for elsewhere."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.curves import DURATION_LABEL, PERCENT_AXIS, Axis, Line, Point, panel
from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Figure, Section, Table
from analysis.report.parts import (
    TRANSACTIONS,
    colour,
    cut_note,
    drawable,
    on_mempool,
    ratio_panel,
    ratio_row,
)
from analysis.report.tables import Head, Show, by_pool, field, mart_table, ratio
from analysis.report.text import INTERVAL, count, decimal, duration, percent

DIFFERENCES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "missing": ("missing", "var(--pool-1)"),
        "unexplained": ("missing, no excuse", "var(--pool-2)"),
        "conflicting": ("missing, in conflict", "var(--pool-4)"),
        "prioritised": ("extra, worth less", "var(--pool-3)"),
        "unseen": ("extra, never seen", "var(--pool-5)"),
    }
)
MAX_POOLS: Final = 5
NO_TEMPLATES: Final = (
    "Not enough data: no block could be compared with a template of our node. `pool-collector run` records "
    "templates while it watches a node."
)


def audit_section(marts: Marts) -> Section:
    """Show matches and differences over template age, and out-of-band candidates per pool."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    compared = [row for row in marts.rows("template_audit") if row["n_blocks"]]
    if compared:
        parts += [_score_figure(marts, compared), _part_figure(marts, compared), _table(marts)]
    else:
        missing.append(NO_TEMPLATES)
    judged = [row for row in marts.ranked("out_of_band") if row["candidate_ratio"] is not None]
    if judged:
        parts += [_candidate_figure(marts, judged), _candidate_table(marts)]
        if marts.rows("out_of_band_candidates"):
            parts.append(_list_table(marts))
    return Section(
        section_id="audit",
        title="Template audit",
        question="How do blocks differ from what a stock node would mine?",
        intro=(
            "Each block is compared with our node's templates on its parent, by their age: what was "
            "promised and is "
            "missing, what is in the block and was not promised. Excused, in this order: in conflict "
            "with what was mined "
            "or replaced; the last 2\u00a0% of the promised weight; entered less than 30 s before the block. "
            "The rest has no excuse."
        ),
        parts=parts,
        missing=missing,
    )


def _score_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    found = {row["pool"] for row in rows}
    pools = [ALL, *[pool for pool in marts.pools if pool in found][:MAX_POOLS]]
    lines = [
        Line(
            label=marts.name(pool),
            colour=colour(marts, pool),
            points=_points(rows, pool, "score", has_band=pool == ALL),
        )
        for pool in pools
    ]
    return _figure(
        marts,
        lines,
        figure_id="audit-score-chart",
        title="Match of blocks and templates",
        unit="Score",
        caption=(
            "The score is matched / (matched + missing without an excuse). The band is the "
            f"{INTERVAL} of all pools; those of the pools are in the CSV."
        ),
    )


def _part_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    lines = [
        Line(label=label, colour=tint, points=_points(rows, ALL, name, has_band=False))
        for name, (label, tint) in DIFFERENCES.items()
    ]
    return _figure(
        marts,
        lines,
        figure_id="audit-part-chart",
        title="How blocks and templates differ, all pools",
        unit="Part of transactions",
        caption="Missing is a part of what the templates promised, extra a part of the blocks' transactions.",
    )


def _figure(
    marts: Marts, lines: Sequence[Line], *, figure_id: str, title: str, unit: str, caption: str
) -> Figure:
    """Draw lines over the age of the template."""
    drawn = [line for line in lines if any(point.y is not None for point in line.points)]
    x = Axis(title="Mean age of the template before the block", label=DURATION_LABEL)
    y = Axis(title=unit, label=PERCENT_AXIS.label)
    return Figure(
        figure_id=figure_id,
        title=title,
        caption=caption,
        panels=[panel(figure_id, title, drawn, x=x, y=y)],
        marts=("template_audit", "template_audit_block"),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in drawn],
    )


def _points(rows: Sequence[Row], pool: str, name: str, *, has_band: bool) -> list[Point]:
    return [
        Point(
            x=row["mean_age_s"],
            y=row[f"{name}_ratio"],
            low=row[f"{name}_low_ratio"] if has_band else None,
            high=row[f"{name}_high_ratio"] if has_band else None,
        )
        for row in rows
        if row["pool"] == pool
    ]


def _table(marts: Marts) -> Table:
    return mart_table(
        "audit-table",
        "Blocks against templates, per pool and age",
        by_pool(marts),
        [
            field("from_age_s", "From", decimal, unit="s", group="Age"),
            field("mean_age_s", "Mean", decimal, unit="s", group="Age"),
            field("n_blocks", "Blocks"),
            field("n_promised", "Promised", group="Promised"),
            field("missing_ratio", "Missing", percent, group="Promised"),
            field("conflicting_ratio", "Conflict", percent, group="Promised"),
            field("unexplained_ratio", "No excuse", percent, group="Promised"),
            field("n_extra", "Extra", group="Not promised"),
            field("unseen_ratio", "Unseen", percent, group="Not promised"),
            field("prioritised_ratio", "Worth less", percent, group="Not promised"),
            *ratio("score", "Score"),
        ],
        marts.ranked("template_audit"),
        mart="template_audit",
        is_folded=True,
    )


def _candidate_figure(marts: Marts, judged: Sequence[Row]) -> Figure:
    rows = [ratio_row(marts, row, "candidate") for row in drawable(judged, "candidate")]
    return Figure(
        figure_id="candidate-chart",
        title="Transactions that may have been paid for elsewhere",
        caption=(
            "Part of a pool's transactions that pay far less than what its blocks left behind. A pool "
            "that does not order "
            f"by feerate at all makes candidates of all it takes. Lines are {INTERVAL}s.{cut_note(judged)}"
        ),
        panels=[ratio_panel("candidate", "Out-of-band candidates per pool", rows, TRANSACTIONS)],
        marts=("out_of_band", "out_of_band_candidates"),
        rests_on=on_mempool(marts),
    )


def _candidate_table(marts: Marts) -> Table:
    return mart_table(
        "candidate-table",
        "Out-of-band and prioritised candidates per pool",
        by_pool(marts),
        [
            field("n_blocks", "Blocks"),
            field("n_blocks_with", "With candidates"),
            field("n_txs", "Transactions"),
            field("n_candidates", "Candidates"),
            field("n_unseen_candidates", "Never in our mempool"),
            *ratio("candidate", "Part"),
            field("median_discount_ratio", "Feerate / margin", percent),
        ],
        marts.ranked("out_of_band"),
        mart="out_of_band",
        note="The part of a pool that is known to run stock software is the rate of false alarms.",
        is_folded=False,
    )


def _list_table(marts: Marts) -> Table:
    return mart_table(
        "candidate-list-table",
        "Candidates, cheapest against the margin first",
        Head("Height", lambda row: count(row["height"])),
        [
            Show("Pool", lambda row: marts.name(row["pool"]), kind="text"),
            Show("Kind", lambda row: row["kind"], kind="text"),
            Show("txid", lambda row: bytes(row["txid"])[::-1].hex()[:16] + "…", kind="text"),
            field("fee_sat", "Fee", unit="sat"),
            field("vsize_vb", "Size", unit="vB"),
            field("package_feerate_sat_vb", "Feerate", decimal, unit="sat/vB"),
            field("margin_sat_vb", "Margin", decimal, unit="sat/vB"),
            field("waited_s", "Waited", duration),
        ],
        marts.rows("out_of_band_candidates"),
        mart="out_of_band_candidates",
        n_records=marts.totals["out_of_band_candidates"],
        note="The CSV has whole txids.",
        is_folded=True,
    )
