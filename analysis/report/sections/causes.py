"""Why blocks are empty: parts of the section on empty blocks beyond rate and intervals."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.curves import PLAIN_LABEL, Axis, Line, Point, banded, panel
from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Figure, Table
from analysis.report.parts import on_arrivals, on_blocks
from analysis.report.tables import (
    Head,
    Show,
    by_pool,
    field,
    group_tables,
    mart_table,
    measured,
    ratio,
    words,
)
from analysis.report.text import NOTHING, count, decimal, duration, p_value, signed

EMPTY_COLOUR: Final = "var(--accent-2)"
NONEMPTY_COLOUR: Final = "var(--accent-1)"
CLOCKS: Final[Mapping[str, str]] = MappingProxyType(
    {"arrival": "arrival", "header": "header times (fallback)"}
)
OPEN_BIN_FACTOR: Final = 1.5
# Said where p-values of many pools stand beneath each other.
CORRECTED: Final = (
    "Of many pools some have a small p by chance. The corrected one (Holm) is below 0.05 for any pool in at "
    "most 5\u00a0% of windows in which no pool differs."
)


def cause_parts(marts: Marts) -> tuple[list[Figure | Table], list[str]]:
    """Give the figures and tables, and what could not be shown."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    hazards = [row for row in marts.rows("empty_hazard") if row["owner"] == ALL]
    arrivals = [row for row in hazards if row["clock"] == "arrival" and row["exposure_s"]]
    headers = [row for row in hazards if row["clock"] == "header" and row["exposure_s"]]
    if arrivals:
        parts.append(_hazard_figure(marts, arrivals, "arrival"))
    elif headers:
        parts.append(_hazard_figure(marts, headers, "header"))
        missing.append(
            "No arrival was pushed to us, so the time since the parent is taken from header times, "
            "which miners "
            "choose: often when a job is made and not when the block is found. `pool-collector run` "
            "records arrivals."
        )
    if hazards:
        parts.append(_hazard_table(marts))
    timings = [row for row in marts.ranked("empty_timing", "owner") if row["n_empty"]]
    if timings:
        parts += _timing_tables(marts, timings)
    classes = [row for row in marts.ranked("empty_classes") if row["n_blocks"]]
    if classes:
        parts.append(_class_table(marts, classes))
    predecessors = [row for row in marts.ranked("empty_predecessors", "owner") if row["n_after_same"]]
    if predecessors:
        parts += _predecessor_tables(marts, predecessors)
    if marts.rows("empty_evidence"):
        parts.append(_evidence_table(marts))
    return parts, missing


def _hazard_figure(marts: Marts, rows: Sequence[Row], clock: str) -> Figure:
    lines = [
        Line(label=label, colour=colour, points=_steps(rows, name), shape="step")
        for label, colour, name in (
            ("empty blocks", EMPTY_COLOUR, "empty"),
            ("other blocks", NONEMPTY_COLOUR, "nonempty"),
        )
    ]
    drawing = panel(
        "empty-hazard",
        "Blocks found per second by the time since the parent",
        lines,
        x=Axis(title="Seconds since the parent", domain=(0, float(lines[0].points[-1].x))),  # type: ignore[arg-type]
        y=Axis(title="Blocks per second, while the next was not found", label=PLAIN_LABEL),
    )
    by_header = " By header times, a fallback." if clock == "header" else ""
    return Figure(
        figure_id="empty-hazard-chart",
        title="When empty blocks are found",
        caption=(
            "Memoryless mining of full blocks is one level for other blocks and none for empty ones. "
            "Empty blocks in the "
            f"first bins, and fewer others there, mean mining before the parent is validated.{by_header}"
        ),
        panels=[drawing],
        marts=("empty_hazard",),
        rests_on=on_blocks(marts) if clock == "header" else on_arrivals(marts),
        legend=[line.legend for line in lines],
    )


def _steps(rows: Sequence[Row], name: str) -> list[Point]:
    """Give one step per bin, and an end for the last."""
    points = [banded(row["from_s"], row, name, "per_s") for row in rows]
    end = rows[-1]["to_s"] or rows[-1]["from_s"] * OPEN_BIN_FACTOR
    last = points[-1]
    return [*points, Point(x=end, y=last.y, low=last.low, high=last.high)]


def _hazard_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("empty_hazard") if row["owner"] == ALL]

    def rate(name: str, group: str) -> tuple[Show, Show]:
        return measured(
            f"{name}_per_s",
            "Per second",
            decimal,
            f"{name}_low_per_s",
            f"{name}_high_per_s",
            group=group,
        )

    return mart_table(
        "empty-hazard-table",
        "Blocks found per second by the time since the parent, all pools",
        Head("Since the parent", _bin),
        [
            Show("Clock", lambda row: CLOCKS[row["clock"]], kind="text"),
            field("exposure_s", "Time in the bin", duration),
            field("n_empty", "Empty"),
            *rate("empty", "Empty blocks"),
            field("n_nonempty", "Other"),
            *rate("nonempty", "Other blocks"),
        ],
        rows,
        mart="empty_hazard",
        records=marts.rows("empty_hazard"),
        note="The CSV also has the bins of each pool.",
        is_folded=True,
    )


def _bin(row: Row) -> str:
    if row["to_s"] is None:
        return f"{row['from_s']:g}\u00a0s and more"
    return f"{row['from_s']:g} to {row['to_s']:g}\u00a0s"


def _timing_tables(marts: Marts, rows: Sequence[Row]) -> list[Table]:
    shows: list[Show] = [Show("Clock", lambda row: CLOCKS[row["clock"]], kind="text")]
    for name, group in (("empty", "Empty blocks"), ("nonempty", "Other blocks")):
        shows += [
            field(f"n_{name}", "n", group=group),
            *measured(
                f"{name}_median_s",
                "Median",
                decimal,
                f"{name}_median_low_s",
                f"{name}_median_high_s",
                unit="s",
                group=group,
            ),
            field(f"{name}_bias_s", "Bias", decimal, unit="s", group=group),
        ]
    shows += [
        field("p_value", "p", p_value, group="Rank test"),
        field("adjusted_p_value", "p, corrected", p_value, group="Rank test"),
        field("rank_biserial", "Effect", signed, group="Rank test"),
    ]
    table = mart_table(
        "empty-timing-table",
        "Intervals on both clocks, without blocks found while nothing was waiting",
        by_pool(marts, "owner"),
        shows,
        rows,
        mart="empty_timing",
        records=marts.rows("empty_timing"),
        note=(
            "Bias is the median of this clock's interval minus that between arrivals, over blocks that "
            "have both: "
            "what the fallback gets wrong. Pools without an empty block are in the CSV only. "
            f"{CORRECTED} {NOTHING}: not enough data."
        ),
    )
    name, title = "empty_timing_group", "Intervals on both clocks"
    return [table, *group_tables(marts, name, "empty-timing-group-table", title, shows)]


def _class_table(marts: Marts, rows: Sequence[Row]) -> Table:
    return mart_table(
        "empty-class-table",
        "What speaks for why blocks are empty",
        by_pool(marts),
        [
            field("n_blocks", "Blocks"),
            field("n_validationless", "Before validation", group="Empty blocks"),
            field("n_idle", "Idle", group="Empty blocks"),
            field("n_unknown", "Not known", group="Empty blocks"),
            field("n_mempool_empty", "Nothing waited", group="Empty blocks"),
            *ratio("excluded_empty", "Rate", group="Without blocks when nothing waited"),
        ],
        rows,
        mart="empty_classes",
        note=(
            "Before validation: within 30 s of the parent's arrival while transactions were waiting. "
            "Idle: later than that. "
            "Not known: the mempool or the interval is not known. A class is evidence, not proof."
        ),
    )


def _predecessor_tables(marts: Marts, rows: Sequence[Row]) -> list[Table]:
    shows: list[Show] = []
    for name, group in (("same", "After its own block"), ("other", "After another's")):
        shows += [
            field(f"n_after_{name}", "Blocks", group=group),
            field(f"n_empty_after_{name}", "Empty", group=group),
            *ratio(name, "Rate", group=group),
        ]
    shows += [
        *measured("odds", "Odds", decimal, "odds_low", "odds_high", group="Same against other"),
        field("p_value", "p", p_value, group="Same against other"),
        field("adjusted_p_value", "p, corrected", p_value, group="Same against other"),
    ]
    within = [
        *measured(
            "stratified_odds",
            "Odds",
            decimal,
            "stratified_odds_low",
            "stratified_odds_high",
            group="Compared within pools",
        ),
        field("stratified_p_value", "p", p_value, group="Compared within pools"),
    ]
    table = mart_table(
        "empty-predecessor-table",
        "Empty blocks after a block of the same pool",
        by_pool(marts, "owner"),
        [*shows, *within],
        rows,
        mart="empty_predecessors",
        note=(
            "Odds below 1: rarer after its own block, which the pool knows before anybody else. "
            "Fisher's exact test. All pools are also compared within each pool (Mantel and Haenszel): large "
            f"pools follow themselves more often, whatever they do. {CORRECTED}"
        ),
    )
    name, title = "empty_predecessors_group", "Empty blocks after a block of the same owner"
    return [table, *group_tables(marts, name, "empty-predecessor-group-table", title, shows)]


def _evidence_table(marts: Marts) -> Table:
    return mart_table(
        "empty-evidence-table",
        "Every empty block",
        Head("Height", lambda row: count(row["height"])),
        [
            Show("Pool", lambda row: marts.name(row["pool"]), kind="text"),
            Show(
                "Parent's",
                lambda row: marts.name(row["parent_pool"]) if row["parent_pool"] else NOTHING,
                kind="text",
            ),
            words("evidence", "Evidence"),
            field("interval_s", "Interval", duration),
            field("header_interval_s", "By header", duration),
            field("n_mempool", "Waiting"),
            field("template_ready_s", "Our template", duration),
        ],
        marts.rows("empty_evidence"),
        mart="empty_evidence",
        n_records=marts.totals["empty_evidence"],
        note=(
            "Our template: when a node of ours had a filled one on the same parent, after the "
            "parent's arrival."
        ),
        is_folded=True,
    )
