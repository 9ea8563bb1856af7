"""Section: how long users wait by what they pay, how their transactions end, and what they send."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.charts.charts import PERCENT_LABEL
from analysis.report.charts.curves import (
    DURATION_LABEL,
    PERCENT_AXIS,
    PLAIN_LABEL,
    Axis,
    Line,
    Point,
    banded,
    duration_ticks,
    panel,
)
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Panel, Section, Table
from analysis.report.parts import N_COLOURS, on_mempool
from analysis.report.tables import Head, Show, by_text, field, mart_table, ratio
from analysis.report.text import INTERVAL, NOTHING, decimal, duration, moment, percent, text_of

DRAWN_DECILES: Final = (1, 3, 5, 8, 10)
USES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "signalling": "signal RBF",
        "replaced": "were replaced",
        "child": "have a waiting parent",
        "cpfp": "pay for a parent (CPFP)",
    }
)
NO_ENTRIES: Final = (
    "Not enough data: no transaction was seen entering a mempool. `pool-collector run` records entries "
    "while it "
    "watches a node."
)


def users_section(marts: Marts) -> Section:
    """Show waiting and ends by feerate decile, and what was sent per day."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    if _drawn(marts):
        parts += [_delay_figure(marts), _decile_table(marts), _delay_table(marts)]
    else:
        missing.append(NO_ENTRIES)
    days = {row["day"] for row in marts.rows("user_day")}
    if len(days) > 1:
        parts += [_day_figure(marts), _use_figure(marts)]
    elif days:
        missing.append(
            f"All transactions entered on one UTC day, {moment(days.pop())}: fees and sizes have no "
            "course to draw."
        )
    if marts.rows("user_day"):
        parts += [_fee_table(marts), _use_table(marts)]
    return Section(
        section_id="users",
        title="Users",
        question="How long do users wait, by what they pay?",
        intro=(
            "Transactions whose entry was pushed to us, in ten equal groups by feerate. Kaplan-Meier: "
            "the part "
            "not mined yet if nothing else could happen. Cumulative incidence: what did happen, mined, "
            "replaced "
            "or expired. A transaction whose end we did not see counts until we lost sight of it; one "
            "that several nodes saw counts once, by the first. What enters between the same two blocks is "
            f"alike, so every {INTERVAL} here is made of block intervals, not of single transactions."
        ),
        parts=parts,
        missing=missing,
    )


def _drawn(marts: Marts) -> list[Row]:
    """Give the rows of the deciles that are drawn: from after entry until nobody is watched any more."""
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
    y = Axis(title="Part of transactions", label=PERCENT_AXIS.label, domain=(0, 1))
    curves = {
        name: [_line(rows, decile, name) for decile in DRAWN_DECILES if _has(rows, decile)]
        for name in ("waiting", "mined")
    }
    panels = [
        panel("delay-waiting", "Not mined yet (Kaplan-Meier)", curves["waiting"], x=x, y=y, is_half=True),
        panel("delay-mined", "Mined (cumulative incidence)", curves["mined"], x=x, y=y, is_half=True),
    ]
    return Figure(
        figure_id="delay-chart",
        title="Delay to confirmation by feerate decile",
        caption=f"Decile 1 pays least, 10 most. Bands are {INTERVAL}s.",
        panels=panels,
        marts=("confirmation_delay", "confirmation_curves"),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in curves["waiting"]],
        layout="pair",
    )


def _has(rows: list[Row], decile: int) -> bool:
    return any(row["decile"] == decile for row in rows)


def _line(rows: list[Row], decile: int, name: str) -> Line:
    points = [banded(row["at_s"], row, name, "ratio") for row in rows if row["decile"] == decile]
    tint = _tint(DRAWN_DECILES.index(decile))
    return Line(label=f"decile {decile}", colour=tint, points=points)


def decile_name(row: Row) -> str:
    """Name a decile; 0 stands for all."""
    return "all" if not row["decile"] else f"{row['decile']}"


def _decile_head() -> Head:
    return Head("Decile", decile_name, is_total=lambda row: not row["decile"])


def _decile_table(marts: Marts) -> Table:
    return mart_table(
        "decile-table",
        "What became of the transactions of each feerate decile",
        _decile_head(),
        [
            Show(
                "Feerate",
                lambda row: (
                    NOTHING
                    if row["feerate_low_sat_vb"] is None
                    else f"{decimal(row['feerate_low_sat_vb'])} to {decimal(row['feerate_high_sat_vb'])}"
                ),
                "sat/vB",
            ),
            field("n_entered", "Entered"),
            field("n_mined", "Mined", group="Ends"),
            field("n_replaced", "Replaced", group="Ends"),
            field("n_expired", "Expired", group="Ends"),
            field("n_other", "Other", group="Ends"),
            field("n_censored", "Not seen", group="Ends"),
            *ratio("accepted", "Accepted"),
            field("half_mined_s", "Half mined by", duration),
        ],
        marts.rows("confirmation_decile"),
        mart="confirmation_decile",
        note="Accepted: mined among those whose end was seen, which is too high where many ends were not.",
        is_folded=False,
    )


def _delay_table(marts: Marts) -> Table:
    return mart_table(
        "delay-table",
        "Waiting, mined, replaced and expired by time since entry",
        _decile_head(),
        [
            field("at_s", "After", duration),
            field("n_at_risk", "Watched"),
            *ratio("waiting", "Not mined yet"),
            *ratio("mined", "Mined"),
            *ratio("replaced", "Replaced"),
            *ratio("expired", "Expired"),
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
            panel(f"user-{title.split()[0].lower()}", title, lines, x=Axis(title=""), y=y, is_half=True)
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
    """Draw how many transactions use RBF and CPFP, of the first node."""
    node = marts.rows("user_day")[0]["node"]
    rows = [row for row in marts.rows("user_day") if row["node"] == node]
    lines = [
        Line(
            label=label,
            colour=_tint(index),
            points=[
                Point(x=row["day"], y=row["child_ratio"])
                if name == "child"
                else banded(row["day"], row, name, "ratio")
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
            f"Transactions that entered the mempool of {text_of(node)}. Bands are {INTERVAL}s; those with a "
            "waiting parent are counted, not estimated."
        ),
        panels=[panel("user-use", "RBF and CPFP", lines, x=Axis(title=""), y=y)],
        marts=("user_day",),
        rests_on=on_mempool(marts),
        legend=[line.legend for line in lines],
    )


def _quartiles(name: str, label: str, unit: str) -> Show:
    def text(row: Row) -> str:
        low, middle, high = (row[name.format(point)] for point in ("q1", "median", "q3"))
        if middle is None:
            return NOTHING
        return f"{decimal(middle)} ({decimal(low)} to {decimal(high)})"

    return Show(label, text, unit)


def _fee_table(marts: Marts) -> Table:
    return mart_table(
        "user-fee-table",
        "Fees and sizes per node and UTC day: median (quartiles)",
        by_text("Node", "node"),
        [
            field("day", "Day", moment, kind="text"),
            field("n_entered", "Entered"),
            _quartiles("feerate_{}_sat_vb", "Feerate", "sat/vB"),
            _quartiles("fee_{}_sat", "Fee", "sat"),
            _quartiles("size_{}_vb", "Size", "vB"),
            *ratio("accepted", "Accepted"),
        ],
        marts.rows("user_day"),
        mart="user_day",
    )


def _use_table(marts: Marts) -> Table:
    return mart_table(
        "user-use-table",
        "Replacement (RBF) and children that pay for parents (CPFP), per node and UTC day",
        by_text("Node", "node"),
        [
            field("day", "Day", moment, kind="text"),
            field("n_signalling", "Signalling", group="RBF"),
            *ratio("signalling", "Part", group="RBF"),
            field("n_replaced", "Replaced", group="RBF"),
            *ratio("replaced", "Part", group="RBF"),
            field("n_children", "Children", group="CPFP"),
            field("child_ratio", "Part", percent, group="CPFP"),
            field("n_cpfp", "Paying", group="CPFP"),
            *ratio("cpfp", "Part", group="CPFP"),
        ],
        marts.rows("user_day"),
        mart="user_day",
    )
