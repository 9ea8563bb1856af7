"""Section: blocks that were lost, reorganisations, and how far our nodes lie apart."""

from collections.abc import Sequence
from typing import Final

from analysis.report.charts.curves import (
    DURATION_LABEL,
    PERCENT_AXIS,
    Axis,
    Line,
    Point,
    duration_ticks,
    panel,
)
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Section, Table
from analysis.report.parts import cut_note, drawable, on_arrivals, ratio_panel, ratio_row
from analysis.report.tables import Head, Show, by_pool, by_text, field, mart_table, measured, ratio
from analysis.report.text import INTERVAL, NOTHING, count, decimal, duration, duration_range, text_of

NO_ARRIVALS: Final = (
    "Not enough data on stale blocks: no block was pushed to us. `pool-collector run` records blocks "
    "as they arrive; "
    "blocks read from disk are nearly all of the active chain."
)
NO_REORGS: Final = "No branch was lost in the window, so there is no reorganisation to show."
ONE_NODE: Final = (
    "Not enough data on propagation: that takes two nodes that push the same blocks. Name more in the "
    "settings "
    "file of `pool-collector run`, one `[[node]]` each; they share one clock."
)
LEAST_S: Final = 0.001


def network_section(marts: Marts) -> Section:
    """Show stale blocks, reorganisations and propagation between our nodes."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    pushed = [row for row in marts.ranked("stale_rate") if row["n_blocks"]]
    if pushed:
        parts += [_stale_figure(marts, pushed), _stale_table(marts)]
    else:
        missing.append(NO_ARRIVALS)
    if marts.rows("reorg_depth"):
        parts += [_depth_table(marts), _branch_table(marts)]
    else:
        missing.append(NO_REORGS)
    spreads = [(max(spread_s, LEAST_S), part) for spread_s, part in marts.spreads]
    if len(spreads) > 1:
        parts.append(_spread_figure(marts, spreads))
    if marts.rows("node_propagation"):
        parts.append(_node_table(marts))
    else:
        missing.append(ONE_NODE)
    return Section(
        section_id="network",
        title="Network",
        question="How many blocks are lost, and how fast do blocks spread?",
        intro=(
            "A stale block lost to a rival of its height. A node announces a rival only when it "
            "becomes its tip, "
            "so the rate is a lower bound. Propagation is the time between our own nodes, on one clock."
        ),
        parts=parts,
        missing=missing,
    )


def _stale_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    drawn = [ratio_row(marts, row, "stale") for row in drawable(rows, "stale")]
    return Figure(
        figure_id="stale-chart",
        title="Stale blocks",
        caption=f"Part of the blocks pushed to us that lost, with {INTERVAL}s.{cut_note(rows)}",
        panels=[ratio_panel("stale", "Rate of stale blocks per pool", drawn)],
        marts=("stale_rate",),
        rests_on=on_arrivals(marts),
    )


def _stale_table(marts: Marts) -> Table:
    return mart_table(
        "stale-table",
        "Stale blocks per pool",
        by_pool(marts),
        [field("n_blocks", "Pushed to us"), field("n_stale", "Stale"), *ratio("stale", "Rate")],
        marts.ranked("stale_rate"),
        mart="stale_rate",
    )


def _depth_table(marts: Marts) -> Table:
    return mart_table(
        "depth-table",
        "Reorganisations by depth",
        Head("Depth", lambda row: count(row["depth"])),
        [
            field("n_branches", "Branches that long"),
            field("n_reorgs", "Reorganisations of a node of ours"),
            field("n_undone", "Undone again"),
            *measured("per_1000_blocks", "Per 1,000 blocks", decimal, "per_1000_low", "per_1000_high"),
        ],
        marts.rows("reorg_depth"),
        mart="reorg_depth",
        note="Undone again: the node came back to the blocks it had left.",
    )


def _branch_table(marts: Marts) -> Table:
    return mart_table(
        "branch-table",
        "Every branch off the active chain",
        Head("Height", lambda row: count(row["from_height"])),
        [
            field("depth", "Length"),
            Show(
                "Pools", lambda row: ", ".join(marts.name(pool) for pool in row["pools"] or ()), kind="text"
            ),
            Show(
                "Lost to",
                lambda row: marts.name(row["rival_pool"]) if row["rival_pool"] else NOTHING,
                kind="text",
            ),
            Show("Lead", lambda row: _lead(row["lead_s"])),
            field("followed_depth", "Followed by us"),
            Show("Race", lambda row: "open" if row["is_open"] else "lost", kind="text"),
        ],
        marts.rows("stale_branches"),
        mart="stale_branches",
        n_records=marts.totals["stale_branches"],
        note=(
            "Lead: how long before its rival it reached us; below zero it came later. Followed: blocks that "
            "a node of ours had connected and had to leave. A race is open while the branch is as high as "
            "the active chain."
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
    drawing = panel(
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
        y=Axis(title="Part of blocks", label=PERCENT_AXIS.label, domain=(0, 1)),
    )
    return Figure(
        figure_id="spread-chart",
        title="Propagation between our nodes",
        caption="Height is the part of blocks that our last node pushed within that time of our first.",
        panels=[drawing],
        marts=("block_propagation",),
        rests_on=on_arrivals(marts),
    )


def _node_table(marts: Marts) -> Table:
    return mart_table(
        "propagation-table",
        "How far each node lags behind the first",
        by_text("Node", "node"),
        [
            Show("Of", lambda row: text_of(row["kind"]), kind="text"),
            field("n_shared", "Shared"),
            field("n_first", "First"),
            *ratio("first", "Part"),
            *measured(
                "lag_median_s",
                "Median",
                duration,
                "lag_median_low_s",
                "lag_median_high_s",
                group="Lag",
                between=duration_range,
            ),
            field("lag_p90_s", "90\u00a0%", duration, group="Lag"),
            field("lag_p99_s", "99\u00a0%", duration, group="Lag"),
            field("spread_median_s", "Spread", duration),
            field("connect_median_s", "Validation", duration),
        ],
        marts.rows("node_propagation"),
        mart="node_propagation",
    )
