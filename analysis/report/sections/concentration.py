"""Section: how concentrated mining is, whether the shares change, and which pools come and go."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.charts.curves import PERCENT_AXIS, Axis, Line, Point, Stroke, banded, panel, whole_ticks
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Panel, Section, Table
from analysis.report.parts import on_blocks
from analysis.report.tables import Head, Show, by_pool, by_text, field, mart_table, measured, ratio, words
from analysis.report.text import (
    INTERVAL,
    NO_BLOCKS,
    NOTHING,
    count,
    decimal,
    moment,
    p_value,
    percent,
    signed,
    text_of,
)

INDICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hhi": "Herfindahl-Hirschman index",
        "nakamoto": "Nakamoto coefficient",
        "gini": "Gini coefficient",
        "entropy_bits": "Entropy",
    }
)
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {"hhi": "0 to 1", "nakamoto": "owners", "gini": "0 to 1", "entropy_bits": "bits"}
)
GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"pool": "Pools", "owner": "Owners", "proxy": "Groups sharing templates"}
)
STROKES: Final[Mapping[str, Stroke]] = MappingProxyType(
    {"pool": "solid", "owner": "solid", "proxy": "dashed"}
)
MAX_TOP: Final = 25


def concentration_section(marts: Marts) -> Section:
    """Show the indices, the top n, changes of the shares, and births, deaths and renames."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    whole = [row for row in marts.rows("concentration_index") if row["period_kind"] == "all"]
    if whole:
        parts += [_top_figure(marts), _top_table(marts), _index_table(marts, whole)]
    else:
        missing.append(NO_BLOCKS)
    course = marts.course("concentration_index")
    if len(course) > 1:
        parts.append(_course_figure(marts))
    elif course:
        missing.append("All blocks are of one UTC day: there is no course of the indices to draw.")
    changes = [row for row in marts.rows("share_change") if row["p_value"] is not None]
    if changes:
        parts.append(_change_table(marts))
    else:
        missing.append("Not enough data to test for changes: that takes two days or epochs with blocks.")
    if marts.rows("pool_life"):
        parts.append(_life_table(marts))
    if marts.rows("pool_rename"):
        parts.append(_rename_table(marts))
    else:
        missing.append("No two pools were paid by one script, and no declared rename falls into the window.")
    return Section(
        section_id="concentration",
        title="Concentration",
        question="How concentrated is mining, and does that change?",
        intro=(
            "Indices are of the named blocks. The Nakamoto coefficient is the fewest owners with more than "
            "half of them; the Herfindahl-Hirschman index is the chance that two blocks have one owner. "
            "Unknown blocks give bounds: each of a miner of its own, all of the largest owner, or anybody's."
        ),
        parts=parts,
        missing=missing,
    )


def _top_figure(marts: Marts) -> Figure:
    """Draw the share of the n largest for each grouping."""
    lines: list[Line] = []
    for index, (group, name) in enumerate(GROUPS.items()):
        rows = [
            row
            for row in marts.rows("owner_share")
            if row["grouped_by"] == group and row["position"] is not None and row["position"] <= MAX_TOP
        ]
        points = [banded(row["position"], row, "cumulative", "ratio") for row in rows]
        if points and not any(list(line.points) == points for line in lines):
            lines.append(
                Line(label=name, colour=f"var(--pool-{index + 1})", points=points, stroke=STROKES[group])
            )
    n_largest = max(2.0, *(float(len(line.points)) for line in lines))
    ticks = whole_ticks(1, n_largest)
    drawing = panel(
        "top-n",
        "Share of the n largest",
        lines,
        x=Axis(title="n largest", label="format(datum.value, 'd')", domain=(1, n_largest), ticks=ticks),
        y=Axis(title="Part of all blocks", label=PERCENT_AXIS.label, domain=(0, 1)),
    )
    return Figure(
        figure_id="top-n-chart",
        title="Share of the n largest together",
        caption=(
            f"Of all blocks, unknown ones included; bands are {INTERVAL}s, which allow for the luck of those "
            "who came out largest. A grouping like another is not drawn."
        ),
        panels=[drawing],
        marts=("owner_share",),
        rests_on=on_blocks(marts),
        legend=[line.legend for line in lines],
    )


def _top_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("owner_share") if row["grouped_by"] == "owner"]
    return mart_table(
        "top-n-table",
        "Share per owner, and of the n largest together",
        by_text("Owner", "owner_name"),
        [
            field("position", "n"),
            field("block_count", "Blocks"),
            *ratio("share", "Share"),
            *ratio("cumulative", "Top n", group="This and all before it"),
            field(
                "cumulative_if_largest_ratio",
                "With unknown",
                percent,
                group="This and all before it",
            ),
        ],
        rows,
        mart="owner_share",
        records=marts.rows("owner_share"),
        note=(
            "With unknown: if every unknown block were one of theirs. The CSV also has pools and "
            "proxy groups."
        ),
        is_folded=True,
    )


def _index_table(marts: Marts, whole: list[Row]) -> Table:
    """Show every index of every grouping over the whole window."""
    order = list(GROUPS)
    rows = [
        {
            "grouped_by": row["grouped_by"],
            "index": index,
            "value": row[index],
            "low": row[f"{index}_low"],
            "high": row[f"{index}_high"],
            "if_apart": row[f"{index}_if_apart"],
            "if_largest": row[f"{index}_if_largest"],
            "ends": _ends(row, index),
        }
        for row in sorted(whole, key=lambda row: order.index(row["grouped_by"]))
        for index in INDICES
    ]
    return mart_table(
        "index-table",
        "Indices of concentration over the whole window",
        Head("Index", lambda row: f"{INDICES[row['index']]} ({UNITS[row['index']]})"),
        [
            Show("Of", lambda row: GROUPS[row["grouped_by"]], kind="text"),
            *measured("value", "Named blocks", _index, "low", "high", between=_index_range),
            field("if_apart", "Each apart", _index, group="If unknown blocks are"),
            field("if_largest", "Of the largest", _index, group="If unknown blocks are"),
            Show("Anybody's", lambda row: _index_range(*row["ends"]), group="If unknown blocks are"),
        ],
        rows,
        mart="concentration_index",
        records=marts.rows("concentration_index"),
        n_records=marts.totals["concentration_index"],
        note="The CSV also has the days and difficulty epochs.",
        is_folded=False,
    )


def _ends(row: Row, index: str) -> tuple[float | None, float | None]:
    """Give the least and the most of an index over every way to give out the unknown blocks."""
    if index == "gini":
        return row["gini_least"], row["gini_most"]
    found = [value for end in ("apart", "largest") if (value := row[f"{index}_if_{end}"]) is not None]
    return (min(found), max(found)) if found else (None, None)


def _index(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}".rstrip("0").rstrip(".")


def _index_range(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"{_index(low)} to {_index(high)}"


def _course_figure(marts: Marts) -> Figure:
    course = marts.course("concentration_index")
    panels: list[Panel] = []
    for name, title in INDICES.items():
        points = [
            Point(x=day, y=row[name], low=row[f"{name}_low"], high=row[f"{name}_high"]) for day, row in course
        ]
        if any(point.y is not None for point in points):
            line = Line(label=title, colour="var(--accent-1)", points=points)
            axis = Axis(title=UNITS[name])
            panels.append(panel(f"index-{name}", title, [line], x=Axis(title=""), y=axis, is_half=True))
    is_daily = course[0][1]["period_kind"] == "day"
    return Figure(
        figure_id="index-chart",
        title=f"Concentration per {'day' if is_daily else 'difficulty epoch'}",
        caption=f"Of pools and of named blocks; bands are {INTERVAL}s.",
        panels=panels,
        marts=("concentration_index",),
        rests_on=on_blocks(marts),
        layout="pair",
    )


def _change_table(marts: Marts) -> Table:
    tested = [row for row in marts.rows("share_change") if row["p_value"] is not None]
    rows = sorted(tested, key=lambda row: (row["adjusted_p_value"], -row["cramers_v"]))
    return mart_table(
        "change-table",
        "Changes of the shares from one period to the next, surest first",
        Head("Period", lambda row: f"{text_of(row['period_kind'])} {text_of(row['period'])}"),
        [
            words("previous_period", "Before it"),
            field("block_count", "Blocks"),
            field("adjusted_p_value", "p, corrected", p_value),
            field("cramers_v", "Cramér's V", decimal),
            Show("Gained most", lambda row: _moved(marts, row, "gained"), kind="text"),
            Show("Lost most", lambda row: _moved(marts, row, "lost"), kind="text"),
        ],
        rows,
        mart="share_change",
        note="Chi-square test of homogeneity; p is corrected for the number of periods (Holm).",
        is_folded=True,
    )


def _moved(marts: Marts, row: Row, way: str) -> str:
    share = row[f"most_{way}_share"]
    if share is None:
        return NOTHING
    return f"{marts.name(row[f'most_{way}_owner'])} {signed(100 * share)} points"


def _life_table(marts: Marts) -> Table:
    rows = sorted(marts.ranked("pool_life"), key=lambda row: not (row["is_birth"] or row["is_death"]))
    return mart_table(
        "life-table",
        "First and last block of each pool: births and deaths inside the window",
        by_pool(marts),
        [
            field("block_count", "Blocks"),
            field("first_day", "First", moment, kind="text"),
            field("silent_before_count", "Blocks before", group="Silence before"),
            field("silent_before_p_value", "Chance", p_value, group="Silence before"),
            field("silent_before_adjusted_p_value", "Corrected", p_value, group="Silence before"),
            field("last_day", "Last", moment, kind="text"),
            field("silent_after_count", "Blocks after", group="Silence after"),
            field("silent_after_p_value", "Chance", p_value, group="Silence after"),
            field("silent_after_adjusted_p_value", "Corrected", p_value, group="Silence after"),
            Show("", _verdict, kind="text"),
        ],
        rows,
        mart="pool_life",
        note=(
            "Chance of such a silence for a pool of constant share, corrected for two tests of every pool "
            "(Holm); born and ended where that is below 0.05."
        ),
        is_folded=True,
    )


def _verdict(row: Row) -> str:
    found = [word for word, flag in (("born", "is_birth"), ("ended", "is_death")) if row[flag]]
    return " and ".join(found)


def _rename_table(marts: Marts) -> Table:
    return mart_table(
        "rename-table",
        "Pools that may be one under two names",
        by_pool(marts),
        [
            Show("Other", lambda row: marts.name(row["other"]), kind="text"),
            words("evidence", "Evidence"),
            field("n_scripts", "Scripts"),
            field("n_blocks", "Blocks"),
            Show("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
            Show("", lambda row: "one after the other" if row["is_succession"] else "", kind="text"),
        ],
        marts.rows("pool_rename"),
        mart="pool_rename",
        is_folded=False,
    )
