"""Section: whether price, fees, revenue or hashrate changed at a halving more than at other times."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.charts import RatioAxis, RatioRow
from analysis.report.charts.curves import PLAIN_LABEL
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Section, Table
from analysis.report.parts import on_blocks, ratio_panel
from analysis.report.tables import Head, Show, field, mart_table
from analysis.report.text import NOTHING, moment, p_value

METRICS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "price_usd": "Price, USD",
        "fees_sat": "Fees, BTC",
        "revenue_sat": "Revenue, BTC",
        "revenue_usd": "Revenue, USD",
        "hashrate": "Hashrate",
        "hashprice_usd": "Hashprice, USD",
    }
)


def halving_section(marts: Marts) -> Section:
    """Show the change at each halving beside that at placebo dates."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    known = [row for row in marts.rows("halving_effect") if row["change_ratio"] is not None]
    if known:
        parts += [_figure(marts, known), _table(marts, known)]
    elif marts.rows("halving_effect"):
        missing.append(
            "Not enough data: no series has 30 days on either side of a halving. `pool-collector "
            "backfill` adds older "
            "blocks, `pool-collector import prices` adds prices."
        )
    else:
        missing.append(
            "No halving: none falls into the window, and this chain has no known dates. On the main chain "
            "prices alone suffice: `pool-collector import prices FILE --source NAME --licence TERMS "
            "--url URL`."
        )
    return Section(
        section_id="halving",
        title="Halvings",
        question="Did a halving change anything?",
        intro=(
            "The mean of each daily series in the 30 days after a halving, divided by that in the 30 days "
            "before it; fees and revenue are rates per day. Beside it stands the same for every other day: "
            "what lies inside the range of these placebo dates is not unusual."
        ),
        parts=parts,
        missing=missing,
    )


def _figure(marts: Marts, known: Sequence[Row]) -> Figure:
    rows = []
    for row in known:
        key = f"{row['halving_day']}-{row['metric']}"
        label = f"{row['halving_day']:%Y}: {METRICS.get(row['metric'], row['metric'])}"
        low, high = row["placebo_low_ratio"], row["placebo_high_ratio"]
        colour = "var(--accent-2)" if _is_unusual(row) else "var(--accent-1)"
        value = f"\u00d7{row['change_ratio']:.2f}"
        rows.append(
            RatioRow(
                row=key,
                label=label,
                value=value,
                ratio=row["change_ratio"],
                low=low,
                high=high,
                colour=colour,
            )
        )
    axis = RatioAxis(
        label=f"'\u00d7' + {PLAIN_LABEL}", title="After / before", limit=None, reference=1.0, is_log=True
    )
    return Figure(
        figure_id="halving-chart",
        title="Change at halvings against placebo dates",
        caption=(
            "Dots are the change at the halving, lines the range of 95\u00a0% of the placebo dates (not an "
            "interval of the dot). A dot outside its line is unusual. Logarithmic."
        ),
        panels=[ratio_panel("halving", "Change at halvings", rows, axis)],
        marts=("halving_effect", "price_day"),
        rests_on=on_blocks(marts),
    )


def _is_unusual(row: Row) -> bool:
    low, high = row["placebo_low_ratio"], row["placebo_high_ratio"]
    return low is not None and not low <= row["change_ratio"] <= high


def _table(marts: Marts, known: Sequence[Row]) -> Table:
    return mart_table(
        "halving-table",
        "Change at each halving, after / before",
        Head("Halving", lambda row: moment(row["halving_day"])),
        [
            Show("Of", lambda row: METRICS.get(row["metric"], row["metric"]), kind="text"),
            field("change_ratio", "Change", _factor),
            Show(
                "95\u00a0% of placebos",
                lambda row: (
                    NOTHING
                    if row["placebo_low_ratio"] is None
                    else f"{_factor(row['placebo_low_ratio'])} to {_factor(row['placebo_high_ratio'])}"
                ),
            ),
            field("n_placebos", "Placebo dates"),
            field("p_value", "p", p_value),
        ],
        known,
        mart="halving_effect",
        records=marts.rows("halving_effect"),
        note=(
            "p is the part of placebo dates at least as unusual; their windows overlap, so 30 dates count as "
            "one. Dates near any halving are no placebos. Series with too few days there are left out; the "
            "CSV names them."
        ),
        is_folded=False,
    )


def _factor(value: float | None) -> str:
    return NOTHING if value is None else f"\u00d7{value:.2f}"
