"""Section: how often blocks are empty, and whether empty ones come sooner than others."""

import datetime as dt
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from analysis.report.charts import charts
from analysis.report.charts.curves import PERCENT_AXIS, Axis, Line, banded, panel
from analysis.report.charts.svg import draw
from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Column, Figure, LegendEntry, Panel, Section, Table
from analysis.report.parts import (
    NARROW_PX,
    WIDE_PX,
    cut_note,
    drawable,
    on_arrivals,
    on_blocks,
    pool_row,
    ratio_cells,
    ratio_panel,
    ratio_row,
)
from analysis.report.sections.causes import CORRECTED, EMPTY_COLOUR, NONEMPTY_COLOUR, cause_parts
from analysis.report.tables import FOLDED_FROM, field, group_tables, ratio
from analysis.report.text import INTERVAL, NO_BLOCKS, NOTHING, count, decimal, decimal_range, p_value, signed

# With fewer intervals than this the longest one is shown; with more, the slowest 1 % are cut off.
MIN_FOR_CUT: Final = 200
CUT_AT_RATIO: Final = 0.99
CUT_NOTE: Final = " The slowest 1\u00a0% lie beyond the edge."


def empty_section(marts: Marts) -> Section:
    """Show the rate of empty blocks, and the intervals of empty against other blocks."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    overall = next((row for row in marts.empties if row["pool"] == ALL), None)
    if overall is None or not overall["n_blocks"]:
        missing.append(NO_BLOCKS)
    else:
        parts += [_rate_figure(marts), _rate_table(marts), *_grouped_rates(marts)]
        if marts.curves[True] and marts.curves[False]:
            parts.append(_curve_figure(marts, overall))
        else:
            missing.append(
                "Not enough data to draw intervals: they need empty and other blocks whose arrival and whose "
                "parent's arrival were both announced to us."
            )
        if any(row["n_nonempty_timed"] or row["n_empty_timed"] for row in marts.empties):
            parts.append(_interval_table(marts))
        causes, unknown = cause_parts(marts)
        parts += causes
        missing += unknown
    return Section(
        section_id="empty",
        title="Empty blocks",
        question="When are blocks empty?",
        intro=(
            "An empty block holds its coinbase and nothing else. Its interval is the time from the arrival "
            "of its parent to its own arrival, on our clock; a block that we fetched later has none. A pool "
            "that starts on a new block before it has checked the last one mines empty blocks at short "
            "intervals."
        ),
        parts=parts,
        missing=missing,
    )


def _rate_figure(marts: Marts) -> Figure:
    rows = [ratio_row(marts, row, "empty") for row in drawable(marts.empties, "empty")]
    return Figure(
        figure_id="empty-rate-chart",
        title="Rate of empty blocks",
        caption=(
            f"Dots are the part of a pool's blocks that is empty, lines their {INTERVAL}s."
            f"{cut_note(marts.empties)}"
        ),
        panels=[ratio_panel("empty-rate", "Rate of empty blocks per pool", rows)],
        marts=("empty_intervals",),
        rests_on=on_blocks(marts),
    )


def _rate_table(marts: Marts) -> Table:
    return Table(
        table_id="empty-rate-table",
        caption="Empty blocks per pool",
        head="Pool",
        columns=[
            Column(label="Blocks"),
            Column(label="Empty"),
            Column(label="Rate"),
            Column(label=INTERVAL),
        ],
        rows=[
            pool_row(marts, row, count(row["n_blocks"]), count(row["n_empty"]), *ratio_cells(row, "empty"))
            for row in marts.empties
        ],
        mart="empty_intervals",
        records=marts.empties,
        is_folded=len(marts.empties) > FOLDED_FROM,
    )


def _grouped_rates(marts: Marts) -> list[Figure | Table]:
    """Show the rate over time, and with entities grouped."""
    course = marts.course("empty_rate")
    parts: list[Figure | Table] = [_course_figure(course, on_blocks(marts))] if len(course) > 1 else []
    shows = [
        field("n_blocks", "Blocks"),
        field("n_empty", "Empty"),
        *ratio("empty", "Rate"),
        *ratio("fillable_empty", "Rate", group="While something was waiting"),
    ]
    return [*parts, *group_tables(marts, "empty_rate_group", "empty-group-table", "Empty blocks", shows)]


def _course_figure(course: Sequence[tuple[dt.date, Row]], rests_on: str) -> Figure:
    lines = [
        Line(
            label=label,
            colour=colour,
            points=[banded(day, row, name, "ratio") for day, row in course],
        )
        for label, colour, name in (
            ("all blocks", EMPTY_COLOUR, "empty"),
            ("something was waiting", NONEMPTY_COLOUR, "fillable_empty"),
        )
        if name == "empty" or any(row["n_nothing_waiting"] for _, row in course)
    ]
    period = "day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    drawing = panel(
        "empty-course",
        f"Rate of empty blocks per {period}",
        lines,
        x=Axis(title=""),
        y=Axis(title="Part of blocks", label=PERCENT_AXIS.label),
    )
    return Figure(
        figure_id="empty-course-chart",
        title=f"Rate of empty blocks per {period}",
        caption=(
            f"Bands are {INTERVAL}s. "
            + (
                "The second line is without blocks at which nothing was waiting; where the mempool was not "
                "observed nothing can be left out."
                if len(lines) > 1
                else "No block is known at which nothing was waiting."
            )
        ),
        panels=[drawing],
        marts=("empty_rate",),
        rests_on=rests_on,
        legend=[line.legend for line in lines],
    )


def _curve_figure(marts: Marts, overall: Row) -> Figure:
    end_s = max(_end(points) for points in marts.curves.values()) or 1.0
    curves = [(NONEMPTY_COLOUR, marts.curves[False]), (EMPTY_COLOUR, marts.curves[True])]
    is_cut = end_s < max(points[-1][0] for points in marts.curves.values())

    def at(width_px: int, suffix: str) -> Markup:
        return draw(
            charts.distribution(curves, end_s=end_s, width_px=width_px),
            name=f"empty-curve-{suffix}",
            title="Distribution of block intervals, empty against other blocks",
            description=(
                f"Median {decimal(overall['empty_median_s'])} s for empty and "
                f"{decimal(overall['nonempty_median_s'])} s for other blocks."
            ),
        )

    return Figure(
        figure_id="empty-curve-chart",
        title="Intervals of empty and other blocks",
        caption=(
            "Height is the part of blocks that came within that time of their parent: the further left a "
            f"line rises, the sooner its blocks came.{CUT_NOTE if is_cut else ''}"
        ),
        panels=[Panel(title="", wide=at(WIDE_PX, "wide"), narrow=at(NARROW_PX, "narrow"))],
        marts=("block_intervals", "empty_intervals"),
        rests_on=on_arrivals(marts),
        legend=[
            LegendEntry(label=_counted("empty", overall["n_empty_timed"]), colour=EMPTY_COLOUR, shape="line"),
            LegendEntry(
                label=_counted("other", overall["n_nonempty_timed"]), colour=NONEMPTY_COLOUR, shape="line"
            ),
        ],
    )


def _end(points: list[tuple[float, float]]) -> float:
    """Give the longest interval to show of a curve."""
    if len(points) < MIN_FOR_CUT:
        return points[-1][0]
    return next(interval_s for interval_s, ratio in points if ratio >= CUT_AT_RATIO)


def _counted(word: str, number: int) -> str:
    return f"{word} (n = {count(number)})"


def _interval_table(marts: Marts) -> Table:
    columns = [
        Column(label=label, unit=unit, group=group)
        for group in ("Empty blocks", "Other blocks")
        for label, unit in (("n", ""), ("Median", "s"), (INTERVAL, "s"), ("Quartiles", "s"))
    ]
    tests = [Column(label=label, group="Rank test") for label in ("p", "p, corrected", "Effect")]
    return Table(
        table_id="empty-interval-table",
        caption="Interval since the parent block, empty against other blocks",
        head="Pool",
        columns=columns + tests,
        rows=[
            pool_row(marts, row, *_interval_cells(row))
            for row in marts.empties
            if row["n_empty_timed"] or row["n_nonempty_timed"]
        ],
        mart="empty_intervals",
        records=marts.empties,
        note=(
            "n counts blocks with an interval. p is of the two-sided Mann-Whitney test. Effect is the "
            "rank-biserial correlation, from \N{MINUS SIGN}1 (every empty block came sooner than every "
            f"other) to +1. {CORRECTED} {NOTHING} stands where there is not enough data."
        ),
    )


def _interval_cells(row: Row) -> list[str]:
    cells = []
    for group in ("empty", "nonempty"):
        cells += [
            count(row[f"n_{group}_timed"]),
            decimal(row[f"{group}_median_s"]),
            decimal_range(row[f"{group}_median_low_s"], row[f"{group}_median_high_s"]),
            decimal_range(row[f"{group}_q1_s"], row[f"{group}_q3_s"]),
        ]
    return [
        *cells,
        p_value(row["p_value"]),
        p_value(row["adjusted_p_value"]),
        signed(row["rank_biserial"]),
    ]
