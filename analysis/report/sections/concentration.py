"""Makes the report's section on how concentrated mining is, and whether the pools' shares change."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report import time_marks
from analysis.report.basis import on_blocks
from analysis.report.charts.lines import (
    Axis,
    Line,
    Point,
    Stroke,
    interval_point,
    line_panel,
    whole_ticks,
)
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, Panel, SectionContent, Table, Unanswered
from analysis.report.pool_comparison import SIGNIFICANCE
from analysis.report.pools import whole_concentration
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
    text_column,
    text_head,
)
from analysis.report.text import (
    INTERVAL,
    MAX_NAMED,
    NOTHING,
    count,
    decimal,
    index_number,
    index_range,
    listed,
    moment,
    p_value,
    percent,
    percent_interval,
    plural,
    share_change,
    text_of,
)
from analysis.report.topic import Topic

INDICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hhi": "Herfindahl-Hirschman index",
        "nakamoto": "Nakamoto coefficient",
        "gini": "Gini coefficient",
        "entropy_bits": "Entropy",
    }
)
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {"hhi": "0 to 1", "nakamoto": "how many", "gini": "0 to 1", "entropy_bits": "bits"}
)
GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"pool": "Pools", "owner": "Companies", "proxy": "Groups with shared templates"}
)
STROKES: Final[Mapping[str, Stroke]] = MappingProxyType(
    {"pool": "solid", "owner": "solid", "proxy": "dashed"}
)
MAX_TOP: Final = 25
TOP: Final = 3
NO_CHANGES: Final = Unanswered(
    question="Do the shares change?",
    lacks="Blocks of two days or difficulty epochs are needed. `pool-collector backfill` reads older ones.",
)
TOO_FEW_TO_TEST: Final = Unanswered(
    question="Do the shares change?",
    lacks=(
        "No two periods have enough blocks: of two pools or more, 5 blocks each must be expected in a "
        "day or difficulty epoch. `pool-collector backfill` reads older blocks."
    ),
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "concentration_index": Read(
            "concentration_index",
            "grouped_by, period_kind, first_height",
            "grouped_by = 'pool' OR period_kind = 'all'",
        ),
        "owner_share": Read("owner_share", "grouped_by, is_unknown, position, owner", "period_kind = 'all'"),
        "share_change": Read("share_change", "period_kind, first_height", "grouped_by = 'pool'"),
        "pool_life": Read("pool_life", "first_height, pool"),
        "pool_rename": Read("pool_rename", "first_height, pool, other"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how concentrated mining is, and whether the shares of pools changed."""
    row = whole_concentration(marts)
    if row is None:
        return []
    said = [_half(row)]
    if row["hhi_low"] is not None:
        interval = index_range(row["hhi_low"], row["hhi_high"])
        # Only pools that mined nothing here can make the index smaller than with equal pools.
        is_lower = row["hhi_low"] < 1 / row["n_owners"]
        unseen = "; further pools may have found no block" if is_lower else ""
        said.append(
            f"By pool, the Herfindahl-Hirschman index of the named blocks is {index_number(row['hhi'])} "
            f"({INTERVAL} {interval}{unseen})."
        )
    said += _top(marts)
    return said + _changes(marts) + _lives(marts)


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: indices, largest owners, changes of shares, pools that come and go."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    whole = [row for row in marts.rows("concentration_index") if row["period_kind"] == "all"]
    if whole:
        lines = _top_lines(marts)
        if lines:  # there is none where no rule names any block
            parts += [_top_figure(marts, lines), _top_table(marts)]
        parts.append(_index_table(marts, whole))
    course = marts.over_time("concentration_index")
    if len(course) > 1:
        parts.append(_course_figure(marts))
    changes = [row for row in marts.rows("share_change") if row["p_value"] is not None]
    if changes:
        parts.append(_change_table(marts))
    else:
        missing.append(TOO_FEW_TO_TEST if marts.rows("share_change") else NO_CHANGES)
    if marts.rows("pool_life"):
        parts.append(_life_table(marts))
    if marts.rows("pool_rename"):
        parts.append(_rename_table(marts))
    return SectionContent(parts=parts, missing=missing)


def _half(row: Row) -> str:
    """Return the sentence on how few pools mined more than half, with its interval and the unknown blocks."""
    n_pools = int(row["nakamoto"])
    mined = f"{plural(n_pools, 'pool')} {'mined' if n_pools == 1 else 'together mined'}"
    low, high = row["nakamoto_low"], row["nakamoto_high"]
    interval = "" if low is None else f" ({INTERVAL} {'only ' if low == high else ''}{_span(low, high)})"
    bounds = sorted((row["nakamoto_if_apart"], row["nakamoto_if_largest"]))
    if not row["unknown_block_count"]:
        unknown = ""
    elif bounds == [n_pools, n_pools]:
        unknown = ", also if the unknown blocks are counted"
    else:
        unknown = f", and {_span(*bounds)} if the unknown blocks are counted"
    return f"{mined} more than half of the named blocks{interval}{unknown}."


def _span(low: float, high: float) -> str:
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _top(marts: Marts) -> list[str]:
    row = next(
        (r for r in marts.rows("owner_share") if r["grouped_by"] == "owner" and r["position"] == TOP), None
    )
    if row is None:
        return []
    interval = percent_interval(row["cumulative_low_ratio"], row["cumulative_high_ratio"])
    has_unknown = any(r["is_unknown"] and r["block_count"] for r in marts.rows("owner_share"))
    blocks = "all blocks, unknown ones included" if has_unknown else "all blocks"
    return [
        (
            f"The {TOP} largest companies, each with all its pools, mined "
            f"{percent(row['cumulative_ratio'])} of {blocks} ({INTERVAL} {interval})."
        )
    ]


def _changes(marts: Marts) -> list[str]:
    tested = [row for row in marts.rows("share_change") if row["adjusted_p_value"] is not None]
    if not tested:
        return []
    kind = "epoch" if any(row["period_kind"] == "epoch" for row in tested) else "day"
    tested = [row for row in tested if row["period_kind"] == kind]
    changed = [row for row in tested if row["adjusted_p_value"] < SIGNIFICANCE]
    periods = plural(len(tested), f"{kind}")
    if not changed:
        return [
            (
                f"No change of the shares is shown: of {periods} compared with the one before, none is "
                "below p = 0.05."
            )
        ]
    return [
        (
            f"The shares changed in {count(len(changed))} of {periods} compared with the one before (p "
            "< 0.05, corrected for the number of tests)."
        )
    ]


def _lives(marts: Marts) -> list[str]:
    said = []
    for flag, side, verb in (("is_birth", "before", "began"), ("is_death", "after", "stopped")):
        lives = [row for row in marts.rows("pool_life") if row[flag]]
        # The pools whose silence is the least likely by chance are named.
        lives.sort(key=lambda row: (row[f"silent_{side}_adjusted_p_value"], -row["block_count"]))
        found = [marts.name(row["pool"]) for row in lives]
        if found:
            named = [*found[:MAX_NAMED], plural(len(found) - MAX_NAMED, "other pool")]
            shown = listed(found if len(found) <= MAX_NAMED else named)
            said.append(f"{shown} {verb} inside the window: their silence is longer than chance explains.")
    return said


def _top_lines(marts: Marts) -> list[Line]:
    """Return the chart lines of the share of the n largest pools, owners and template groups, over n."""
    lines: list[Line] = []
    for index, (group, name) in enumerate(GROUPS.items()):
        rows = [
            row
            for row in marts.rows("owner_share")
            if row["grouped_by"] == group and row["position"] is not None and row["position"] <= MAX_TOP
        ]
        points = [interval_point(row["position"], row, "cumulative", "ratio") for row in rows]
        if points and not any(list(line.points) == points for line in lines):
            lines.append(
                Line(label=name, colour=f"var(--pool-{index + 1})", points=points, stroke=STROKES[group])
            )
    return lines


def _top_figure(marts: Marts, lines: list[Line]) -> Figure:
    """Return the figure of the share of the n largest pools, owners and template groups, drawn as `lines`."""
    n_largest = max(2.0, *(float(len(line.points)) for line in lines))
    ticks = whole_ticks(1, n_largest)
    drawing = line_panel(
        "top-n",
        "Share of the n largest",
        lines,
        x=Axis(title="n largest", label="format(datum.value, 'd')", domain=(1, n_largest), ticks=ticks),
        y=Axis(title="Part of all blocks", label=PERCENT_LABEL, domain=(0, 1)),
    )
    return Figure(
        figure_id="top-n-chart",
        title="Share of the n largest together",
        caption=(
            f"The share is of all blocks, with the unknown ones. Bands are {INTERVAL}s; they allow for "
            "the fact that chance helps to decide who is largest. A grouping with the same curve as "
            "another is not drawn."
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
        "Share per company, and of the n largest together",
        text_head("Company", "owner_name"),
        [
            column("position", "n"),
            column("block_count", "Blocks"),
            *ratio_columns("share", "Share"),
            *ratio_columns("cumulative", "Top n", group="This and all before it"),
            column(
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
            "With unknown: the share if every unknown block were theirs. The CSV also has pools, and "
            "groups with shared templates."
        ),
        is_folded=True,
    )


def _index_table(marts: Marts, whole: list[Row]) -> Table:
    """Return the table of the indices of concentration over all blocks, by pool, owner and template group."""
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
        RowHead("Index", lambda row: f"{INDICES[row['index']]} ({UNITS[row['index']]})"),
        [
            MartColumn("Of", lambda row: GROUPS[row["grouped_by"]], kind="text"),
            *interval_columns("value", "Named blocks", index_number, "low", "high", between=index_range),
            column("if_apart", "Each apart", index_number, group="If unknown blocks are"),
            column("if_largest", "Of the largest", index_number, group="If unknown blocks are"),
            MartColumn("Anybody's", lambda row: index_range(*row["ends"]), group="If unknown blocks are"),
        ],
        rows,
        mart="concentration_index",
        records=marts.rows("concentration_index"),
        n_records=marts.totals["concentration_index"],
        note=(
            "A company counts with all its pools. The intervals allow for those that mined no block here, so "
            "that of the Herfindahl-Hirschman index may begin below 1 / how many did. The CSV also has the "
            "days and difficulty epochs."
        ),
        is_folded=False,
    )


def _ends(row: Row, index: str) -> tuple[float | None, float | None]:
    """Return the smallest and largest value of an index of concentration, whoever mined the unknown blocks.

    Both are None if the row lacks them.
    """
    if index == "gini":
        return row["gini_least"], row["gini_most"]
    found = [value for end in ("apart", "largest") if (value := row[f"{index}_if_{end}"]) is not None]
    return (min(found), max(found)) if found else (None, None)


def _course_figure(marts: Marts) -> Figure:
    course = marts.over_time("concentration_index")
    events = time_marks.events(marts, course[0][0], course[-1][0])
    panels: list[Panel] = []
    for name, title in INDICES.items():
        points = [
            Point(
                x=day,
                y=row[name],
                low=row[f"{name}_low"],
                high=row[f"{name}_high"],
                is_partial=time_marks.is_partial(marts, row),
            )
            for day, row in course
        ]
        if any(point.y is not None for point in points):
            is_whole = name == "nakamoto"  # the index is a whole number, and a line would show values between
            line = Line(
                label=title,
                colour="var(--accent-1)",
                points=points,
                shape="step" if is_whole else "line",
            )
            most = max(point.high or point.y or 1 for point in points)
            axis = Axis(title=UNITS[name], ticks=whole_ticks(0, most + 1) if is_whole else ())
            x = Axis(title="")
            panels.append(
                line_panel(f"index-{name}", title, [line], x=x, y=axis, events=events, is_half=True)
            )
    is_daily = course[0][1]["period_kind"] == "day"
    return Figure(
        figure_id="index-chart",
        title=f"Concentration per {'day' if is_daily else 'difficulty epoch'}",
        caption=(
            f"For pools, over named blocks. Bands, and lines through points, are {INTERVAL}s. The Nakamoto "
            "coefficient is a whole number, so it is drawn in steps."
        ),
        legend=time_marks.course_legend(marts, course, events),
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
        "Changes of the shares from one period to the next, most certain first",
        RowHead("Period", lambda row: f"{text_of(row['period_kind'])} {text_of(row['period'])}"),
        [
            text_column("previous_period", "Before it"),
            column("block_count", "Blocks"),
            column("adjusted_p_value", "p, corrected", p_value),
            column("cramers_v", "Cramér's V", decimal),
            MartColumn("Gained most", lambda row: _moved(marts, row, "gained"), kind="text"),
            MartColumn("Lost most", lambda row: _moved(marts, row, "lost"), kind="text"),
        ],
        rows,
        mart="share_change",
        note="Chi-square test of homogeneity. p is corrected for the number of periods (Holm).",
        is_folded=True,
    )


def _moved(marts: Marts, row: Row, way: str) -> str:
    share = row[f"most_{way}_share"]
    if share is None:
        return NOTHING
    return f"{marts.name(row[f'most_{way}_owner'])} {share_change(share)} points"


def _life_table(marts: Marts) -> Table:
    rows = sorted(marts.ranked("pool_life"), key=lambda row: not (row["is_birth"] or row["is_death"]))
    return mart_table(
        "life-table",
        "First and last block of each pool: pools that began or stopped inside the window",
        pool_head(marts),
        [
            column("block_count", "Blocks"),
            column("first_day", "First", moment, kind="text"),
            column("silent_before_count", "Blocks before", group="Silence before"),
            column("silent_before_p_value", "Chance", p_value, group="Silence before"),
            column("silent_before_adjusted_p_value", "Corrected", p_value, group="Silence before"),
            column("last_day", "Last", moment, kind="text"),
            column("silent_after_count", "Blocks after", group="Silence after"),
            column("silent_after_p_value", "Chance", p_value, group="Silence after"),
            column("silent_after_adjusted_p_value", "Corrected", p_value, group="Silence after"),
            MartColumn("Verdict", _verdict, kind="text"),
        ],
        rows,
        mart="pool_life",
        note=(
            "Chance: how likely such a long silence is at the share that the pool had next to it. Corrected: "
            "the same after a correction for two tests per pool (Holm). A pool began or stopped if "
            "this is below 0.05."
        ),
        is_folded=True,
    )


def _verdict(row: Row) -> str:
    found = [word for word, flag in (("born", "is_birth"), ("ended", "is_death")) if row[flag]]
    return " and ".join(found)


def _rename_table(marts: Marts) -> Table:
    return mart_table(
        "rename-table",
        "Pools that may be one pool under two names",
        pool_head(marts),
        [
            MartColumn("Other", lambda row: marts.name(row["other"]), kind="text"),
            text_column("evidence", "Evidence"),
            column("n_scripts", "Scripts"),
            column("n_blocks", "Blocks"),
            MartColumn("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
            MartColumn(
                "Order", lambda row: "one after the other" if row["is_succession"] else "", kind="text"
            ),
        ],
        marts.rows("pool_rename"),
        mart="pool_rename",
        is_folded=False,
    )


TOPIC: Final = Topic(
    section_id="concentration",
    title="Concentration",
    question="How concentrated is mining, and does that change?",
    intro=(
        "The indices count named blocks only. The Nakamoto coefficient is the smallest number of "
        "owners with more than half of the blocks. The Herfindahl-Hirschman index is the chance "
        "that two random blocks have the same owner. Unknown blocks give bounds: each could be "
        "from a miner of its own, all could be from the largest owner, or they could be anybody's."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
