"""Section: whether pools take the transactions that pay best, and what they take besides."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from analysis.report.charts.charts import Mark, RatioAxis
from analysis.report.data import FEERATE_KINDS, Marts, Row
from analysis.report.findings import NO_MEMPOOL
from analysis.report.model import Figure, LegendEntry, Panel, Section, Table
from analysis.report.parts import (
    PANEL_PX,
    TRANSACTIONS,
    cut_note,
    drawable,
    on_mempool,
    ratio_drawing,
    ratio_row,
)
from analysis.report.sections.choices import choice_parts
from analysis.report.tables import Show, by_pool, field, mart_table, ratio
from analysis.report.text import INTERVAL

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"package": "package feerate", "plain": "plain feerate", "cluster": "cluster-order feerate"}
)
MARKS: Final[Mapping[str, Mark]] = MappingProxyType({"package": "dot", "plain": "ring", "cluster": "diamond"})


def feerate_section(marts: Marts) -> Section:
    """Show acceptance of the top X and of what is outside the top 2X, by both feerates."""
    rows = [row for row in marts.feerates if row["feerate_kind"] in FEERATE_KINDS]
    parts: list[Figure | Table] = []
    missing: list[str] = []
    panels = [
        panel
        for panel in (
            _panel(marts, rows, "top_x", "Top X taken", axis=replace(TRANSACTIONS, largest=1.0)),
            _panel(marts, rows, "outside_2x", "Outside the top 2X taken", axis=TRANSACTIONS),
        )
        if panel is not None
    ]
    if panels:
        parts.append(_figure(marts, rows, panels))
        parts += [_table(marts, rows, kind) for kind in _kinds(rows)]
        parts += choice_parts(marts)
    else:
        missing.append(NO_MEMPOOL)
    return Section(
        section_id="feerate",
        title="Feerate strategy",
        question="Do pools take transactions by feerate?",
        intro=(
            "For each block with X transactions, the mempool as it stood when the block arrived is sorted by "
            "feerate. A pool that takes the best-paying ones takes all of the top X and none outside the "
            "top 2X. Plain feerate is a transaction's own fee per vsize. A transaction's mining score is the "
            "lower of its own feerate and of the feerate of it with all its ancestors; its package feerate "
            "is the highest score among it and its waiting descendants."
        ),
        parts=parts,
        missing=missing,
    )


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Give the feerates that the mart has, in their order."""
    return [kind for kind in FEERATE_KINDS if any(row["feerate_kind"] == kind for row in rows)]


def _panel(marts: Marts, rows: Sequence[Row], name: str, title: str, *, axis: RatioAxis) -> Panel | None:
    """Draw one ratio of every pool, both feerates on one line; None where no pool has it."""
    drawn = [ratio_row(marts, row, name, mark=MARKS[row["feerate_kind"]]) for row in drawable(rows, name)]
    if not drawn:
        return None
    svg = ratio_drawing(f"feerate-{name}", f"{title}, per pool", drawn, width_px=PANEL_PX, axis=axis)
    return Panel(title=title, wide=svg)


def _figure(marts: Marts, rows: Sequence[Row], panels: Sequence[Panel]) -> Figure:
    return Figure(
        figure_id="feerate-chart",
        title="Acceptance by feerate",
        caption=(
            f"Marks are parts of the transactions that a pool's blocks took, lines {INTERVAL}s."
            f"{cut_note(rows)}"
        ),
        panels=panels,
        marts=("feerate_strategy", "feerate_strategy_block"),
        rests_on=on_mempool(marts),
        legend=[
            LegendEntry(label=NAMES[kind], colour="var(--ink)", shape=MARKS[kind]) for kind in _kinds(rows)
        ],
        layout="pair",
    )


def _table(marts: Marts, rows: Sequence[Row], kind: str) -> Table:
    shows: list[Show] = [field("n_blocks", "Blocks"), field("n_unmeasured", "Left out")]
    for name, of, group in (
        ("top_x", "n_top", "Top X"),
        ("outside_2x", "n_outside", "Outside the top 2X"),
    ):
        shows += [
            field(f"{of}_taken", "Taken", group=group),
            field(of, "Of", group=group),
            *ratio(name, "Part", group=group),
        ]
    return mart_table(
        f"feerate-{kind}-table",
        f"Acceptance by {NAMES[kind]}, per pool",
        by_pool(marts),
        shows,
        [row for row in rows if row["feerate_kind"] == kind],
        mart="feerate_strategy",
        note=(
            "Taken and Of count transactions. Left out are blocks whose mempool is not known; empty blocks "
            "have no top X and are not counted. Too few blocks give no interval; where every block took all, "
            "or none, it is that of as many yes-or-no blocks."
        ),
        is_folded=False,
    )
