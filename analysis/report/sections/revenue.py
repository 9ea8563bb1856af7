"""Section: what mining earns, per unit of hashing power, and whether hashrate follows that."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.charts import PERCENT_LABEL, RatioAxis, RatioRow
from analysis.report.charts.curves import PLAIN_LABEL, USD_LABEL, Axis, Line, Point, panel
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Panel, Section, Table
from analysis.report.parts import on_blocks, ratio_panel
from analysis.report.sections.hashrate import period_name
from analysis.report.tables import Head, Show, by_pool, field, group_tables, mart_table, measured
from analysis.report.text import (
    INTERVAL,
    NOTHING,
    bitcoin,
    count,
    decimal,
    p_value,
    percent,
)

NO_FEES: Final = (
    "Not enough data: the fees of no block are known. They come with `pool-collector run`, and from the "
    "node's undo files with `pool-collector backfill`."
)
NO_PRICES: Final = (
    "No prices: USD, hashprice in USD and the threshold in USD are left out. Add daily prices with "
    "`pool-collector import prices FILE --source NAME --licence TERMS --url URL`, then build again."
)
NO_EPOCHS: Final = (
    "Not enough data for the threshold: that takes 21 difficulty epochs in a row, of 2,016 blocks each, "
    "about ten months."
)
NO_GROWTH: Final = (
    "Not enough data to compare growth of hashrate and revenue: that takes 30 days with blocks."
)
METRICS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hashrate": "Hashrate",
        "revenue_sat": "Revenue, BTC",
        "revenue_usd": "Revenue, USD",
        "hashprice_sat": "Hashprice, BTC",
        "hashprice_usd": "Hashprice, USD",
    }
)
SAT_PER_BTC: Final = 100_000_000
MAX_PRISONERS: Final = 8


def revenue_section(marts: Marts) -> Section:
    """Show revenue and hashprice over time and per pool, the threshold, and the two dilemmas."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    known = [row for row in marts.rows("revenue") if row["fee_block_count"]]
    if not known:
        missing.append(NO_FEES)
    elif len(marts.course("revenue")) > 1:
        parts.append(_course_figure(marts))
    else:
        missing.append("All blocks are of one UTC day: there is no course of revenue to draw.")
    if known:
        parts += [_network_table(marts), _pool_table(marts)]
        parts += group_tables(marts, "revenue_group", "revenue-group-table", "Revenue", _columns())
        if not any(row["revenue_usd"] is not None for row in known):
            missing.append(NO_PRICES)
    tested = [row for row in marts.rows("revenue_threshold") if row["threshold_per_ph_day"] is not None]
    if tested:
        parts.append(_threshold_table(tested))
    else:
        missing.append(NO_EPOCHS)
    growth = [row for row in marts.rows("revenue_growth") if row["grouped_by"] == "network"]
    if growth:
        parts.append(_growth_figure(marts, growth))
        pools = _pool_growth(marts)
        if pools:
            parts.append(_prisoner_figure(marts, pools))
        parts += [_growth_table(marts), *_growth_group_tables(marts)]
    else:
        missing.append(NO_GROWTH)
    return Section(
        section_id="revenue",
        title="Revenue",
        question="What does mining earn, and does hashrate follow?",
        intro=(
            "Revenue is subsidy and fees of the blocks whose fees are known. Hashprice is what 1\u00a0PH/s "
            "earns in a day on average: it depends on difficulty, subsidy, fees and price, not on luck. "
            "These are sums of all blocks there are, so they have no interval."
        ),
        parts=parts,
        missing=missing,
    )


def _course_figure(marts: Marts) -> Figure:
    course = [(day, row) for day, row in marts.course("revenue") if row["fee_block_count"]]
    period = "day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    unit = "usd" if any(row["revenue_usd"] is not None for _, row in course) else "sat"

    def line(label: str, colour: str, name: str, factor: float = 1.0, per: str = "") -> Line:
        points = [
            Point(x=day, y=None if row[name] is None else row[name] * factor / ((per and row[per]) or 1))
            for day, row in course
        ]
        # A day without a price parts a line; of days with none beside them no line would be seen.
        is_parted = any(point.y is None for point in points)
        return Line(label=label, colour=colour, points=points, shape="points" if is_parted else "line")

    btc = 1 / SAT_PER_BTC
    panels: list[Panel] = []
    blocks = [
        line("subsidy", "var(--accent-1)", "subsidy_sat", btc, "fee_block_count"),
        line("fees", "var(--accent-2)", "fees_sat", btc, "fee_block_count"),
    ]
    panels.append(_half("per-block", "Subsidy and fees per block", blocks, "BTC per block", PLAIN_LABEL))
    fees = [line("fees", "var(--accent-2)", "fee_ratio")]
    panels.append(_half("fees", "Fees as a part of revenue", fees, "Part of revenue", PERCENT_LABEL))
    hashprice = [line("hashprice", "var(--accent-1)", f"hashprice_{unit}_per_ph_day")]
    title, label = (
        ("USD per PH/s and day", USD_LABEL) if unit == "usd" else ("sat per PH/s and day", PLAIN_LABEL)
    )
    panels.append(_half("hashprice", "Hashprice", hashprice, title, label))
    if unit == "usd":
        whole = [line("revenue", "var(--accent-1)", "revenue_usd", 1.0, "priced_block_count")]
        panels.append(_half("usd", "Revenue per block", whole, "USD per block", USD_LABEL))
    return Figure(
        figure_id="revenue-chart",
        title=f"Revenue of the network per {period}",
        caption="Sums over the blocks whose fees are known, at the close of their UTC day.",
        panels=panels,
        marts=("revenue",),
        rests_on=on_blocks(marts),
        legend=[one.legend for one in blocks],
        layout="pair",
    )


def _half(name: str, title: str, lines: Sequence[Line], unit: str, label: str) -> Panel:
    axis = Axis(title=unit, label=label)
    return panel(f"revenue-{name}", title, lines, x=Axis(title=""), y=axis, is_half=True)


def _columns() -> list[Show]:
    return [
        field("block_count", "Blocks"),
        field("fee_block_count", "Fees known"),
        field("subsidy_sat", "Subsidy", bitcoin, unit="BTC"),
        field("fees_sat", "Fees", bitcoin, unit="BTC"),
        field("fee_ratio", "Fee part", percent),
        field("share_ratio", "Of all", percent),
        field("revenue_usd", "Revenue", count, unit="USD"),
        field("hashprice_sat_per_ph_day", "Hashprice", count, unit="sat/PH/s/day"),
        field("hashprice_usd_per_ph_day", "Hashprice", decimal, unit="USD/PH/s/day"),
    ]


def _network_table(marts: Marts) -> Table:
    kinds = {"all": 0, "epoch": 1, "day": 2}
    rows = sorted(
        marts.rows("revenue"), key=lambda row: (kinds[row["period_kind"]], -(row["first_height"] or 0))
    )
    shows = [show for show in _columns() if show.label != "Of all"]
    return mart_table(
        "revenue-table",
        "Revenue of the network: over all, then epochs and days, newest first",
        Head("Period", period_name, is_total=lambda row: bool(row["period_kind"] == "all")),
        shows,
        rows,
        mart="revenue",
    )


def _pool_table(marts: Marts) -> Table:
    return mart_table(
        "revenue-pool-table",
        "Revenue per pool over the whole window",
        by_pool(marts, "owner"),
        _columns(),
        marts.rows("revenue_pool"),
        mart="revenue",
        is_folded=True,
    )


def _threshold_table(rows: Sequence[Row]) -> Table:
    return mart_table(
        "threshold-table",
        "Does hashrate grow when a unit of it earns more than a threshold?",
        Head("Hashprice in", lambda row: "USD" if row["unit"] == "usd" else "sat"),
        [
            field("n_epochs", "Epochs"),
            *measured(
                "threshold_per_ph_day",
                "Threshold",
                decimal,
                "threshold_low_per_ph_day",
                "threshold_high_per_ph_day",
                unit="per PH/s/day",
            ),
            field("below_growth", "Below", _growth, unit="per epoch", group="Growth of hashrate"),
            field("above_growth", "Above", _growth, unit="per epoch", group="Growth of hashrate"),
            field("r_squared", "R\u00b2", percent),
            field("p_value", "p", p_value),
            field("later_below_growth", "Below", _growth, unit="per epoch", group="One epoch later"),
            field("later_above_growth", "Above", _growth, unit="per epoch", group="One epoch later"),
            field("later_p_value", "p", p_value, group="One epoch later"),
        ],
        rows,
        mart="revenue_threshold",
        note=(
            "The paper's statement holds where p is small and growth above the threshold is the larger one. "
            "One epoch later: growth after the epoch of the level, with a threshold of its own; the other is "
            "of the same time and shares its difficulty."
        ),
    )


def _growth(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.2f}\u00a0%".replace("-", "\N{MINUS SIGN}")


def _growth_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    """Draw the growth of hashrate beside that of what it earns; right of zero it grows."""
    colours = {"hashrate": "var(--accent-1)"}
    drawn = [
        RatioRow(
            row=row["metric"],
            label=METRICS[row["metric"]],
            value=_growth(row["lambda_per_day"]).replace("\u00a0%", ""),
            ratio=row["lambda_per_day"],
            low=row["lambda_low_per_day"],
            high=row["lambda_high_per_day"],
            colour=colours.get(row["metric"], "var(--accent-2)"),
        )
        for row in sorted(rows, key=lambda row: list(METRICS).index(row["metric"]))
    ]
    ends = [value for row in drawn for value in (row.ratio, row.low, row.high) if value is not None]
    reach = 1.08 * max(abs(value) for value in ends)
    axis = RatioAxis(title="Growth per day", smallest=-reach, largest=reach, limit=None, reference=0.0)
    return Figure(
        figure_id="dilemma-chart",
        title="Hashrate against what it earns",
        caption=(
            "Malthusian trap: hashrate grows faster than revenue, so hashprice falls (left of zero). "
            f"Slopes of ln y = \u03bbt + c over days, in percent, with {INTERVAL}s. Revenue is per "
            "day of the time that the blocks took."
        ),
        panels=[ratio_panel("dilemma", "Growth of hashrate, revenue and hashprice", drawn, axis)],
        marts=("revenue_growth",),
        rests_on=on_blocks(marts),
    )


def _pool_growth(marts: Marts) -> list[tuple[Row, Row]]:
    """Give the growth of hashrate and of hashprice of the largest pools that have both fits."""
    fits = {(row["owner"], row["metric"]): row for row in marts.rows("revenue_growth") if _is_fitted(row)}
    unit = "usd" if any(metric == "hashprice_usd" for _, metric in fits) else "sat"
    pairs = [(fits.get((pool, "hashrate")), fits.get((pool, f"hashprice_{unit}"))) for pool in marts.pools]
    return [(own, price) for own, price in pairs if own and price][:MAX_PRISONERS]


def _is_fitted(row: Row) -> bool:
    return row["grouped_by"] == "pool" and row["lambda_per_day"] is not None


def _prisoner_figure(marts: Marts, pools: Sequence[tuple[Row, Row]]) -> Figure:
    """Draw, pool by pool, the growth of its own hashrate above that of what a unit of it earned."""
    rows = [
        RatioRow(
            row=f"{row['owner']}-{row['metric']}",
            label=f"{marts.name(row['owner'])}: {word}",
            value=_growth(row["lambda_per_day"]).replace("\u00a0%", ""),
            ratio=row["lambda_per_day"],
            low=row["lambda_low_per_day"],
            high=row["lambda_high_per_day"],
            colour=shade,
        )
        for pair in pools
        for row, word, shade in zip(
            pair, ("hashrate", "hashprice"), ("var(--accent-1)", "var(--accent-2)"), strict=True
        )
    ]
    ends = [value for row in rows for value in (row.ratio, row.low, row.high) if value is not None]
    reach = 1.08 * max(abs(value) for value in ends) or 1.0
    axis = RatioAxis(title="Growth per day", smallest=-reach, largest=reach, limit=None, reference=0.0)
    return Figure(
        figure_id="prisoner-chart",
        title="Each pool's hashrate against what a unit of it earns",
        caption=(
            "Prisoner's dilemma: a pool's own hashrate grows (right of zero) although its hashprice falls "
            f"(left of zero). Slopes in percent per day, with {INTERVAL}s; at most {MAX_PRISONERS} pools."
        ),
        panels=[ratio_panel("prisoner", "Growth of hashrate and hashprice per pool", rows, axis)],
        marts=("revenue_growth",),
        rests_on=on_blocks(marts),
    )


def _growth_table(marts: Marts) -> Table:
    places = list(METRICS)
    rows = sorted(
        marts.rows("revenue_growth"),
        key=lambda row: (row["grouped_by"] != "network", row["owner"], places.index(row["metric"])),
    )
    return mart_table(
        "dilemma-table",
        "Growth per day of hashrate, revenue and hashprice, of the network and of each pool",
        Head(
            "",
            lambda row: marts.name(row["owner"]),
            is_total=lambda row: bool(row["grouped_by"] == "network"),
        ),
        _growth_columns(),
        rows,
        mart="revenue_growth",
        note=(
            "Prisoner's dilemma: a pool's own hashrate grows although its hashprice falls. A window "
            "without a "
            "change of price or subsidy cannot tell."
        ),
    )


def _growth_group_tables(marts: Marts) -> list[Table]:
    title = "Growth per day of hashrate, revenue and hashprice"
    return group_tables(marts, "revenue_growth_group", "dilemma-group-table", title, _growth_columns())


def _growth_columns() -> list[Show]:
    return [
        Show("Of", lambda row: METRICS[row["metric"]], kind="text"),
        field("n_days", "Days"),
        *measured(
            "lambda_per_day",
            "\u03bb",
            _growth,
            "lambda_low_per_day",
            "lambda_high_per_day",
            between=lambda low, high: f"{_growth(low)} to {_growth(high)}",
        ),
        field("r_squared", "R\u00b2", percent),
    ]
