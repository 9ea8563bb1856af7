"""Section: who mines how many blocks, over all and per day, and how that was found out."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from analysis.report import charts
from analysis.report.data import Marts, Row
from analysis.report.findings import INTERVAL, NO_BLOCKS
from analysis.report.model import Column, Figure, Panel, Section, Table, TableRow
from analysis.report.parts import (
    colour,
    cut_note,
    drawable,
    pool_row,
    ratio_cells,
    ratio_panel,
    ratio_row,
)
from analysis.report.svg import draw
from analysis.report.text import count, moment, percent, plural, text_of
from analysis.statistics import wilson_intervals

DAY_PANEL_PX: Final = 204
MAX_DAY_PANELS: Final = 8
MAX_TABLE_DAYS: Final = 31
METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {"payout": "payout script", "tag": "coinbase tag", "none": "no rule matched"}
)


def share_section(marts: Marts) -> Section:
    """Show who mined how many blocks, over all and per day, and how that was found out."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    shown = [row for row in marts.shares if row["block_count"]]
    if shown:
        parts += [_share_figure(marts, shown), _share_table(marts)]
    else:
        missing.append(NO_BLOCKS)
    days = sorted({row["day"] for row in marts.day_shares})
    if len(days) > 1:
        parts += [_day_figure(marts, days), _day_table(marts, days)]
    elif days:
        missing.append(
            f"All blocks are of one UTC day, {moment(days[0])}: there is no course of days to draw."
        )
    if marts.methods:
        parts.append(_method_table(marts))
    if marts.doubtful:
        parts.append(_doubtful_table(marts))
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
    )


def _share_table(marts: Marts) -> Table:
    return Table(
        table_id="share-table",
        caption="Blocks and share per pool",
        head="Pool",
        columns=[Column(label="Blocks"), Column(label="Share"), Column(label=INTERVAL)],
        rows=[
            pool_row(marts, row, count(row["block_count"]), *ratio_cells(row, "share"))
            for row in marts.shares
        ],
    )


def _day_figure(marts: Marts, days: Sequence[dt.date]) -> Figure:
    pools = [*marts.pools[:MAX_DAY_PANELS], *(row["pool"] for row in marts.shares if row["is_unknown"])]
    courses = {pool: _course(marts, pool) for pool in pools}
    largest = max(high for course in courses.values() for *_, high in course)
    panels = []
    for index, (pool, course) in enumerate(courses.items()):
        svg = draw(
            charts.days(course, largest=largest, colour=colour(marts, pool), width_px=DAY_PANEL_PX),
            name=f"share-day-{index}",
            title=f"Share of {marts.name(pool)} per day",
            description=f"{len(days)} days with {INTERVAL}s; the numbers are in the table below.",
        )
        panels.append(Panel(title=marts.name(pool), wide=svg, colour=colour(marts, pool)))
    return Figure(
        figure_id="share-day-chart",
        title="Share per day",
        caption=(
            f"UTC days. The band is the {INTERVAL} of the day; all panels have one scale."
            f"{cut_note(marts.shares, MAX_DAY_PANELS)}"
        ),
        panels=panels,
        layout="grid",
    )


def _course(marts: Marts, pool: str) -> list[tuple[dt.date, float, float, float]]:
    """Give a pool's share, low and high end on every day; a day without a block of it is a share of 0."""
    totals = {row["day"]: row["total_block_count"] for row in marts.day_shares}
    found = {
        row["day"]: (row["share_ratio"], row["share_low_ratio"], row["share_high_ratio"])
        for row in marts.day_shares
        if row["pool"] == pool
    }
    _, highs = wilson_intervals(np.zeros(len(totals)), np.array(list(totals.values()), float))
    return [(day, *found.get(day, (0.0, 0.0, float(high)))) for day, high in zip(totals, highs, strict=True)]


def _day_table(marts: Marts, days: Sequence[dt.date]) -> Table:
    kept = set(days[-MAX_TABLE_DAYS:])
    rows = [row for row in marts.day_shares if row["day"] in kept]
    order = {row["pool"]: index for index, row in enumerate(marts.shares)}
    rows.sort(key=lambda row: (row["day"], order.get(row["pool"], len(order))))
    note = (
        f"The last {MAX_TABLE_DAYS} of {len(days)} days; all: pool-analysis show pool_share_day --format csv."
        if len(days) > len(kept)
        else ""
    )
    return Table(
        table_id="share-day-table",
        caption="Blocks and share per UTC day and pool",
        head="Pool",
        columns=[
            Column(label="Day", kind="text"),
            Column(label="Blocks"),
            Column(label="Of"),
            Column(label="Share"),
            Column(label=INTERVAL),
        ],
        rows=[
            pool_row(
                marts,
                row,
                moment(row["day"]),
                count(row["block_count"]),
                count(row["total_block_count"]),
                *ratio_cells(row, "share"),
            )
            for row in rows
        ],
        note=note,
        is_folded=True,
    )


def _method_table(marts: Marts) -> Table:
    total = sum(row["block_count"] for row in marts.methods)
    return Table(
        table_id="method-table",
        caption="How blocks were attributed",
        head="By",
        columns=[Column(label="Blocks"), Column(label="Part of all")],
        rows=[
            TableRow(
                head=METHODS.get(row["method"] or "none", text_of(row["method"])),
                cells=[count(row["block_count"]), percent(row["block_count"] / total)],
            )
            for row in marts.methods
        ],
    )


def _doubtful_table(marts: Marts) -> Table:
    has_text = "coinbase_text" in marts.doubtful[0]
    columns = [Column(label="Pool", kind="text"), Column(label="Other candidates", kind="long")]
    if has_text:
        columns.append(Column(label="Text in the coinbase", kind="long"))
    rows = []
    for row in marts.doubtful:
        others = ", ".join(marts.name(pool) for pool in dict.fromkeys(row["conflicts"] or ())) or "none"
        cells = [marts.name(row["pool"]), others]
        if has_text:
            cells.append(text_of(row["coinbase_text"]))
        rows.append(TableRow(head=str(row["height"]), cells=cells))
    cut = marts.n_doubtful - len(rows)
    note = f"{plural(cut, 'more block')}: pool-analysis show block_pool." if cut else ""
    return Table(
        table_id="doubtful-table",
        caption="Blocks that no rule names, or that rules of more than one pool match",
        head="Height",
        columns=columns,
        rows=rows,
        note=note,
        is_folded=True,
    )
