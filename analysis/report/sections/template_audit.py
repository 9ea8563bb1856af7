"""Makes the report's section on blocks that differ from our node's templates.

It also lists transactions that may have been paid for outside the chain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_mempool
from analysis.report.charts.lines import DURATION_LABEL, Axis, Line, Point, line_panel
from analysis.report.charts.ratios import TRANSACTIONS, ratio_panel
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import ALL, Marts, Read, Row, is_template_judged
from analysis.report.model import Figure, SectionContent, Table
from analysis.report.pools import left_out_note, named_pools, pool_colour, ratio_row, rows_to_draw
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    mart_table,
    pool_head,
    ratio_columns,
    text_column,
)
from analysis.report.text import (
    INTERVAL,
    count,
    decimal,
    duration,
    listed_pools,
    percent,
    plural,
    with_interval,
)
from analysis.report.topic import Topic

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
NOT_JUDGED: Final = (
    "There is no score where more than a fifth of what was promised is missing with an excuse."
)
NO_TEMPLATES: Final = (
    "No block has a template of a node of ours on the same parent. `pool-collector run` records templates."
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "template_audit": Read("template_audit", "pool, from_age_s"),
        "out_of_band": Read("out_of_band", "pool"),
        "pool_ordering": Read("pool_ordering", "pool"),
        "out_of_band_candidates": Read(
            "out_of_band_candidates", "package_feerate_sat_vb / margin_sat_vb, block_hash, txid, node"
        ),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how well blocks match our templates, and who takes low feerates."""
    ages = [
        r
        for r in marts.rows("template_audit")
        if r["pool"] == ALL and r["score_ratio"] is not None and r["n_blocks"]
    ]
    if not ages:
        return []
    most = max(ages, key=lambda r: r["n_blocks"])
    said = [
        (
            f"Templates that are {duration(most['mean_age_s'])} old on average promised "
            f"{plural(most['n_promised'], 'transaction')} to {plural(most['n_blocks'], 'block')}, and the "
            f"blocks contain {matched_words(most)}. {_score_words(most)}"
        )
    ]
    return said + _order_sentences(marts) + _candidate_sentences(marts)


def _score_words(row: Row) -> str:
    """Return a sentence with the score of a row, or on why it says nothing."""
    if not is_template_judged(row):
        return (
            "More than a fifth of what was promised is missing with an excuse, such as having entered too "
            "late, so there is no score."
        )
    return (
        "Without those that are missing with an excuse, such as having entered too late, the blocks contain "
        f"{with_interval(row, 'score')} of what was promised."
    )


def matched_words(row: Row) -> str:
    """Return how many of the promised transactions the blocks contain, as a number and a percentage."""
    n_promised = row["n_promised"]
    part = f" ({percent(row['n_matched'] / n_promised)})" if n_promised else ""
    return f"{count(row['n_matched'])} of them{part}"


def _order_sentences(marts: Marts) -> list[str]:
    """Return sentences that name the pools whose blocks are not ordered by feerate.

    Low feerates in blocks of these pools mean nothing.
    """
    by_arrival, by_other = (
        [marts.name(r["pool"]) for r in named_pools(marts.ranked("pool_ordering")) if r["verdict"] == verdict]
        for verdict in ("first_come", "other")
    )
    said = []
    if by_arrival:
        said.append(
            f"{listed_pools(by_arrival)}: blocks are in order of arrival, not of feerate, so a low feerate "
            "in them means nothing."
        )
    if by_other:
        said.append(
            f"{listed_pools(by_other)}: neither feerate nor arrival explains the blocks, so a low feerate "
            "in them means nothing."
        )
    return said


def _candidate_sentences(marts: Marts) -> list[str]:
    """Return sentences on transactions that pay too little for their place: how many, which pool most.

    They are only suspected of payment outside the chain.
    """
    judged = [r for r in marts.ranked("out_of_band") if r["candidate_ratio"] is not None]
    overall = next((r for r in judged if r["pool"] == ALL), None)
    if overall is None:
        return []
    said = [
        (
            f"Of pools that choose by feerate, {with_interval(overall, 'candidate')} of the transactions pay "
            "far less than what their blocks ask for. That is a suspicion and no finding: a fee paid "
            "elsewhere, a pool's own payment and a promise look the same."
        )
    ]
    suspect = [
        r for r in named_pools(judged) if r["pool"] != ALL and r["n_candidates"] and r["candidate_low_ratio"]
    ]
    if suspect:
        most = max(suspect, key=lambda r: r["n_candidates"])
        n_most, n_all = most["n_candidates"], overall["n_candidates"]
        is_most = n_most == max(r["n_candidates"] for r in judged if r["pool"] != ALL)
        among = "" if is_most else "among pools whose interval is above 0, "
        subject = among + ("most of them" if 2 * n_most > n_all else "the most")
        said.append(
            f"{subject[0].upper() + subject[1:]}, {count(n_most)} of {count(n_all)}, are in blocks of "
            f"{marts.name(most['pool'])}: {with_interval(most, 'candidate')}."
        )
    return said


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: how well blocks match templates by age, and who takes low feerates."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    compared = [row for row in marts.rows("template_audit") if row["n_blocks"]]
    if compared:
        if any(is_template_judged(row) and row["score_ratio"] is not None for row in compared):
            parts.append(_score_figure(marts, compared))
        parts += [replace(_part_figure(marts, compared), is_folded=True), _table(marts)]
    else:
        missing.append(NO_TEMPLATES)
    if named_pools(marts.rows("pool_ordering")):
        parts.append(_order_table(marts))
    judged = [row for row in marts.ranked("out_of_band") if row["candidate_ratio"] is not None]
    if judged:
        parts += [_candidate_figure(marts, judged), _candidate_table(marts)]
        if marts.rows("out_of_band_candidates"):
            parts.append(_list_table(marts))
    return SectionContent(parts=parts, missing=missing)


def _score_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    rows = [row for row in rows if is_template_judged(row)]
    found = {row["pool"] for row in rows}
    pools = [ALL, *[pool for pool in marts.pools if pool in found][:MAX_POOLS]]
    lines = [
        Line(
            label=marts.name(pool),
            colour=pool_colour(marts, pool),
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
            f"The score is matched / (matched + missing without an excuse). The band is the {INTERVAL} "
            f"of all pools; the intervals of single pools are in the CSV. {NOT_JUDGED}"
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
        caption=(
            "Missing: share of the transactions that the templates promised. Extra: share of the "
            "blocks' transactions."
        ),
    )


def _figure(
    marts: Marts, lines: Sequence[Line], *, figure_id: str, title: str, unit: str, caption: str
) -> Figure:
    """Return a figure of lines over the age of the template; `unit` is the title of the y axis.

    A line of which no point has a value is left out.
    """
    drawn = [line for line in lines if any(point.y is not None for point in line.points)]
    x = Axis(title="Mean age of the template before the block", label=DURATION_LABEL)
    y = Axis(title=unit, label=PERCENT_LABEL)
    return Figure(
        figure_id=figure_id,
        title=title,
        caption=caption,
        panels=[line_panel(figure_id, title, drawn, x=x, y=y)],
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
    unjudged = {"score_ratio": None, "score_low_ratio": None, "score_high_ratio": None}
    rows = marts.ranked("template_audit")
    return mart_table(
        "audit-table",
        "Blocks against templates, per pool and age",
        pool_head(marts),
        [
            column("from_age_s", "From", decimal, unit="s", group="Age"),
            column("mean_age_s", "Mean", decimal, unit="s", group="Age"),
            column("n_blocks", "Blocks"),
            column("n_promised", "Promised", group="Promised"),
            column("missing_ratio", "Missing", percent, group="Promised"),
            column("conflicting_ratio", "Conflict", percent, group="Promised"),
            column("unexplained_ratio", "No excuse", percent, group="Promised"),
            column("n_extra", "Extra", group="Not promised"),
            column("unseen_ratio", "Unseen", percent, group="Not promised"),
            column("prioritised_ratio", "Worth less", percent, group="Not promised"),
            *ratio_columns("score", "Score"),
        ],
        [row if is_template_judged(row) else {**row, **unjudged} for row in rows],
        mart="template_audit",
        records=rows,
        note=f"{NOT_JUDGED} The CSV has it all the same.",
        is_folded=True,
    )


def _order_table(marts: Marts) -> Table:
    return mart_table(
        "order-table",
        "How each pool orders its blocks",
        pool_head(marts),
        [
            column("n_blocks", "Blocks"),
            column("n_unclear", "Not judged"),
            *ratio_columns("feerate", "By feerate"),
            *ratio_columns("first_come", "First come"),
            column("median_position_error_ratio", "Place error", percent),
            MartColumn("Verdict", lambda row: row["verdict"].replace("_", " "), kind="text"),
        ],
        named_pools(marts.ranked("pool_ordering")),
        mart="pool_ordering",
        records=marts.rows("pool_ordering"),
        note=(
            "Place error: mean distance from the place by feerate, as a part of the block. Blocks that no "
            "rule names are of several miners and have no order in common; they stand in the CSV as unknown."
        ),
        is_folded=False,
    )


def _candidate_figure(marts: Marts, judged: Sequence[Row]) -> Figure:
    rows = [ratio_row(marts, row, "candidate") for row in rows_to_draw(judged, "candidate")]
    return Figure(
        figure_id="candidate-chart",
        title="Transactions that may have been paid for elsewhere",
        caption=(
            "Share of a pool's transactions that pay far less than what its own blocks ask for, only of "
            "pools that choose by feerate. A candidate is a suspicion: what was paid elsewhere cannot be "
            f"seen. Lines are {INTERVAL}s.{left_out_note(judged)}"
        ),
        panels=[ratio_panel("candidate", "Out-of-band candidates per pool", rows, TRANSACTIONS)],
        marts=("out_of_band", "out_of_band_candidates"),
        rests_on=on_mempool(marts),
    )


def _candidate_table(marts: Marts) -> Table:
    return mart_table(
        "candidate-table",
        "Out-of-band and prioritised candidates per pool",
        pool_head(marts),
        [
            column("n_blocks", "Blocks"),
            column("n_judged", "Judged"),
            column("n_blocks_with", "With candidates"),
            column("n_txs", "Transactions"),
            column("n_candidates", "Candidates"),
            column("n_unseen_candidates", "Not in our mempool"),
            *ratio_columns("candidate", "Part"),
            column("median_discount_ratio", "Feerate / margin", percent),
        ],
        marts.ranked("out_of_band"),
        mart="out_of_band",
        note=(
            "For a pool that is known to run stock software, the share is the rate of false alarms. "
            "Nothing is judged where the order is not by feerate."
        ),
        is_folded=False,
    )


def _list_table(marts: Marts) -> Table:
    return mart_table(
        "candidate-list-table",
        "Candidates, the lowest feerate compared with the margin first",
        RowHead("Height", lambda row: count(row["height"])),
        [
            text_column("node", "Node"),
            MartColumn("Pool", lambda row: marts.name(row["pool"]), kind="text"),
            MartColumn("Kind", lambda row: row["kind"], kind="text"),
            MartColumn("txid", lambda row: bytes(row["txid"])[::-1].hex()[:16] + "…", kind="text"),
            column("fee_sat", "Fee", unit="sat"),
            column("vsize_vb", "Size", unit="vB"),
            column("package_feerate_sat_vb", "Feerate", decimal, unit="sat/vB"),
            column("margin_sat_vb", "Margin", decimal, unit="sat/vB"),
            column("waited_s", "Waited", duration),
        ],
        marts.rows("out_of_band_candidates"),
        mart="out_of_band_candidates",
        n_records=marts.totals["out_of_band_candidates"],
        note="A row for each node that could judge the block. The CSV has whole txids.",
        is_folded=True,
    )


TOPIC: Final = Topic(
    section_id="audit",
    title="Template audit",
    question="How do blocks differ from what a stock node would mine?",
    intro=(
        "Each block is compared with the templates that our node made on the same parent, by age "
        "of the template. A template promises transactions; we count those that are missing, and "
        "those in the block that were not promised. A missing transaction is excused if it is in "
        "conflict with a mined one or was replaced, if it is in the last 2\u00a0% of the promised "
        "weight, or if it entered less than 30 s before the block, in this order. The rest has no "
        "excuse."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
