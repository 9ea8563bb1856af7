"""Makes the report's section on users: how long transactions wait, how they end, and what users pay."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_mempool
from analysis.report.charts.lines import (
    DURATION_LABEL,
    PLAIN_LABEL,
    Axis,
    Line,
    Point,
    duration_ticks,
    interval_point,
    line_panel,
)
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, Panel, SectionContent, Table
from analysis.report.pools import N_COLOURS
from analysis.report.tables import MartColumn, RowHead, column, mart_table, ratio_columns, text_head
from analysis.report.text import (
    INTERVAL,
    NOTHING,
    count,
    decimal,
    duration,
    moment,
    percent,
    plural,
    printable,
    text_of,
    with_interval,
)
from analysis.report.topic import Topic

DRAWN_DECILES: Final = (1, 3, 5, 8, 10)
USES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "signalling": "signal RBF",
        "replaced": "were replaced",
        "child": "have a waiting parent",
        "cpfp": "pay for a parent (CPFP)",
    }
)
NO_ENTRIES: Final = "No transaction was seen as it entered a mempool. `pool-collector run` records this."
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "confirmation_decile": Read("confirmation_decile", "decile"),
        "confirmation_delay": Read("confirmation_delay", "decile, at_s"),
        "user_day": Read("user_day", "node, day"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how long low and high payers wait, and how many use RBF and CPFP."""
    deciles = {r["decile"]: r for r in marts.rows("confirmation_decile")}
    if 0 not in deciles or not deciles[0]["n_entered"]:
        return []
    said = []
    low, high = deciles.get(1), deciles.get(10)
    if low is not None and high is not None:
        said.append(
            f"Half of the best-paying tenth was mined {_half(high)}; half of the least-paying tenth "
            f"{_half(low)}."
        )
        if low["accepted_ratio"] is not None and high["accepted_ratio"] is not None:
            said.append(
                f"Of those whose end we saw, {with_interval(low, 'accepted')} of the least-paying tenth "
                f"and {with_interval(high, 'accepted')} of the best-paying tenth were mined."
            )
    everyone = deciles[0]
    said.append(
        f"{count(everyone['n_censored'])} of {plural(everyone['n_entered'], 'transaction')} were "
        "still waiting when we stopped watching them."
    )
    replaced = percent(everyone["n_replaced"] / everyone["n_entered"])
    said.append(f"{replaced} of the {plural(everyone['n_entered'], 'transaction')} were replaced.")
    return said + _paying(marts)


def _paying(marts: Marts) -> list[str]:
    """Return a sentence on how many transactions paid for a parent, at the one node that saw most of them.

    Each of several nodes counts a transaction for itself, so their counts cannot be added.
    """
    counts: dict[str, tuple[int, int]] = {}
    for row in marts.rows("user_day"):
        n_entered, n_paying = counts.get(row["node"], (0, 0))
        counts[row["node"]] = (n_entered + row["n_entered"], n_paying + row["n_cpfp"])
    if not counts:
        return []
    node, (n_entered, n_paying) = max(counts.items(), key=lambda item: item[1][0])
    if not n_entered:
        return []
    entered = f"the {plural(n_entered, 'transaction')} that entered the mempool of the node {printable(node)}"
    return [f"Of {entered}, {percent(n_paying / n_entered)} paid for a waiting parent."]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: how transactions wait and end by feerate decile, and what users pay."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    if _drawn(marts):
        parts += [_delay_figure(marts), _decile_table(marts), _delay_table(marts)]
    else:
        missing.append(NO_ENTRIES)
    days = {row["day"] for row in marts.rows("user_day")}
    if len(days) > 1:
        parts += [_day_figure(marts), _use_figure(marts)]
    if marts.rows("user_day"):
        parts += [_fee_table(marts), _use_table(marts)]
    return SectionContent(parts=parts, missing=missing)


def _half(row: Row) -> str:
    if row["half_mined_s"] is None:
        return "not at all within the time watched"
    return f"within {duration(row['half_mined_s'])}"


def _drawn(marts: Marts) -> list[Row]:
    """Return the rows that the charts of confirmation delay show: five feerate deciles with known waits."""
    return [
        row
        for row in marts.rows("confirmation_delay")
        if row["decile"] in DRAWN_DECILES and row["at_s"] > 0 and row["waiting_ratio"] is not None
    ]


def _delay_figure(marts: Marts) -> Figure:
    rows = _drawn(marts)
    low_s, high_s = min(row["at_s"] for row in rows), max(row["at_s"] for row in rows)
    x = Axis(
        title="Time since entry, logarithmic",
        label=DURATION_LABEL,
        is_log=True,
        domain=(low_s, 1.25 * high_s),
        ticks=duration_ticks(low_s, high_s),
    )
    y = Axis(title="Part of transactions", label=PERCENT_LABEL, domain=(0, 1))
    curves = {
        name: [_line(rows, decile, name) for decile in DRAWN_DECILES if _has(rows, decile)]
        for name in ("waiting", "mined")
    }
    panels = [
        line_panel(
            "delay-waiting", "Not mined yet (Kaplan-Meier)", curves["waiting"], x=x, y=y, is_half=True
        ),
        line_panel("delay-mined", "Mined (cumulative incidence)", curves["mined"], x=x, y=y, is_half=True),
    ]
    return Figure(
        figure_id="delay-chart",
        title="Delay to confirmation by feerate decile",
        caption=f"Decile 1 pays the least, decile 10 the most. Bands are {INTERVAL}s.",
        panels=panels,
        marts=("confirmation_delay", "confirmation_curves"),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in curves["waiting"]],
        layout="pair",
    )


def _has(rows: list[Row], decile: int) -> bool:
    return any(row["decile"] == decile for row in rows)


def _line(rows: list[Row], decile: int, name: str) -> Line:
    points = [interval_point(row["at_s"], row, name, "ratio") for row in rows if row["decile"] == decile]
    tint = _tint(DRAWN_DECILES.index(decile))
    return Line(label=f"decile {decile}", colour=tint, points=points)


def decile_name(row: Row) -> str:
    """Return the feerate decile of a row as "1" to "10", or as "all" for decile 0, all deciles together."""
    return "all" if not row["decile"] else f"{row['decile']}"


def _decile_head() -> RowHead:
    return RowHead("Decile", decile_name, is_total=lambda row: not row["decile"])


def _decile_table(marts: Marts) -> Table:
    return mart_table(
        "decile-table",
        "What became of the transactions of each feerate decile",
        _decile_head(),
        [
            MartColumn(
                "Feerate",
                lambda row: (
                    NOTHING
                    if row["feerate_low_sat_vb"] is None
                    else f"{decimal(row['feerate_low_sat_vb'])} to {decimal(row['feerate_high_sat_vb'])}"
                ),
                "sat/vB",
            ),
            column("n_entered", "Entered"),
            column("n_mined", "Mined", group="Ends"),
            column("n_replaced", "Replaced", group="Ends"),
            column("n_expired", "Expired", group="Ends"),
            column("n_other", "Other", group="Ends"),
            column("n_censored", "Not seen", group="Ends"),
            *ratio_columns("accepted", "Accepted"),
            column("half_mined_s", "Half mined by", duration),
        ],
        marts.rows("confirmation_decile"),
        mart="confirmation_decile",
        note=(
            "Accepted: share of mined transactions among those whose end we saw. It is too high where "
            "many ends were not seen."
        ),
        is_folded=False,
    )


def _delay_table(marts: Marts) -> Table:
    return mart_table(
        "delay-table",
        "Waiting, mined, replaced and expired by time since entry",
        _decile_head(),
        [
            column("at_s", "After", duration),
            column("n_at_risk", "Watched"),
            *ratio_columns("waiting", "Not mined yet"),
            *ratio_columns("mined", "Mined"),
            *ratio_columns("replaced", "Replaced"),
            *ratio_columns("expired", "Expired"),
        ],
        [row for row in marts.rows("confirmation_delay") if row["waiting_ratio"] is not None],
        mart="confirmation_delay",
        records=marts.rows("confirmation_delay"),
        is_folded=True,
    )


def _day_figure(marts: Marts) -> Figure:
    nodes = sorted({row["node"] for row in marts.rows("user_day")})
    panels: list[Panel] = []
    for name, title, unit in (
        ("feerate_{}_sat_vb", "Feerate", "sat/vB, median and quartiles"),
        ("fee_{}_sat", "Fee", "sat, median and quartiles"),
        ("size_{}_vb", "Virtual size", "vB, median and quartiles"),
    ):
        lines = [
            Line(
                label=text_of(node),
                colour=_tint(index),
                points=[
                    Point(
                        x=row["day"],
                        y=row[name.format("median")],
                        low=row[name.format("q1")],
                        high=row[name.format("q3")],
                    )
                    for row in marts.rows("user_day")
                    if row["node"] == node
                ],
            )
            for index, node in enumerate(nodes)
        ]
        y = Axis(title=unit, label=PLAIN_LABEL)
        panels.append(
            line_panel(f"user-{title.split()[0].lower()}", title, lines, x=Axis(title=""), y=y, is_half=True)
        )
    lines = [Line(label=text_of(node), colour=_tint(index), points=()) for index, node in enumerate(nodes)]
    return Figure(
        figure_id="user-chart",
        title="What users send, per UTC day of entry",
        caption="Bands are quartiles, not intervals.",
        panels=panels,
        marts=("user_day",),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in lines] if len(lines) > 1 else (),
        layout="pair",
    )


def _tint(index: int) -> str:
    return f"var(--pool-{index % N_COLOURS + 1})"


def _use_figure(marts: Marts) -> Figure:
    """Return the figure of which part of transactions used RBF and CPFP each day, by the first node."""
    node = marts.rows("user_day")[0]["node"]
    rows = [row for row in marts.rows("user_day") if row["node"] == node]
    lines = [
        Line(
            label=label,
            colour=_tint(index),
            points=[
                Point(x=row["day"], y=row["child_ratio"])
                if name == "child"
                else interval_point(row["day"], row, name, "ratio")
                for row in rows
            ],
        )
        for index, (name, label) in enumerate(USES.items())
    ]
    y = Axis(title="Part of transactions", label=PERCENT_LABEL)
    return Figure(
        figure_id="user-use-chart",
        title="Use of RBF and CPFP, per UTC day of entry",
        caption=(
            f"Transactions that entered the mempool of the node {text_of(node)}. Bands are {INTERVAL}s. The "
            "share with a waiting parent is a count, not an estimate."
        ),
        panels=[line_panel("user-use", "RBF and CPFP", lines, x=Axis(title=""), y=y)],
        marts=("user_day",),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in lines],
    )


def _quartiles(name: str, label: str, unit: str) -> MartColumn:
    def text(row: Row) -> str:
        low, middle, high = (row[name.format(point)] for point in ("q1", "median", "q3"))
        if middle is None:
            return NOTHING
        return f"{decimal(middle)} ({decimal(low)} to {decimal(high)})"

    return MartColumn(label, text, unit)


def _fee_table(marts: Marts) -> Table:
    return mart_table(
        "user-fee-table",
        "Fees and sizes per node and UTC day: median (quartiles)",
        text_head("Node", "node"),
        [
            column("day", "Day", moment, kind="text"),
            column("n_entered", "Entered"),
            _quartiles("feerate_{}_sat_vb", "Feerate", "sat/vB"),
            _quartiles("fee_{}_sat", "Fee", "sat"),
            _quartiles("size_{}_vb", "Size", "vB"),
            *ratio_columns("accepted", "Accepted"),
        ],
        marts.rows("user_day"),
        mart="user_day",
    )


def _use_table(marts: Marts) -> Table:
    return mart_table(
        "user-use-table",
        "Replacement (RBF) and children that pay for parents (CPFP), per node and UTC day",
        text_head("Node", "node"),
        [
            column("day", "Day", moment, kind="text"),
            column("n_signalling", "Signalling", group="RBF"),
            *ratio_columns("signalling", "Part", group="RBF"),
            column("n_replaced", "Replaced", group="RBF"),
            *ratio_columns("replaced", "Part", group="RBF"),
            column("n_children", "Children", group="CPFP"),
            column("child_ratio", "Part", percent, group="CPFP"),
            column("n_cpfp", "Paying", group="CPFP"),
            *ratio_columns("cpfp", "Part", group="CPFP"),
        ],
        marts.rows("user_day"),
        mart="user_day",
    )


TOPIC: Final = Topic(
    section_id="users",
    title="Users",
    question="How long do users wait, by what they pay?",
    intro=(
        "Transactions that our node announced as they entered, in ten equal groups by feerate. "
        "Kaplan-Meier: the share not yet mined, if nothing else could happen to a transaction. "
        "Cumulative incidence: the share to which each end did happen: mined, replaced or "
        "expired. A transaction whose end we did not see counts for as long as we watched it. A "
        "transaction that several nodes saw counts once, by the node that saw it first. "
        f"Transactions that enter between the same two blocks are alike, so each {INTERVAL} is "
        "computed from block intervals, not from single transactions."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
