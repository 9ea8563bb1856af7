"""Makes the report's section on pool shares: who mines how many blocks, in all and per day."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from analysis.report import share_windows
from analysis.report.basis import on_blocks
from analysis.report.charts.lines import day_chart
from analysis.report.charts.svg import draw
from analysis.report.data import Marts, Read, Row, is_per_day
from analysis.report.model import Figure, Panel, SectionContent, Table
from analysis.report.pools import left_out_note, pool_colour, prominent_pools, unmapped_labels
from analysis.report.tables import MartColumn, column, mart_table, pool_head, ratio_columns, shown_rows
from analysis.report.text import (
    INTERVAL,
    count,
    listed_pools,
    moment,
    percent,
    plural,
    printable,
    with_interval,
)
from analysis.report.topic import Topic
from analysis.stats.intervals import wilson_intervals

DAY_PANEL_PX: Final = 204
MAX_DAY_PANELS: Final = 8
Course = list[tuple[dt.date, float, float, float]]

READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        **share_windows.READS,
        "owner_share_epoch": Read(
            "owner_share",
            "first_height, is_unknown, position, owner",
            "grouped_by = 'pool' AND period_kind = 'epoch'",
        ),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: who mined the most blocks, how certain that is, how many are unknown."""
    ranked = [row for row in marts.shares if not row["is_unknown"] and row["block_count"]]
    unknown = next((row for row in marts.shares if row["is_unknown"] and row["block_count"]), None)
    if not ranked and unknown is None:
        return []
    said = _leaders(marts, ranked) if ranked else []
    if unknown is None:
        said.append(f"Every block is attributed, to {plural(len(ranked), 'pool')} in all.")
    else:
        blocks = plural(unknown["block_count"], "block")
        said.append(
            f"No rule names the pool of {blocks}, {with_interval(unknown, 'share')}; they are shown apart."
        )
        for source, rows in unmapped_labels(marts).items():
            if n_called := sum(row["unknown_count"] for row in rows):
                said.append(
                    f"For {count(n_called)} of them {printable(source)} names a pool, but no pool in "
                    "data/pools has that name."
                )
    return said + share_windows.recent_leader(marts) + share_windows.risers(marts)


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: how many blocks each pool mined, over the whole window and over time."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    shown = [row for row in marts.shares if row["block_count"]]
    if shown:
        parts += [share_windows.window_figure(marts), _share_table(marts)]
    days = sorted({row["day"] for row in marts.day_shares})
    if len(days) > 1:
        stack = share_windows.stack_figure(marts)
        if stack:
            parts += [stack, *share_windows.period_tables(marts)]
        parts += [share_windows.window_table(marts), _course_figure(marts, days), _day_table(marts, days)]
    return SectionContent(parts=parts, missing=missing)


def _leaders(marts: Marts, ranked: Sequence[Row]) -> list[str]:
    """Return sentences on which pool mined most blocks, and if it is certain that the second mined fewer."""
    first = ranked[0]
    of_all = f"{count(first['block_count'])} of {plural(first['total_block_count'], 'block')}"
    tied = [marts.name(row["pool"]) for row in ranked if row["block_count"] == first["block_count"]]
    if len(tied) > 1:
        return [f"{listed_pools(tied)} mined the most: {of_all} each, {with_interval(first, 'share')}."]
    sentence = f"{tied[0]} mined the most: {of_all}, {with_interval(first, 'share')}."
    if len(ranked) == 1:
        return [sentence]
    second = ranked[1]
    follows = f"{marts.name(second['pool'])} follows with {with_interval(second, 'share')}"
    if second["share_high_ratio"] < first["share_low_ratio"]:
        return [sentence, f"{follows}, and the two intervals do not overlap."]
    return [sentence, f"{follows}; the two intervals overlap, so the order of the two is not certain."]


def _share_table(marts: Marts) -> Table:
    return mart_table(
        "share-table",
        "Blocks and share per pool",
        pool_head(marts),
        [
            column("block_count", "Blocks"),
            *ratio_columns("share", "Share"),
            column("share_if_theirs_ratio", "With unknown", percent),
        ],
        marts.shares,
        mart="pool_share",
        note="With unknown: the share if every unknown block were this pool's.",
        is_folded=False,
    )


def _course_figure(marts: Marts, days: Sequence[dt.date]) -> Figure:
    """Return the figure of the share of each large pool over time, one panel per pool.

    A point is a day, or a difficulty epoch if there are many days or many blocks without a day.
    """
    pools = [
        *prominent_pools(marts, MAX_DAY_PANELS),
        *(row["pool"] for row in marts.shares if row["is_unknown"]),
    ]
    n_of_days, n_blocks = (
        sum(row["block_count"] for row in rows)
        for rows in (marts.day_shares, marts.rows("owner_share_epoch"))
    )
    is_daily = is_per_day(len(days), n_of_days, n_blocks)
    found = _by_day(marts) if is_daily else _by_epoch(marts)
    courses = {pool: _course(found, pool) for pool in pools}
    largest = max(high for course in courses.values() for *_, high in course)
    period = "day" if is_daily else "difficulty epoch"
    panels = []
    for index, (pool, course) in enumerate(courses.items()):
        svg = draw(
            day_chart(course, largest=largest, colour=pool_colour(marts, pool), width_px=DAY_PANEL_PX),
            name=f"share-day-{index}",
            title=f"Share of {marts.name(pool)} per {period}",
            description=f"{plural(len(course), 'value')} with {INTERVAL}s.",
        )
        panels.append(Panel(title=marts.name(pool), wide=svg, colour=pool_colour(marts, pool)))
    return Figure(
        figure_id="share-day-chart",
        title=f"Share per {period}",
        caption=(
            f"{'UTC days' if is_daily else 'Epochs of 2,016 blocks, by their first day'}. The band is the "
            f"{INTERVAL} of the {period}; all panels have one scale."
            f"{left_out_note(marts.shares, MAX_DAY_PANELS)}"
        ),
        panels=panels,
        marts=("pool_share_day",) if is_daily else ("owner_share",),
        rests_on=on_blocks(marts),
        layout="grid",
    )


Shares = Mapping[
    dt.date, tuple[int, Mapping[str, Row]]
]  # by first day of the period: its number of blocks, and each pool's row


def _by_day(marts: Marts) -> Shares:
    found: dict[dt.date, tuple[int, dict[str, Row]]] = {}
    for row in marts.day_shares:
        found.setdefault(row["day"], (row["total_block_count"], {}))[1][row["pool"]] = row
    return found


def _by_epoch(marts: Marts) -> Shares:
    found: dict[dt.date, tuple[int, dict[str, Row]]] = {}
    for row in marts.rows("owner_share_epoch"):
        day = marts.epochs.get(int(row["period"]))
        if day is None:  # no source gives a time of the epoch
            continue
        found.setdefault(day, (row["total_block_count"], {}))[1][row["owner"]] = row
    return found


def _course(found: Shares, pool: str) -> Course:
    """Return a pool's share in every period, as (day, share, lower end of its interval, upper end).

    In a period without a block of the pool the share is 0.
    """
    totals = np.array([total for total, _ in found.values()], float)
    _, highs = wilson_intervals(np.zeros(len(totals)), totals)
    course: Course = []
    for (day, (_, rows)), high in zip(found.items(), highs, strict=True):
        row = rows.get(pool)
        ends = (row["share_ratio"], row["share_low_ratio"], row["share_high_ratio"]) if row else None
        course.append((day, *(ends or (0.0, 0.0, float(high)))))
    return course


def _day_table(marts: Marts, days: Sequence[dt.date]) -> Table:
    """Return the table of shares per day, newest first; the page shows the last days, the CSV has all."""
    order = {row["pool"]: index for index, row in enumerate(marts.shares)}
    newest = sorted(
        marts.day_shares, key=lambda row: (-row["day"].toordinal(), order.get(row["pool"], len(order)))
    )
    return mart_table(
        "share-day-table",
        "Blocks and share per UTC day and pool, newest first",
        pool_head(marts),
        [
            MartColumn("Day", lambda row: moment(row["day"]), kind="text"),
            column("block_count", "Blocks"),
            column("total_block_count", "Of"),
            *ratio_columns("share", "Share"),
        ],
        newest,
        mart="pool_share_day",
        note=f"{plural(len(days), 'day')}." if len(shown_rows(newest)) < len(newest) else "",
        is_folded=True,
    )


TOPIC: Final = Topic(
    section_id="share",
    title="Pool share",
    question="Who mines the blocks?",
    intro=(
        "Each block is attributed by its payout script; if no rule matches that, by the tag in "
        "its coinbase. A share is a pool's part of all blocks on the active chain. Blocks that no "
        "rule names are shown as unknown. They may belong to any pool, also to one that is named "
        "above, and they have no rank."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
