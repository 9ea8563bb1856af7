"""Makes the report's section on empty blocks: how frequent, how early after the parent, and why."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report import time_marks
from analysis.report.basis import on_arrivals, on_blocks
from analysis.report.charts.distributions import distribution_panel, end_to_draw
from analysis.report.charts.lines import CUT_MARK, PLAIN_LABEL, Axis, Line, Point, interval_point, line_panel
from analysis.report.charts.ratios import ratio_panel
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import ALL, Marts, Read, Row
from analysis.report.model import Figure, LegendKey, SectionContent, Table, Unanswered
from analysis.report.pool_comparison import SIGNIFICANCE, by_count, outlier_sentences
from analysis.report.pools import left_out_note, ratio_row, rows_to_draw
from analysis.report.sections.empty_evidence import evidence_table
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    group_tables,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
)
from analysis.report.text import (
    INTERVAL,
    NOTHING,
    count,
    count_or_none,
    decimal,
    decimal_range,
    duration,
    median,
    p_claim,
    p_value,
    percent,
    plural,
    signed,
    with_interval,
)
from analysis.report.topic import Topic

CUT_NOTE: Final = " The slowest 1\u00a0% of intervals are not shown."
EMPTY_COLOUR: Final = "var(--accent-2)"
NONEMPTY_COLOUR: Final = "var(--accent-1)"
CLOCKS: Final = MappingProxyType({"arrival": "arrival", "header": "header times (less exact)"})
OPEN_BIN_FACTOR: Final = 1.5
NO_INTERVALS: Final = Unanswered(
    question="How soon after the parent do empty blocks come?",
    lacks=(
        "Empty blocks and others are needed whose arrival, and the arrival of whose parent, one clock saw. "
        "`pool-collector run` records arrivals; `pool-collector import arrivals FILE --source NAME --licence "
        "TERMS --url URL` adds published ones."
    ),
)
NO_ARRIVALS: Final = Unanswered(
    question="How soon after the parent's arrival are blocks found?",
    lacks=(
        "No node of ours announced a block as it arrived, so header times stand in, which miners choose. "
        "`pool-collector run` records arrivals."
    ),
)
# A note for tables with p-values of many pools.
CORRECTED: Final = (
    "Of many pools, some have a small p by chance. The corrected p (Holm) is below 0.05 for "
    "any pool in at most 5\u00a0% of windows in which no pool differs."
)
RANK_TEST: Final = (
    column("p_value", "p", p_value, group="Rank test"),
    column("adjusted_p_value", "p, corrected", p_value, group="Rank test"),
    column("rank_biserial", "Effect", signed, group="Rank test"),
)
NOT_COUNTED: Final = (
    "How many transactions these blocks have is not known. `pool-collector run` and "
    "`pool-collector backfill` count them."
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "empty_rate": Read("empty_rate", "period_kind, first_height", "grouped_by = 'network'"),
        "empty_rate_group": Read(
            "empty_rate",
            "grouped_by, is_unknown, n_blocks DESC, owner",
            "grouped_by != 'network' AND period_kind = 'all'",
        ),
        "empty_timing": Read("empty_timing", "owner, clock", "grouped_by = 'pool'"),
        "empty_timing_group": Read("empty_timing", "grouped_by, owner, clock"),
        "empty_hazard": Read("empty_hazard", "owner, clock, from_s", "grouped_by = 'pool'"),
        "empty_predecessors": Read("empty_predecessors", "owner", "grouped_by = 'pool'"),
        "empty_predecessors_group": Read("empty_predecessors", "grouped_by, owner"),
        "empty_classes": Read("empty_classes", "pool"),
        "empty_evidence": Read("empty_evidence", "height, block_hash"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how many blocks are empty, if they come sooner, which pools differ."""
    overall = next((row for row in marts.empties if row["pool"] == ALL), None)
    if overall is None or not overall["n_blocks"]:
        return []
    n_empty, n_blocks = overall["n_empty"], overall["n_blocks"]
    be = "was" if n_empty == 1 else "were"
    said = [f"{count(n_empty)} of {plural(n_blocks, 'block')} {be} empty, {with_interval(overall, 'empty')}."]
    pools = by_count(marts.empties, "n_empty", "n_blocks").above
    said += outlier_sentences(marts, marts.empties, "empty", pools, "mine empty blocks more often")
    return [*said, *_interval_sentence(overall), *cause_sentences(marts)]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: rate of empty blocks, their intervals against others, likely reasons."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    overall = next((row for row in marts.empties if row["pool"] == ALL), None)
    if overall is not None and overall["n_blocks"]:
        parts += [_rate_figure(marts), _rate_table(marts), *_grouped_rates(marts)]
        if marts.interval_curves[True] and marts.interval_curves[False]:
            parts.append(_curve_figure(marts, overall))
        else:
            missing.append(NO_INTERVALS)
        if any(row["n_nonempty_timed"] or row["n_empty_timed"] for row in marts.empties):
            parts.append(_interval_table(marts))
        causes, unknown = cause_parts(marts)
        parts += causes
        missing += unknown
    elif marts.window["n_blocks"]:
        missing.append(NOT_COUNTED)
    return SectionContent(parts=parts, missing=missing)


def cause_parts(marts: Marts) -> tuple[list[Figure | Table], list[Unanswered | str]]:
    """Return the figures and tables on why blocks are empty, and which data are missing for others."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    hazards = [row for row in marts.rows("empty_hazard") if row["owner"] == ALL]
    arrivals = [row for row in hazards if row["clock"] == "arrival" and row["exposure_s"]]
    headers = [row for row in hazards if row["clock"] == "header" and row["exposure_s"]]
    if arrivals:
        parts.append(_hazard_figure(marts, arrivals, "arrival"))
    elif headers:
        parts.append(_hazard_figure(marts, headers, "header"))
        missing.append(NO_ARRIVALS)
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
        parts.append(evidence_table(marts))
    return parts, missing


def _interval_sentence(overall: Row) -> list[str]:
    timed = f"{count(overall['n_empty_timed'])} empty and {count(overall['n_nonempty_timed'])} other"
    if not overall["enough_data"] or overall["p_value"] is None:
        return []
    empty, other = median(overall, "empty"), median(overall, "nonempty")
    medians = f"median {empty} after the parent against {other} of the others"
    test = f"rank test {p_claim(overall['p_value'])}, {timed} blocks"
    if overall["p_value"] >= SIGNIFICANCE:
        return [f"The intervals do not show that empty blocks come sooner or later: {medians} ({test})."]
    effect = overall["rank_biserial"]
    word, share = ("sooner", (1 - effect) / 2) if effect < 0 else ("later", (1 + effect) / 2)
    return [f"Empty blocks came {word}: {medians}, and {word} in {percent(share)} of all pairs ({test})."]


def cause_sentences(marts: Marts) -> list[str]:
    """Return sentences on the circumstances in which empty blocks came, and on who mined their parents."""
    row = next((r for r in marts.rows("empty_classes") if r["pool"] == ALL), None)
    if row is None:
        return []
    judged = row["n_before_template"] + row["n_soon"] + row["n_late"]
    n_empty = judged + row["n_unknown"] + row["n_mempool_empty"]
    if not n_empty:
        return []
    said = _with_something_waiting(marts)
    if judged:
        said.append(
            f"While transactions were waiting, {count(row['n_before_template'])} of "
            f"{plural(n_empty, 'empty block')} came before our node had offered a filled template, "
            f"{count_or_none(row['n_soon'])} after that but within 30 s of the parent, and "
            f"{count_or_none(row['n_late'])} later. This does not tell why they are empty."
        )
    if row["n_unknown"]:
        said.append(
            f"For {plural(row['n_unknown'], 'empty block')} the reason cannot be judged, because the "
            "mempool or the interval is not known."
        )
    own = next((r for r in marts.rows("empty_predecessors") if r["owner"] == ALL), None)
    if own is None or own["stratified_p_value"] is None:
        return said
    same, other = with_interval(own, "same"), with_interval(own, "other")
    test = f"{p_claim(own['stratified_p_value'])} within pools"
    rates = f"{same} after a block of the same pool against {other} after a block of another, {test}"
    if own["stratified_p_value"] < SIGNIFICANCE:
        odds = own["stratified_odds"]
        word = "rarer" if odds is not None and odds < 1 else "more frequent"
        return [*said, f"Empty blocks are {word} after a pool's own: {rates}."]
    return [*said, f"It is not shown that a pool's own parent matters: {rates}."]


def _with_something_waiting(marts: Marts) -> list[str]:
    """Return a sentence that compares empty with other blocks' intervals while transactions were waiting.

    Without arrival times it compares intervals of header times. The list is empty if neither is known.
    """
    clocks = {row["clock"]: row for row in marts.rows("empty_timing") if row["owner"] == ALL}
    arrival, header = clocks.get("arrival"), clocks.get("header")
    if arrival and arrival["p_value"] is not None and arrival["n_mempool_empty"]:
        blocks = plural(arrival["n_mempool_empty"], "block")
        return [f"Without {blocks} at a time when no transaction was waiting, {_medians(arrival)}."]
    if arrival and arrival["p_value"] is None and header and header["p_value"] is not None:
        bias = header["empty_bias_s"]
        known = "not known" if bias is None else f"{signed(bias)}\u00a0s in the median of empty blocks"
        return [f"By header times, which are less exact (bias: {known}), {_medians(header)}."]
    return []


def _medians(row: Row) -> str:
    return (
        f"empty blocks came after a median of {median(row, 'empty')} and others after "
        f"{median(row, 'nonempty')}; rank test {p_claim(row['p_value'])}"
    )


def _rate_figure(marts: Marts) -> Figure:
    rows = [ratio_row(marts, row, "empty") for row in rows_to_draw(marts.empties, "empty")]
    return Figure(
        figure_id="empty-rate-chart",
        title="Rate of empty blocks",
        caption=(
            "Dots show the share of a pool's blocks that is empty, lines the "
            f"{INTERVAL}s.{left_out_note(marts.empties)}"
        ),
        panels=[ratio_panel("empty-rate", "Rate of empty blocks per pool", rows)],
        marts=("empty_intervals",),
        rests_on=on_blocks(marts),
    )


def _rate_table(marts: Marts) -> Table:
    return mart_table(
        "empty-rate-table",
        "Empty blocks per pool",
        pool_head(marts),
        [column("n_blocks", "Blocks"), column("n_empty", "Empty"), *ratio_columns("empty", "Rate")],
        marts.empties,
        mart="empty_intervals",
    )


def _grouped_rates(marts: Marts) -> list[Figure | Table]:
    """Return the figure of the rate of empty blocks over time, and a table for owners of several pools."""
    course = marts.over_time("empty_rate")
    parts: list[Figure | Table] = [_course_figure(marts, course)] if len(course) > 1 else []
    columns = [
        column("n_blocks", "Blocks"),
        column("n_empty", "Empty"),
        *ratio_columns("empty", "Rate"),
        *ratio_columns("fillable_empty", "Rate", group="While transactions were waiting"),
    ]
    return [*parts, *group_tables(marts, "empty_rate_group", "empty-group-table", "Empty blocks", columns)]


def _course_figure(marts: Marts, course: Sequence[tuple[dt.date, Row]]) -> Figure:
    events = time_marks.events(marts, course[0][0], course[-1][0])
    lines = [
        Line(
            label=label,
            colour=colour,
            points=[
                interval_point(day, row, name, "ratio", is_partial=time_marks.is_partial(marts, row))
                for day, row in course
            ],
        )
        for label, colour, name in (
            ("all blocks", EMPTY_COLOUR, "empty"),
            ("something was waiting", NONEMPTY_COLOUR, "fillable_empty"),
        )
        if name == "empty" or any(row["n_nothing_waiting"] for _, row in course)
    ]
    period = "day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    drawing = line_panel(
        "empty-course",
        f"Rate of empty blocks per {period}",
        lines,
        x=Axis(title=""),
        y=Axis(title="Part of blocks", label=PERCENT_LABEL),
        events=events,
    )
    return Figure(
        figure_id="empty-course-chart",
        title=f"Rate of empty blocks per {period}",
        caption=(
            f"Bands are {INTERVAL}s. "
            + (
                (
                    "The second line leaves out blocks at a time when no transaction was waiting. This is "
                    "only known where the mempool was observed."
                )
                if len(lines) > 1
                else "As far as we know, transactions were always waiting."
            )
        ),
        panels=[drawing],
        marts=("empty_rate",),
        rests_on=on_blocks(marts),
        legend=[*(line.legend for line in lines), *time_marks.course_legend(marts, course, events)],
    )


def _curve_figure(marts: Marts, overall: Row) -> Figure:
    end_s = end_to_draw(marts.interval_curves.values())
    curves = [(NONEMPTY_COLOUR, marts.interval_curves[False]), (EMPTY_COLOUR, marts.interval_curves[True])]
    is_cut = end_s < max(points[-1][0] for points in marts.interval_curves.values())

    drawing = distribution_panel(
        "empty-curve",
        "Distribution of block intervals, empty against other blocks",
        f"Median {decimal(overall['empty_median_s'])} s for empty and "
        f"{decimal(overall['nonempty_median_s'])} s for other blocks.",
        curves,
        end_s=end_s,
    )
    return Figure(
        figure_id="empty-curve-chart",
        title="Intervals of empty and other blocks",
        caption=(
            "The height is the share of blocks that came within that time of their parent. The "
            f"further left a line rises, the sooner its blocks came.{CUT_NOTE if is_cut else ''}"
        ),
        panels=[drawing],
        marts=("block_intervals", "empty_intervals"),
        rests_on=on_arrivals(marts),
        legend=[
            LegendKey(label=_counted("empty", overall["n_empty_timed"]), colour=EMPTY_COLOUR, shape="line"),
            LegendKey(
                label=_counted("other", overall["n_nonempty_timed"]), colour=NONEMPTY_COLOUR, shape="line"
            ),
        ],
    )


def _counted(word: str, number: int) -> str:
    return f"{word} (n = {count(number)})"


def _interval_table(marts: Marts) -> Table:
    groups = (("empty", "Empty blocks"), ("nonempty", "Other blocks"))
    return mart_table(
        "empty-interval-table",
        "Interval since the parent block, empty against other blocks",
        pool_head(marts),
        [
            *(shown for name, group in groups for shown in _interval_columns(name, group)),
            *RANK_TEST,
        ],
        [row for row in marts.empties if row["n_empty_timed"] or row["n_nonempty_timed"]],
        mart="empty_intervals",
        records=marts.empties,
        note=(
            "n is the number of blocks with a known interval. p is from the two-sided Mann-Whitney "
            f"test. Effect is the rank-biserial correlation, from \N{MINUS SIGN}1 (every empty block "
            f"came sooner than every other block) to +1. {CORRECTED} {NOTHING} means that there is not "
            "enough data."
        ),
        is_folded=False,
    )


def _interval_columns(name: str, group: str) -> list[MartColumn]:
    """Return the table columns for the intervals of one group of blocks: number, median and quartiles."""
    return [
        column(f"n_{name}_timed", "n", group=group),
        *_median_columns(name, group),
        MartColumn(
            "Quartiles", lambda row: decimal_range(row[f"{name}_q1_s"], row[f"{name}_q3_s"]), "s", group
        ),
    ]


def _median_columns(name: str, group: str) -> tuple[MartColumn, MartColumn]:
    low, high = f"{name}_median_low_s", f"{name}_median_high_s"
    return interval_columns(f"{name}_median_s", "Median", decimal, low, high, unit="s", group=group)


def _hazard_figure(marts: Marts, rows: Sequence[Row], clock: str) -> Figure:
    lines = [
        Line(label=label, colour=colour, points=_steps(rows, name), shape="step")
        for label, colour, name in (
            ("empty blocks", EMPTY_COLOUR, "empty"),
            ("other blocks", NONEMPTY_COLOUR, "nonempty"),
        )
    ]
    drawing = line_panel(
        "empty-hazard",
        "Blocks found per second by the time since the parent",
        lines,
        x=Axis(title="Seconds since the parent", domain=(0, float(lines[0].points[-1].x))),  # type: ignore[arg-type]
        y=Axis(title="Blocks found per second", label=PLAIN_LABEL, cuts_bands=True),
    )
    by_header = " These are header times, which are less exact." if clock == "header" else ""
    return Figure(
        figure_id="empty-hazard-chart",
        title="When empty blocks are found",
        caption=(
            "If miners always worked on full blocks, the line of other blocks would be level, and "
            "there would be no empty blocks. Empty blocks in the first bins, and fewer others there, "
            f"mean that pools start to mine before they have validated the parent. {CUT_MARK} marks a band "
            f"that goes on beyond the edge.{by_header}"
        ),
        panels=[drawing],
        marts=("empty_hazard",),
        rests_on=on_blocks(marts) if clock == "header" else on_arrivals(marts),
        legend=[line.legend for line in lines],
    )


def _steps(rows: Sequence[Row], name: str) -> list[Point]:
    """Return bins of time as the points of a step line, with one more point at the end of the last bin."""
    points = [interval_point(row["from_s"], row, name, "per_s") for row in rows]
    end = rows[-1]["to_s"] or rows[-1]["from_s"] * OPEN_BIN_FACTOR
    last = points[-1]
    return [*points, Point(x=end, y=last.y, low=last.low, high=last.high)]


def _hazard_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("empty_hazard") if row["owner"] == ALL]

    return mart_table(
        "empty-hazard-table",
        "Blocks found per second by the time since the parent, all pools",
        RowHead("Since the parent", _bin),
        [
            MartColumn("Clock", lambda row: CLOCKS[row["clock"]], kind="text"),
            column("exposure_s", "Time in the bin", duration),
            column("n_empty", "Empty"),
            *_rate_columns("empty", "Empty blocks"),
            column("n_nonempty", "Other"),
            *_rate_columns("nonempty", "Other blocks"),
        ],
        rows,
        mart="empty_hazard",
        records=marts.rows("empty_hazard"),
        note="The CSV also has the bins of each pool.",
        is_folded=True,
    )


def _rate_columns(name: str, group: str) -> tuple[MartColumn, MartColumn]:
    low, high = f"{name}_low_per_s", f"{name}_high_per_s"
    return interval_columns(f"{name}_per_s", "Per second", decimal, low, high, group=group)


def _bin(row: Row) -> str:
    if row["to_s"] is None:
        return f"{row['from_s']:g}\u00a0s and more"
    return f"{row['from_s']:g} to {row['to_s']:g}\u00a0s"


def _timing_tables(marts: Marts, rows: Sequence[Row]) -> list[Table]:
    columns: list[MartColumn] = [MartColumn("Clock", lambda row: CLOCKS[row["clock"]], kind="text")]
    for name, group in (("empty", "Empty blocks"), ("nonempty", "Other blocks")):
        columns += [
            column(f"n_{name}", "n", group=group),
            *_median_columns(name, group),
            column(f"{name}_bias_s", "Bias", decimal, unit="s", group=group),
        ]
    columns += RANK_TEST
    table = mart_table(
        "empty-timing-table",
        "Intervals on both clocks, without blocks at a time when no transaction was waiting",
        pool_head(marts, "owner"),
        columns,
        rows,
        mart="empty_timing",
        records=marts.rows("empty_timing"),
        note=(
            "Bias is the median difference between the interval on this clock and the interval "
            "between arrivals, over the blocks that have both: the error of header times. Pools "
            f"without an empty block are in the CSV only. {CORRECTED} {NOTHING} means that there is "
            "not enough data."
        ),
    )
    name, title = "empty_timing_group", "Intervals on both clocks"
    return [table, *group_tables(marts, name, "empty-timing-group-table", title, columns)]


def _class_table(marts: Marts, rows: Sequence[Row]) -> Table:
    return mart_table(
        "empty-class-table",
        "What was measured when empty blocks came",
        pool_head(marts),
        [
            column("n_blocks", "Blocks"),
            column("n_before_template", "Before template", group="Empty blocks"),
            column("n_soon", "Soon", group="Empty blocks"),
            column("n_late", "Late", group="Empty blocks"),
            column("n_unknown", "Not known", group="Empty blocks"),
            column("n_mempool_empty", "Nothing waited", group="Empty blocks"),
            *ratio_columns("excluded_empty", "Rate", group="Without blocks while nothing waited"),
        ],
        rows,
        mart="empty_classes",
        note=(
            "Before template: before our node had offered a filled template on the parent. Soon: after "
            "that, but within 30 s of the parent. Late: later. Not known: the mempool or the interval is "
            "not known. Whether a pool had checked the parent cannot be seen."
        ),
    )


def _predecessor_tables(marts: Marts, rows: Sequence[Row]) -> list[Table]:
    columns: list[MartColumn] = []
    for name, group in (("same", "After its own block"), ("other", "After another's")):
        columns += [
            column(f"n_after_{name}", "Blocks", group=group),
            column(f"n_empty_after_{name}", "Empty", group=group),
            *ratio_columns(name, "Rate", group=group),
        ]
    columns += [
        *interval_columns("odds", "Odds", decimal, "odds_low", "odds_high", group="Same against other"),
        column("p_value", "p", p_value, group="Same against other"),
        column("adjusted_p_value", "p, corrected", p_value, group="Same against other"),
    ]
    within = [
        *interval_columns(
            "stratified_odds",
            "Odds",
            decimal,
            "stratified_odds_low",
            "stratified_odds_high",
            group="Compared within pools",
        ),
        column("stratified_p_value", "p", p_value, group="Compared within pools"),
    ]
    table = mart_table(
        "empty-predecessor-table",
        "Empty blocks after a block of the same pool",
        pool_head(marts, "owner"),
        [*columns, *within],
        rows,
        mart="empty_predecessors",
        note=(
            "Odds below 1 mean that empty blocks are rarer after the pool's own block, which the pool "
            "knows before anybody else. The test is Fisher's exact test. The row of all pools is also "
            "compared within each pool (Mantel and Haenszel), because a large pool often follows "
            f"itself anyway. {CORRECTED}"
        ),
    )
    name, title = "empty_predecessors_group", "Empty blocks after a block of the same owner"
    return [table, *group_tables(marts, name, "empty-predecessor-group-table", title, columns)]


TOPIC: Final = Topic(
    section_id="empty",
    title="Empty blocks",
    question="When are blocks empty?",
    intro=(
        "An empty block holds its coinbase and nothing else. Its interval is the time from the "
        "arrival of its parent to its own arrival, on our clock; a block that we fetched later has no "
        "interval. A pool that gives out work before it has chosen transactions mines empty blocks at "
        "short intervals, whether it has validated the parent or not."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
