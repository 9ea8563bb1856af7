"""Makes the report's section on whether price, fees, revenue or hashrate changed at a halving."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_blocks
from analysis.report.charts.lines import PLAIN_LABEL
from analysis.report.charts.ratios import RatioAxis, RatioRow, ratio_panel
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, SectionContent, Table
from analysis.report.pool_comparison import SIGNIFICANCE
from analysis.report.tables import MartColumn, RowHead, column, mart_table
from analysis.report.text import listed, moment, p_claim, p_value, plural, quotient, quotient_range
from analysis.report.topic import Topic

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
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "halving_effect": Read("halving_effect", "halving_day, metric"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: which series changed more at a halving than on placebo dates."""
    known = [row for row in marts.rows("halving_effect") if row["p_value"] is not None]
    if not known:
        return []
    said = []
    for name, label in (
        ("price_usd", "price"),
        ("fees_sat", "fees in BTC"),
        ("hashrate", "hashrate"),
        ("revenue_sat", "revenue in BTC"),
    ):
        rows = [row for row in known if row["metric"] == name]
        if not rows:
            continue
        unusual = [row for row in rows if _is_unusual(row)]
        halvings = plural(len(rows), "halving")
        least = p_claim(min(row["adjusted_p_value"] for row in rows))
        if unusual:
            changes = [f"{row['halving_day']:%Y} by {quotient(row['change_ratio'])}" for row in unusual]
            said.append(
                f"The {label} changed more than on placebo dates at {len(unusual)} of {halvings}: "
                f"{listed(changes)}."
            )
        elif all(row["least_adjusted_p_value"] >= SIGNIFICANCE for row in rows):
            said.append(
                f"Too few placebo dates for {plural(len(known), 'test')} to tell whether the {label} changed "
                f"at {halvings} (smallest {least})."
            )
        else:
            said.append(
                f"The {label} did not change more than on placebo dates at {halvings} (smallest {least})."
            )
    return said


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: how each series changed at each halving, and on placebo dates."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    known = [row for row in marts.rows("halving_effect") if row["change_ratio"] is not None]
    if known:
        parts += [_figure(marts, known), _table(marts, known)]
    elif marts.rows("halving_effect"):
        missing.append("No series has 30 days before and after a halving.")
    else:
        missing.append(
            "No halving falls into these blocks."
            + (
                " Daily prices are enough: `pool-collector import prices FILE --source NAME --licence "
                "TERMS --url URL`."
                if marts.has_price
                else ""
            )
        )
    return SectionContent(parts=parts, missing=missing)


def _figure(marts: Marts, known: Sequence[Row]) -> Figure:
    rows = []
    for row in known:
        key = f"{row['halving_day']}-{row['metric']}"
        label = f"{row['halving_day']:%Y}: {METRICS.get(row['metric'], row['metric'])}"
        low, high = row["placebo_low_ratio"], row["placebo_high_ratio"]
        colour = "var(--accent-2)" if _is_unusual(row) else "var(--accent-1)"
        value = quotient(row["change_ratio"])
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
            "Dots show the change at the halving, lines the range of 95\u00a0% of the placebo dates (this "
            "is not an interval of the dot). A dot of the other colour has a corrected p below "
            f"{SIGNIFICANCE}. The axis is logarithmic."
        ),
        panels=[ratio_panel("halving", "Change at halvings", rows, axis)],
        marts=("halving_effect", "price_day"),
        rests_on=on_blocks(marts),
    )


def _is_unusual(row: Row) -> bool:
    return row["adjusted_p_value"] is not None and row["adjusted_p_value"] < SIGNIFICANCE


def _table(marts: Marts, known: Sequence[Row]) -> Table:
    return mart_table(
        "halving-table",
        "Change at each halving, after / before",
        RowHead("Halving", lambda row: moment(row["halving_day"])),
        [
            MartColumn("Of", lambda row: METRICS.get(row["metric"], row["metric"]), kind="text"),
            column("change_ratio", "Change", quotient),
            MartColumn(
                "95\u00a0% of placebos",
                lambda row: quotient_range(row["placebo_low_ratio"], row["placebo_high_ratio"]),
            ),
            column("n_placebos", "Placebo dates"),
            column("p_value", "p", p_value),
            column("adjusted_p_value", "p, corrected", p_value),
        ],
        known,
        mart="halving_effect",
        records=marts.rows("halving_effect"),
        note=(
            "p is the share of placebo dates with a change at least as unusual. Their windows "
            "overlap, so 30 dates count as one. Dates near a halving are not used as placebos. Series "
            "with too few days are left out; the CSV names them."
        ),
        is_folded=False,
    )


TOPIC: Final = Topic(
    section_id="halving",
    title="Halvings",
    question="Did a halving change anything?",
    intro=(
        "For each daily series: its mean over the 30 days after a halving, divided by its mean "
        "over the 30 days before. Fees and revenue are rates per day. Every other day serves as a "
        "placebo date: the same quotient is computed there. A change inside the range of the "
        "placebo dates is not unusual."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
