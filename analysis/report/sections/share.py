"""Section: who mines how many blocks, over all and per day, and how that was found out."""

import datetime as dt
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.report.charts import charts
from analysis.report.charts.svg import draw
from analysis.report.data import MAX_DAYS, Marts, Row
from analysis.report.model import Figure, Panel, Section, Table
from analysis.report.parts import (
    colour,
    cut_note,
    drawable,
    on_blocks,
    ratio_panel,
    ratio_row,
)
from analysis.report.tables import MAX_TABLE_ROWS, Show, by_pool, field, mart_table, ratio
from analysis.report.text import INTERVAL, NO_BLOCKS, moment, percent
from analysis.stats.intervals import wilson_intervals

DAY_PANEL_PX = 204
MAX_DAY_PANELS = 8
Course = list[tuple[dt.date, float, float, float]]


def share_section(marts: Marts) -> Section:
    """Show who mined how many blocks, over all and over time."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    shown = [row for row in marts.shares if row["block_count"]]
    if shown:
        parts += [_share_figure(marts, shown), _share_table(marts)]
    else:
        missing.append(NO_BLOCKS)
    days = sorted({row["day"] for row in marts.day_shares})
    if len(days) > 1:
        parts += [_course_figure(marts, days), _day_table(marts, days)]
    elif days:
        missing.append(
            f"All blocks are of one UTC day, {moment(days[0])}: there is no course of days to draw."
        )
    return Section(
        section_id="share",
        title="Pool share",
        question="Who mines the blocks?",
        intro=(
            "Each block is attributed by its payout script, else by the tag in its coinbase. A share is "
            "the part of all blocks on the active chain. Blocks that no rule names are shown as unknown: "
            "they may belong to any pool, also to one of those above, and are not ranked."
        ),
        parts=parts,
        missing=missing,
    )


def _share_figure(marts: Marts, shown: Sequence[Row]) -> Figure:
    rows = [ratio_row(marts, row, "share") for row in drawable(shown, "share")]
    return Figure(
        figure_id="share-chart",
        title="Share of blocks",
        caption=f"Dots are shares of all blocks, lines their {INTERVAL}s.{cut_note(shown)}",
        panels=[ratio_panel("share-chart", "Share of blocks per pool", rows)],
        marts=("pool_share", "block_pool"),
        rests_on=on_blocks(marts),
    )


def _share_table(marts: Marts) -> Table:
    return mart_table(
        "share-table",
        "Blocks and share per pool",
        by_pool(marts),
        [
            field("block_count", "Blocks"),
            *ratio("share", "Share"),
            field("share_if_theirs_ratio", "With unknown", percent),
        ],
        marts.shares,
        mart="pool_share",
        note="With unknown: if every unknown block were this pool's.",
        is_folded=False,
    )


def _course_figure(marts: Marts, days: Sequence[dt.date]) -> Figure:
    """Draw one panel per pool: by day, or by difficulty epoch where the days are many."""
    pools = [*marts.pools[:MAX_DAY_PANELS], *(row["pool"] for row in marts.shares if row["is_unknown"])]
    is_daily = len(days) <= MAX_DAYS
    found = _by_day(marts) if is_daily else _by_epoch(marts)
    courses = {pool: _course(found, pool) for pool in pools}
    largest = max(high for course in courses.values() for *_, high in course)
    period = "day" if is_daily else "difficulty epoch"
    panels = []
    for index, (pool, course) in enumerate(courses.items()):
        svg = draw(
            charts.days(course, largest=largest, colour=colour(marts, pool), width_px=DAY_PANEL_PX),
            name=f"share-day-{index}",
            title=f"Share of {marts.name(pool)} per {period}",
            description=f"{len(course)} values with {INTERVAL}s.",
        )
        panels.append(Panel(title=marts.name(pool), wide=svg, colour=colour(marts, pool)))
    return Figure(
        figure_id="share-day-chart",
        title=f"Share per {period}",
        caption=(
            f"{'UTC days' if is_daily else 'Epochs of 2,016 blocks, by their first day'}. The band is the "
            f"{INTERVAL} of the {period}; all panels have one scale.{cut_note(marts.shares, MAX_DAY_PANELS)}"
        ),
        panels=panels,
        marts=("pool_share_day",) if is_daily else ("owner_share",),
        rests_on=on_blocks(marts),
        layout="grid",
    )


Shares = Mapping[dt.date, tuple[int, Mapping[str, Row]]]  # period: all blocks, and the row of each pool


def _by_day(marts: Marts) -> Shares:
    found: dict[dt.date, tuple[int, dict[str, Row]]] = {}
    for row in marts.day_shares:
        found.setdefault(row["day"], (row["total_block_count"], {}))[1][row["pool"]] = row
    return found


def _by_epoch(marts: Marts) -> Shares:
    found: dict[dt.date, tuple[int, dict[str, Row]]] = {}
    for row in marts.rows("owner_share_epoch"):
        day = marts.epochs[int(row["period"])]
        found.setdefault(day, (row["total_block_count"], {}))[1][row["owner"]] = row
    return found


def _course(found: Shares, pool: str) -> Course:
    """Give a pool's share, low and high end in every period; one without a block of it is a share of 0."""
    totals = np.array([total for total, _ in found.values()], float)
    _, highs = wilson_intervals(np.zeros(len(totals)), totals)
    course: Course = []
    for (day, (_, rows)), high in zip(found.items(), highs, strict=True):
        row = rows.get(pool)
        ends = (row["share_ratio"], row["share_low_ratio"], row["share_high_ratio"]) if row else None
        course.append((day, *(ends or (0.0, 0.0, float(high)))))
    return course


def _day_table(marts: Marts, days: Sequence[dt.date]) -> Table:
    """Show the last days; the CSV has all that fit, newest first."""
    order = {row["pool"]: index for index, row in enumerate(marts.shares)}
    newest = sorted(
        marts.day_shares, key=lambda row: (-row["day"].toordinal(), order.get(row["pool"], len(order)))
    )
    return mart_table(
        "share-day-table",
        "Blocks and share per UTC day and pool, newest first",
        by_pool(marts),
        [
            Show("Day", lambda row: moment(row["day"]), kind="text"),
            field("block_count", "Blocks"),
            field("total_block_count", "Of"),
            *ratio("share", "Share"),
        ],
        newest,
        mart="pool_share_day",
        note=f"{len(days)} days." if len(newest) > MAX_TABLE_ROWS else "",
        is_folded=True,
    )
