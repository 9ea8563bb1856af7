"""Section: whether pools take the transactions that pay best, and what they take besides."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.charts import Mark
from analysis.report.data import FEERATE_KINDS, Marts, Row
from analysis.report.findings import INTERVAL, NO_MEMPOOL
from analysis.report.model import Column, Figure, LegendEntry, Panel, Section, Table
from analysis.report.parts import (
    PANEL_PX,
    cut_note,
    drawable,
    pool_row,
    ratio_cells,
    ratio_drawing,
    ratio_row,
)
from analysis.report.text import count

NAMES: Final[Mapping[str, str]] = MappingProxyType({"package": "package feerate", "plain": "plain feerate"})
MARKS: Final[Mapping[str, Mark]] = MappingProxyType({"package": "dot", "plain": "ring"})


def feerate_section(marts: Marts) -> Section:
    """Show acceptance of the top X and of what is outside the top 2X, by both feerates."""
    rows = [row for row in marts.feerates if row["feerate_kind"] in FEERATE_KINDS]
    parts: list[Figure | Table] = []
    missing: list[str] = []
    panels = [
        panel
        for panel in (
            _panel(marts, rows, "top_x", "Top X taken", largest=1.0),
            _panel(marts, rows, "outside_2x", "Outside the top 2X taken"),
        )
        if panel is not None
    ]
    if panels:
        parts.append(_figure(rows, panels))
        parts += [_table(marts, rows, kind) for kind in FEERATE_KINDS]
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


def _panel(
    marts: Marts, rows: list[Row], name: str, title: str, *, largest: float | None = None
) -> Panel | None:
    """Draw one ratio of every pool, both feerates on one line; None where no pool has it."""
    drawn = [ratio_row(marts, row, name, mark=MARKS[row["feerate_kind"]]) for row in drawable(rows, name)]
    if not drawn:
        return None
    svg = ratio_drawing(f"feerate-{name}", f"{title}, per pool", drawn, width_px=PANEL_PX, largest=largest)
    return Panel(title=title, wide=svg)


def _figure(rows: list[Row], panels: list[Panel]) -> Figure:
    return Figure(
        figure_id="feerate-chart",
        title="Acceptance by feerate",
        caption=(
            f"Dots and rings are parts of the transactions that a pool's blocks took, lines {INTERVAL}s."
            f"{cut_note(rows)}"
        ),
        panels=panels,
        legend=[
            LegendEntry(label=NAMES[kind], colour="var(--ink)", shape=MARKS[kind]) for kind in FEERATE_KINDS
        ],
        layout="pair",
    )


def _table(marts: Marts, rows: list[Row], kind: str) -> Table:
    columns = [Column(label="Blocks"), Column(label="Left out")]
    for group in ("Top X", "Outside the top 2X"):
        columns += [Column(label=label, group=group) for label in ("Taken", "Of", "Part", INTERVAL)]
    return Table(
        table_id=f"feerate-{kind}-table",
        caption=f"Acceptance by {NAMES[kind]}, per pool",
        head="Pool",
        columns=columns,
        rows=[
            pool_row(
                marts,
                row,
                count(row["n_blocks"]),
                count(row["n_unmeasured"]),
                count(row["n_top_taken"]),
                count(row["n_top"]),
                *ratio_cells(row, "top_x"),
                count(row["n_outside_taken"]),
                count(row["n_outside"]),
                *ratio_cells(row, "outside_2x"),
            )
            for row in rows
            if row["feerate_kind"] == kind
        ],
        note=(
            "Taken and Of count transactions. Left out are blocks whose mempool is not known; empty blocks "
            "have no top X and are not counted. Too few blocks, or blocks all alike, give no interval."
        ),
    )
