"""Makes the report's section on lost blocks, reorganisations, and how fast blocks reach our nodes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_arrivals
from analysis.report.charts.lines import (
    DURATION_LABEL,
    Axis,
    Line,
    Point,
    duration_ticks,
    line_panel,
)
from analysis.report.charts.ratios import ratio_panel
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import ALL, Marts, Read, Row
from analysis.report.model import Figure, SectionContent, Table, Unanswered
from analysis.report.pools import left_out_note, ratio_row, rows_to_draw
from analysis.report.sections import clocks
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
    text_head,
)
from analysis.report.text import (
    INTERVAL,
    NOTHING,
    count,
    decimal,
    duration,
    duration_range,
    median,
    plural,
    printable,
    text_of,
    with_interval,
)
from analysis.report.topic import Topic

NO_ARRIVALS: Final = Unanswered(
    question="How many blocks are lost?",
    lacks="No node of ours announced a block as it arrived. `pool-collector run` records arrivals.",
)
ONE_NODE: Final = Unanswered(
    question="How fast do blocks spread?",
    lacks=(
        "Two nodes that announce the same blocks are needed. Add a `[[node]]` to the settings of "
        "`pool-collector run`."
    ),
)
NOT_WATCHED: Final = (
    "No node of ours announced a block as it arrived. `pool-collector run` records arrivals; with a second "
    "`[[node]]` in its settings it also shows how fast blocks spread."
)
LEAST_S: Final = 0.001
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        **clocks.READS,
        "stale_rate": Read("stale_rate", "pool"),
        "stale_branches": Read("stale_branches", "from_height, first_hash"),
        "reorg_depth": Read("reorg_depth", "depth"),
        "node_propagation": Read("node_propagation", "kind, node"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: stale blocks, reorganisations, our slowest node, published arrivals."""
    return [*_of_our_nodes(marts), *clocks.sentences(marts)]


def _of_our_nodes(marts: Marts) -> list[str]:
    row = next((r for r in marts.rows("stale_rate") if r["pool"] == ALL), None)
    if row is None or not row["n_blocks"]:
        return []
    said = [
        (
            f"{count(row['n_stale'])} of {plural(row['n_blocks'], 'announced block')} became stale, "
            f"{with_interval(row, 'stale')}."
        )
    ]
    followed = [r for r in marts.rows("reorg_depth") if r["n_reorgs"]]
    if followed:
        n_reorgs = sum(r["n_reorgs"] for r in followed)
        deepest = max(r["depth"] for r in followed)
        were = f"There {'was' if n_reorgs == 1 else 'were'} {plural(n_reorgs, 'reorganisation')}"
        n_undone = sum(r["n_undone"] for r in followed)
        undone = f", {n_undone:,} of them undone later" if n_undone else ""
        said.append(f"{were}, the deepest of {plural(deepest, 'block')}{undone}.")
    nodes = [r for r in marts.rows("node_propagation") if r["kind"] == "block"]
    if not nodes:
        return said
    slowest = max(nodes, key=lambda r: r["lag_median_s"])
    error_s = max(r["clock_error_s"] for r in nodes)
    if error_s:
        said.append(
            "The nodes were watched on several clocks, which were compared by what both saw; lags between"
            f" them are known to {duration(error_s)}."
        )
    return [
        *said,
        (
            f"Half of the blocks that several nodes announced reached the node {printable(slowest['node'])} "
            f"within {median(slowest, 'lag')} of our first node, and 90\u00a0% within "
            f"{duration(slowest['lag_p90_s'])}; a block that it announced first counts as 0."
        ),
    ]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: stale blocks, reorganisations, propagation, published arrivals."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    pushed = [row for row in marts.ranked("stale_rate") if row["n_blocks"]]
    if pushed:
        parts += [_stale_figure(marts, pushed), _stale_table(marts)]
    else:
        missing.append(NO_ARRIVALS)
    if marts.rows("reorg_depth"):
        parts += [_depth_table(marts), _branch_table(marts)]
    spreads = [(max(spread_s, LEAST_S), part) for spread_s, part in marts.spread_curve]
    if len(spreads) > 1:
        parts.append(_spread_figure(marts, spreads))
    if marts.rows("node_propagation"):
        parts.append(_node_table(marts))
    else:
        missing.append(ONE_NODE)
    parts += clocks.tables(marts)
    if not parts:
        return SectionContent(parts=[], missing=[NOT_WATCHED])
    return SectionContent(parts=parts, missing=missing)


def _stale_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    drawn = [ratio_row(marts, row, "stale") for row in rows_to_draw(rows, "stale")]
    return Figure(
        figure_id="stale-chart",
        title="Stale blocks",
        caption=f"Share of the announced blocks that lost, with {INTERVAL}s.{left_out_note(rows)}",
        panels=[ratio_panel("stale", "Rate of stale blocks per pool", drawn)],
        marts=("stale_rate",),
        rests_on=on_arrivals(marts),
    )


def _stale_table(marts: Marts) -> Table:
    return mart_table(
        "stale-table",
        "Stale blocks per pool",
        pool_head(marts),
        [column("n_blocks", "Announced"), column("n_stale", "Stale"), *ratio_columns("stale", "Rate")],
        marts.ranked("stale_rate"),
        mart="stale_rate",
    )


def _depth_table(marts: Marts) -> Table:
    return mart_table(
        "depth-table",
        "Reorganisations by depth",
        RowHead("Depth", lambda row: count(row["depth"])),
        [
            column("n_branches", "Branches that long"),
            column("n_reorgs", "Reorganisations of our nodes"),
            column("n_undone", "Undone"),
            *interval_columns(
                "per_1000_blocks", "Per 1,000 blocks", decimal, "per_1000_low", "per_1000_high"
            ),
        ],
        marts.rows("reorg_depth"),
        mart="reorg_depth",
        note="Undone: the node came back to the blocks that it had left.",
    )


def _branch_table(marts: Marts) -> Table:
    return mart_table(
        "branch-table",
        "Every branch beside the active chain",
        RowHead("Height", lambda row: count(row["from_height"])),
        [
            column("depth", "Length"),
            MartColumn(
                "Pools", lambda row: ", ".join(marts.name(pool) for pool in row["pools"] or ()), kind="text"
            ),
            MartColumn(
                "Lost to",
                lambda row: marts.name(row["rival_pool"]) if row["rival_pool"] else NOTHING,
                kind="text",
            ),
            MartColumn("Lead", lambda row: _lead(row["lead_s"])),
            column("followed_depth", "Followed by us"),
            MartColumn("Race", lambda row: "open" if row["is_open"] else "lost", kind="text"),
        ],
        marts.rows("stale_branches"),
        mart="stale_branches",
        n_records=marts.totals["stale_branches"],
        note=(
            "Lead: how much earlier than its rival the branch reached us; below zero it came later. "
            "Followed by us: blocks that a node of ours connected and later had to leave. A race is "
            "open while one more block would let the branch win."
        ),
        is_folded=True,
    )


def _lead(lead_s: float | None) -> str:
    if lead_s is None:
        return NOTHING
    return f"\N{MINUS SIGN}{duration(-lead_s)}" if lead_s < 0 else duration(lead_s)


def _spread_figure(marts: Marts, spreads: Sequence[tuple[float, float]]) -> Figure:
    line = Line(
        label="blocks",
        colour="var(--accent-1)",
        points=[Point(x=spread_s, y=part) for spread_s, part in spreads],
        shape="step",
    )
    low_s, high_s = spreads[0][0], max(spreads[-1][0], 2 * spreads[0][0])
    drawing = line_panel(
        "spread",
        "Time from our first node to our last",
        [line],
        x=Axis(
            title="Time from the first node to the last, logarithmic",
            label=DURATION_LABEL,
            is_log=True,
            domain=(low_s, high_s),
            ticks=duration_ticks(low_s, high_s),
        ),
        y=Axis(title="Part of blocks", label=PERCENT_LABEL, domain=(0, 1)),
    )
    return Figure(
        figure_id="spread-chart",
        title="Propagation between our nodes",
        caption=(
            "The height is the share of blocks that our last node announced within that time of our "
            "first node. Every block that several nodes announced counts once, by the time between "
            "whichever node was first and whichever was last."
        ),
        panels=[drawing],
        marts=("block_propagation",),
        rests_on=on_arrivals(marts),
    )


def _node_table(marts: Marts) -> Table:
    return mart_table(
        "propagation-table",
        "How much later than the first node each node is",
        text_head("Node", "node"),
        [
            MartColumn("Of", lambda row: text_of(row["kind"]), kind="text"),
            column("n_shared", "Shared"),
            column("n_first", "First"),
            *ratio_columns("first", "Part"),
            *interval_columns(
                "lag_median_s",
                "Median",
                duration,
                "lag_median_low_s",
                "lag_median_high_s",
                group="Lag",
                between=duration_range,
            ),
            column("lag_p90_s", "90\u00a0%", duration, group="Lag"),
            column("lag_p99_s", "99\u00a0%", duration, group="Lag"),
            column("spread_median_s", "Spread", duration),
            column("connect_median_s", "Validation", duration),
        ],
        marts.rows("node_propagation"),
        mart="node_propagation",
        note=(
            "Lag: behind the first node, and 0 for what this node announced first. Spread: from the "
            "first node to the last, whichever they were, as in the figure."
        ),
    )


TOPIC: Final = Topic(
    section_id="network",
    title="Network",
    question="How many blocks are lost, and how fast do blocks spread?",
    intro=(
        "A stale block lost against another block of the same height. A node announces such a "
        "rival only when the rival becomes its tip, so the rate is a lower bound. Propagation is "
        "the time between our own nodes, on one clock. Lists of arrivals that others published were "
        "stamped by clocks of their own, so a difference between two of them is also one of clocks."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
