"""Makes the report's section on what mining and a unit of hashrate earn, and whether hashrate follows."""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report import time_marks
from analysis.report.basis import on_blocks
from analysis.report.charts.lines import PLAIN_LABEL, USD_LABEL, Axis, Line, Point, line_panel
from analysis.report.charts.ratios import RatioAxis, RatioRow, ratio_panel
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, Panel, SectionContent, Table, Unanswered
from analysis.report.pool_comparison import SIGNIFICANCE
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    group_tables,
    interval_columns,
    mart_table,
    period_name,
    pool_head,
)
from analysis.report.text import (
    INTERVAL,
    bitcoin,
    count,
    decimal,
    growth,
    growth_range,
    hashprice,
    p_claim,
    p_value,
    percent,
    plural,
)
from analysis.report.topic import Topic

NO_FEES: Final = (
    "The fees of these blocks are not known. `pool-collector run` records fees, and "
    "`pool-collector backfill` reads them from the undo files of a node."
)
NO_PRICES: Final = Unanswered(
    question="What does mining earn in USD?",
    lacks=(
        "No price was imported. `pool-collector import prices FILE --source NAME --licence TERMS --url URL` "
        "adds daily prices."
    ),
)
NO_PRICE_HERE: Final = Unanswered(
    question="What does mining earn in USD?", lacks="The coins of this chain have no price."
)
NO_EPOCHS: Final = Unanswered(
    question="Above which hashprice does hashrate grow?",
    lacks=(
        "21 difficulty epochs in a row with known fees are needed, about ten months. "
        "`pool-collector backfill` reads older blocks."
    ),
)
NO_GROWTH: Final = Unanswered(
    question="Is mining a Malthusian trap, or a prisoner's dilemma?",
    lacks=("30 days with blocks and known fees are needed. `pool-collector backfill` reads older blocks."),
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
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "revenue": Read("revenue", "period_kind, first_height", "grouped_by = 'network'"),
        "revenue_pool": Read(
            "revenue", "is_unknown, revenue_sat DESC, owner", "grouped_by = 'pool' AND period_kind = 'all'"
        ),
        "revenue_group": Read(
            "revenue",
            "grouped_by, is_unknown, revenue_sat DESC, owner",
            "grouped_by != 'network' AND period_kind = 'all'",
        ),
        "revenue_growth": Read(
            "revenue_growth", "grouped_by, owner, metric", "grouped_by IN ('network', 'pool')"
        ),
        "revenue_growth_group": Read(
            "revenue_growth", "grouped_by, owner, metric", "grouped_by != 'network'"
        ),
        "revenue_threshold": Read("revenue_threshold", "unit DESC"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: what blocks earned, and which of three patterns the data show.

    The patterns: hashrate grows above a threshold of hashprice, the Malthusian trap (hashrate outgrows its
    revenue), the prisoner's dilemma (each pool grows although a unit earns less). Returns an empty list when
    no block has known fees.
    """
    row = marts.whole_window("revenue")
    if row is None or not row["fee_block_count"]:
        return []
    said = [
        (
            f"{plural(row['fee_block_count'], 'block')} with known fees earned "
            f"{bitcoin(row['revenue_sat'])} BTC; {percent(row['fee_ratio'])} of this is fees."
        )
    ]
    if row["hashprice_usd_per_ph_day"] is not None:
        said.append(f"On average, {hashprice(row['hashprice_usd_per_ph_day'], 'USD')} per day.")
    return said + _threshold(marts) + _dilemmas(marts)


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: revenue and hashprice over time and per pool, and three patterns.

    They are the threshold of hashprice, the Malthusian trap and the prisoner's dilemma.
    """
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    known = [row for row in marts.rows("revenue") if row["fee_block_count"]]
    if not known:
        missing.append(NO_FEES)
    elif len(marts.over_time("revenue", "fee_block_count")) > 1:
        parts.append(_course_figure(marts))
    if known:
        parts += [_network_table(marts), _pool_table(marts)]
        parts += group_tables(marts, "revenue_group", "revenue-group-table", "Revenue", _columns(marts))
        if not any(row["revenue_usd"] is not None for row in known):
            missing.append(NO_PRICES if marts.has_price else NO_PRICE_HERE)
    tested = [row for row in marts.rows("revenue_threshold") if row["threshold_per_ph_day"] is not None]
    if tested:
        parts.append(_threshold_table(tested))
    else:
        missing.append(NO_EPOCHS)
    fits = [
        row
        for row in marts.rows("revenue_growth")
        if row["grouped_by"] == "network" and row["lambda_per_day"] is not None
    ]
    if fits:
        parts.append(_growth_figure(marts, fits))
        pools = _pool_growth(marts)
        if pools:
            parts.append(_prisoner_figure(marts, pools))
        parts += [_growth_table(marts), *_growth_group_tables(marts)]
    else:
        missing.append(NO_GROWTH)
    return SectionContent(parts=parts, missing=missing)


def _threshold(marts: Marts) -> list[str]:
    """Return a sentence on the growth one epoch after a hashprice, with which it shares no difficulty."""
    units = {row["unit"]: row for row in marts.rows("revenue_threshold")}
    row = units.get("usd") or units.get("sat")
    if row is None or row["later_threshold_per_ph_day"] is None:
        return []
    unit = "USD" if row["unit"] == "usd" else "sat"
    low, high = (decimal(row[f"later_threshold_{end}_per_ph_day"]) for end in ("low", "high"))
    found = (
        f"{decimal(row['later_threshold_per_ph_day'])} {unit} per PH/s and day ({INTERVAL} {low} to {high})"
    )
    claim = p_claim(row["later_p_value"])
    if row["later_p_value"] < SIGNIFICANCE and row["later_above_growth"] > row["later_below_growth"]:
        return [f"An epoch after a hashprice above {found}, hashrate grows faster: {claim}."]
    return [
        f"No threshold is shown above which hashrate grows an epoch later: best split at {found}, {claim}."
    ]


def _dilemmas(marts: Marts) -> list[str]:
    """Return sentences on the trap and the dilemma; none on a series that never changes."""
    fits = {
        (row["grouped_by"], row["owner"], row["metric"]): row
        for row in marts.rows("revenue_growth")
        if row["lambda_low_per_day"] is not None
    }
    unit = "usd" if any(key[0] == "network" and key[2] == "hashprice_usd" for key in fits) else "sat"
    pairs = {
        (grouped_by, owner): (rate, fits[grouped_by, owner, f"hashprice_{unit}"])
        for (grouped_by, owner, name), rate in fits.items()
        if name == "hashrate" and (grouped_by, owner, f"hashprice_{unit}") in fits
    }
    network = next((pair for (grouped_by, _), pair in pairs.items() if grouped_by == "network"), None)
    if network is None:
        return []
    rate, price = network
    name = f"hashprice in {'USD' if unit == 'usd' else 'BTC'}"
    if rate["lambda_low_per_day"] > 0 and price["lambda_high_per_day"] < 0:
        trap = f"As in a Malthusian trap, hashrate grew while {name} fell."
    elif price["lambda_low_per_day"] > 0:
        trap = f"No Malthusian trap in this window: {name} rose."
    else:
        trap = f"No Malthusian trap is shown: the growth of hashrate and of {name} is not certain enough."
    pools = [pair for (grouped_by, _), pair in pairs.items() if grouped_by == "pool"]
    if not pools:
        return [trap]
    n_caught = sum(own["lambda_low_per_day"] > 0 > paid["lambda_high_per_day"] for own, paid in pools)
    dilemma = (
        f"Prisoner's dilemma: {count(n_caught)} of {plural(len(pools), 'pool')} with enough days grew "
        f"although their {name} fell, as their own {INTERVAL}s say."
    )
    return [trap, dilemma]


def _points(
    marts: Marts, course: Sequence[tuple[dt.date, Row]], name: str, factor: float, per: str
) -> list[Point]:
    """Return a chart point per period: column `name` times `factor`, divided by column `per` if given."""
    return [
        Point(
            x=day,
            y=None if row[name] is None else row[name] * factor / ((per and row[per]) or 1),
            is_partial=time_marks.is_partial(marts, row),
        )
        for day, row in course
    ]


def _course_figure(marts: Marts) -> Figure:
    course = marts.over_time("revenue", "fee_block_count")
    period = "day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    unit = "usd" if any(row["revenue_usd"] is not None for _, row in course) else "sat"

    def line(label: str, colour: str, name: str, factor: float = 1.0, per: str = "") -> Line:
        points = _points(marts, course, name, factor, per)
        # A day without a price breaks the line, and a single day between breaks would not be seen.
        is_parted = any(point.y is None for point in points)
        return Line(label=label, colour=colour, points=points, shape="points" if is_parted else "line")

    events = time_marks.events(marts, course[0][0], course[-1][0])

    panels: list[Panel] = []

    def add(name: str, title: str, lines: Sequence[Line], unit: str, label: str) -> None:
        if all(point.y is None for each in lines for point in each.points):
            return  # as hashprice where no difficulty is known
        axis = Axis(title=unit, label=label)
        x = Axis(title="")
        panels.append(line_panel(f"revenue-{name}", title, lines, x=x, y=axis, events=events, is_half=True))

    btc = 1 / SAT_PER_BTC
    blocks = [
        line("subsidy", "var(--accent-1)", "subsidy_sat", btc, "fee_block_count"),
        line("fees", "var(--accent-2)", "fees_sat", btc, "fee_block_count"),
    ]
    add("per-block", "Subsidy and fees per block", blocks, "BTC per block", PLAIN_LABEL)
    fees = [line("fees", "var(--accent-2)", "fee_ratio")]
    add("fees", "Fees as a part of revenue", fees, "Part of revenue", PERCENT_LABEL)
    hashprice = [line("hashprice", "var(--accent-1)", f"hashprice_{unit}_per_ph_day")]
    title, label = (
        ("USD per PH/s and day", USD_LABEL) if unit == "usd" else ("sat per PH/s and day", PLAIN_LABEL)
    )
    add("hashprice", "Hashprice", hashprice, title, label)
    if unit == "usd":
        whole = [line("revenue", "var(--accent-1)", "revenue_usd", 1.0, "priced_block_count")]
        add("usd", "Revenue per block", whole, "USD per block", USD_LABEL)
    return Figure(
        figure_id="revenue-chart",
        title=f"Revenue of the network per {period}",
        caption="Sums over the blocks with known fees, at the closing price of their UTC day.",
        panels=panels,
        marts=("revenue",),
        rests_on=on_blocks(marts),
        legend=[*(one.legend for one in blocks), *time_marks.course_legend(marts, course, events)],
        layout="pair",
    )


def _columns(marts: Marts) -> list[MartColumn]:
    usd = [
        column("revenue_usd", "Revenue", count, unit="USD"),
        column("hashprice_usd_per_ph_day", "Hashprice", decimal, unit="USD/PH/s/day"),
    ]
    return [
        column("block_count", "Blocks"),
        column("fee_block_count", "Fees known"),
        column("subsidy_sat", "Subsidy", bitcoin, unit="BTC"),
        column("fees_sat", "Fees", bitcoin, unit="BTC"),
        column("fee_ratio", "Fee part", percent),
        column("share_ratio", "Of all", percent),
        column("hashprice_sat_per_ph_day", "Hashprice", count, unit="sat/PH/s/day"),
        *(usd if marts.has_price else ()),
    ]


def _network_table(marts: Marts) -> Table:
    kinds = {"all": 0, "epoch": 1, "day": 2}
    known = [row for row in marts.rows("revenue") if row["fee_block_count"]]
    rows = sorted(known, key=lambda row: (kinds[row["period_kind"]], -(row["first_height"] or 0)))
    columns = [show for show in _columns(marts) if show.label != "Of all"]
    return mart_table(
        "revenue-table",
        "Revenue of the network: over all, then epochs and days, newest first",
        RowHead("Period", period_name, is_total=lambda row: bool(row["period_kind"] == "all")),
        columns,
        rows,
        mart="revenue",
        records=marts.rows("revenue"),
    )


def _pool_table(marts: Marts) -> Table:
    return mart_table(
        "revenue-pool-table",
        "Revenue per pool over the whole window",
        pool_head(marts, "owner"),
        _columns(marts),
        marts.rows("revenue_pool"),
        mart="revenue",
        is_folded=True,
    )


def _threshold_table(rows: Sequence[Row]) -> Table:
    return mart_table(
        "threshold-table",
        "Does hashrate grow when one unit of it earns more than a threshold?",
        RowHead("Hashprice in", lambda row: "USD" if row["unit"] == "usd" else "sat"),
        [
            column("n_epochs", "Epochs"),
            *interval_columns(
                "threshold_per_ph_day",
                "Threshold",
                decimal,
                "threshold_low_per_ph_day",
                "threshold_high_per_ph_day",
                unit="per PH/s/day",
            ),
            column("below_growth", "Below", growth, unit="per epoch", group="Growth of hashrate"),
            column("above_growth", "Above", growth, unit="per epoch", group="Growth of hashrate"),
            column("r_squared", "R\u00b2", percent),
            column("p_value", "p", p_value),
            *interval_columns(
                "later_threshold_per_ph_day",
                "Threshold",
                decimal,
                "later_threshold_low_per_ph_day",
                "later_threshold_high_per_ph_day",
                unit="per PH/s/day",
                group="One epoch later",
            ),
            column("later_below_growth", "Below", growth, unit="per epoch", group="One epoch later"),
            column("later_above_growth", "Above", growth, unit="per epoch", group="One epoch later"),
            column("later_p_value", "p", p_value, group="One epoch later"),
        ],
        rows,
        mart="revenue_threshold",
        note=(
            "The paper's statement holds if p is small and growth is larger above the threshold, one epoch "
            "later: growth in the same epoch shares the difficulty with the hashprice. Before p, a cubic "
            "trend is subtracted from ln hashprice and from growth."
        ),
    )


def _growth_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    """Return the figure of the growth per day of network hashrate, beside that of revenue and hashprice."""
    colours = {"hashrate": "var(--accent-1)"}
    drawn = [
        RatioRow(
            row=row["metric"],
            label=METRICS[row["metric"]],
            value=growth(row["lambda_per_day"]),
            ratio=row["lambda_per_day"],
            low=row["lambda_low_per_day"],
            high=row["lambda_high_per_day"],
            colour=colours.get(row["metric"], "var(--accent-2)"),
        )
        for row in sorted(rows, key=lambda row: list(METRICS).index(row["metric"]))
    ]
    ends = [value for row in drawn for value in (row.ratio, row.low, row.high) if value is not None]
    reach = 1.08 * max(abs(value) for value in ends) or 1.0
    axis = RatioAxis(title="Growth per day", smallest=-reach, largest=reach, limit=None, reference=0.0)
    return Figure(
        figure_id="dilemma-chart",
        title="Hashrate against what it earns",
        caption=(
            "Malthusian trap: hashrate grows faster than revenue, so hashprice falls (left of zero). "
            f"The slopes are those of ln y = λt + c over days, in percent, with {INTERVAL}s. Revenue "
            "is per day of the time that the blocks took."
        ),
        panels=[ratio_panel("dilemma", "Growth of hashrate, revenue and hashprice", drawn, axis)],
        marts=("revenue_growth",),
        rests_on=on_blocks(marts),
    )


def _pool_growth(marts: Marts) -> list[tuple[Row, Row]]:
    """Return for each of the largest pools two fits of growth: of its hashrate and of its hashprice.

    Hashprice is what one unit of hashrate earns.
    """
    fits = {(row["owner"], row["metric"]): row for row in marts.rows("revenue_growth") if _is_fitted(row)}
    unit = "usd" if any(metric == "hashprice_usd" for _, metric in fits) else "sat"
    pairs = [(fits.get((pool, "hashrate")), fits.get((pool, f"hashprice_{unit}"))) for pool in marts.pools]
    return [(own, price) for own, price in pairs if own and price][:MAX_PRISONERS]


def _is_fitted(row: Row) -> bool:
    return row["grouped_by"] == "pool" and row["lambda_per_day"] is not None


def _prisoner_figure(marts: Marts, pools: Sequence[tuple[Row, Row]]) -> Figure:
    """Return the figure of how each pool's hashrate grew, beside how the revenue per unit of it changed."""
    rows = [
        RatioRow(
            row=f"{row['owner']}-{row['metric']}",
            label=f"{marts.name(row['owner'])}: {word}",
            value=growth(row["lambda_per_day"]),
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
        title="Each pool's hashrate against what one unit of it earns",
        caption=(
            "Prisoner's dilemma: a pool's own hashrate grows (right of zero) although its hashprice "
            f"falls (left of zero). Slopes in percent per day, with {INTERVAL}s; at most "
            f"{MAX_PRISONERS} pools."
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
        RowHead(
            "Pool",
            lambda row: marts.name(row["owner"]),
            is_total=lambda row: bool(row["grouped_by"] == "network"),
        ),
        _growth_columns(),
        rows,
        mart="revenue_growth",
        note=(
            "Prisoner's dilemma: a pool's own hashrate grows although its hashprice falls. A window "
            "without a change of price or subsidy cannot show it."
        ),
    )


def _growth_group_tables(marts: Marts) -> list[Table]:
    title = "Growth per day of hashrate, revenue and hashprice"
    return group_tables(marts, "revenue_growth_group", "dilemma-group-table", title, _growth_columns())


def _growth_columns() -> list[MartColumn]:
    return [
        MartColumn("Of", lambda row: METRICS[row["metric"]], kind="text"),
        column("n_days", "Days"),
        *interval_columns(
            "lambda_per_day",
            "\u03bb",
            growth,
            "lambda_low_per_day",
            "lambda_high_per_day",
            between=growth_range,
        ),
        column("r_squared", "R\u00b2", percent),
    ]


TOPIC: Final = Topic(
    section_id="revenue",
    title="Revenue",
    question="What does mining earn, and does hashrate follow?",
    intro=(
        "Revenue is the subsidy and the fees of the blocks whose fees are known. Where only the coinbase "
        "tells them, the fees of a block are what it claims above the subsidy. Hashprice is what "
        "1\u00a0PH/s earns per day on average. It depends on difficulty, subsidy, fees and price, "
        "not on luck. These numbers are sums over all blocks, so they have no interval."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
