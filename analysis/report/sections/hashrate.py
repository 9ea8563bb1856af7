"""Section: how much hashing power the network and its pools have, and whether it grows exponentially."""

import datetime as dt
import math
from collections.abc import Sequence
from typing import Final

from analysis.report.charts.charts import RatioAxis, RatioRow
from analysis.report.charts.curves import HASHRATE_LABEL, Axis, Event, Line, Point, banded, panel
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Section, Table
from analysis.report.parts import MAX_CHART_POOLS, colour, on_blocks, ratio_panel
from analysis.report.tables import Head, Show, by_pool, by_text, field, group_tables, mart_table, measured
from analysis.report.text import GAP, INTERVAL, NO_BLOCKS, NOTHING, decimal, metric, moment, p_value, percent

PAPER_COLOUR: Final = "var(--accent-2)"
OBSERVED_COLOUR: Final = "var(--accent-1)"
FIT_COLOUR: Final = "var(--ink)"
PAPER_FORMULA: Final = "H = D \u00b7 2\u2074\u2078 / ((2\u00b9\u2076 \u2212 1) \u00b7 600)".replace(" ", GAP)
EPOCH: Final = dt.date(1970, 1, 1)
NOT_ENOUGH_DAYS: Final = (
    "Not enough data to fit exponential growth: that takes 30 days with blocks. "
    "`pool-collector backfill` reads older blocks from the node's disk."
)


def hashrate_section(marts: Marts) -> Section:
    """Show the hashrate by two methods over time, per pool, and the fit of exponential growth."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    if not marts.rows("hashrate"):
        missing.append(NO_BLOCKS)
    elif len(marts.course("hashrate")) > 1:
        parts.append(_course_figure(marts))
    else:
        missing.append("All blocks are of one UTC day: there is no course of hashrate to draw.")
    if marts.rows("hashrate"):
        parts.append(_network_table(marts))
    pools = [row for row in marts.rows("hashrate_pool") if row["observed_hashes_per_s"]]
    if pools:
        parts += [_pool_figure(marts, pools), _pool_table(marts)]
        parts += group_tables(marts, "hashrate_group", "hashrate-group-table", "Hashrate", _pool_columns())
    if _of_network(marts.rows("hashrate_growth")):
        parts += [_growth_table(marts), *_growth_group_tables(marts), _segment_table(marts)]
    else:
        missing.append(NOT_ENOUGH_DAYS)
    return Section(
        section_id="hashrate",
        title="Hashrate",
        question="How much hashing power is there, and how does it grow?",
        intro=(
            "By difficulty: what the network would need to find a block in 600 s on average, "
            f"{PAPER_FORMULA}. Observed: the hashes that the blocks found stand for, over the time they took "
            "by header times. A pool's hashrate is its part."
        ),
        parts=parts,
        missing=missing,
    )


def _of_network(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["grouped_by"] == "network"]


def _course_figure(marts: Marts) -> Figure:
    course = marts.course("hashrate")
    observed = [banded(day, row, "observed", "hashes_per_s") for day, row in course]
    paper = [Point(x=day, y=row["paper_hashes_per_s"]) for day, row in course]
    lines = [
        Line(label="observed", colour=OBSERVED_COLOUR, points=observed),
        Line(label="by difficulty", colour=PAPER_COLOUR, points=paper, stroke="dashed"),
    ]
    segments = _of_network(marts.rows("hashrate_segment"))
    lines += [
        Line(
            label="exponential pieces",
            colour=FIT_COLOUR,
            points=[_fitted(row, "first_day"), _fitted(row, "last_day")],
            shape="line",
            stroke="dashed",
        )
        for row in segments
    ]
    breaks = [Event(x=row["first_day"], label="break") for row in segments[1:]]
    period = "UTC day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    drawing = panel(
        "hashrate",
        "Hashrate of the network",
        lines,
        x=Axis(title=""),
        y=Axis(title="Hashes per second, logarithmic", label=HASHRATE_LABEL, is_log=True),
        events=breaks,
    )
    return Figure(
        figure_id="hashrate-chart",
        title=f"Hashrate of the network per {period}",
        caption=(
            f"The band is the {INTERVAL} of the observed hashrate, which tells the luck of finding blocks."
        ),
        panels=[drawing],
        marts=("hashrate", "hashrate_segment"),
        rests_on=on_blocks(marts),
        legend=[line.legend for line in lines[:3]],
    )


def _fitted(row: Row, day: str) -> Point:
    days = (row[day] - EPOCH).days
    return Point(x=row[day], y=math.exp(row["lambda_per_day"] * days + row["intercept"]))


def _rate(value: float | None) -> str:
    return metric(value, "H/s")


def _rates(low: float | None, high: float | None) -> str:
    return NOTHING if low is None else f"{_rate(low)} to {_rate(high)}"


def _observed() -> tuple[Show, Show]:
    return measured(
        "observed_hashes_per_s",
        "Observed",
        _rate,
        "observed_low_hashes_per_s",
        "observed_high_hashes_per_s",
        between=_rates,
    )


def _network_table(marts: Marts) -> Table:
    kinds = {"all": 0, "epoch": 1, "day": 2}
    rows = sorted(
        marts.rows("hashrate"), key=lambda row: (kinds[row["period_kind"]], -(row["first_height"] or 0))
    )
    return mart_table(
        "hashrate-table",
        "Hashrate of the network: over all, then epochs and days, newest first",
        Head("Period", period_name, is_total=lambda row: bool(row["period_kind"] == "all")),
        [
            field("block_count", "Blocks"),
            field("mean_difficulty", "Difficulty", decimal),
            field("paper_hashes_per_s", "By difficulty", _rate),
            *_observed(),
        ],
        rows,
        mart="hashrate",
    )


def period_name(row: Row) -> str:
    """Name a period: a day, a difficulty epoch or the whole window."""
    if row["period_kind"] == "all":
        return "whole window"
    return f"epoch {row['period']}" if row["period_kind"] == "epoch" else str(row["period"])


def _pool_figure(marts: Marts, pools: Sequence[Row]) -> Figure:
    rows = [
        RatioRow(
            row=row["owner"],
            label=marts.name(row["owner"]),
            value=_rate(row["observed_hashes_per_s"]),
            ratio=row["observed_hashes_per_s"],
            low=row["observed_low_hashes_per_s"],
            high=row["observed_high_hashes_per_s"],
            colour=colour(marts, row["owner"]),
        )
        for row in pools[:MAX_CHART_POOLS]
    ]
    axis = RatioAxis(label=HASHRATE_LABEL, title="Hashes per second", limit=None)
    return Figure(
        figure_id="hashrate-pool-chart",
        title="Hashrate per pool",
        caption=(
            f"Observed, over the whole window; lines are {INTERVAL}s. At most {MAX_CHART_POOLS} "
            "pools are drawn."
        ),
        panels=[ratio_panel("hashrate-pool", "Hashrate per pool", rows, axis)],
        marts=("hashrate",),
        rests_on=on_blocks(marts),
    )


def _pool_columns() -> list[Show]:
    return [
        field("block_count", "Blocks"),
        field("paper_hashes_per_s", "By difficulty", _rate),
        *_observed(),
    ]


def _pool_table(marts: Marts) -> Table:
    return mart_table(
        "hashrate-pool-table",
        "Hashrate per pool over the whole window",
        by_pool(marts, "owner"),
        _pool_columns(),
        marts.rows("hashrate_pool"),
        mart="hashrate",
        is_folded=True,
    )


def _growth_table(marts: Marts) -> Table:
    rows = sorted(
        marts.rows("hashrate_growth"), key=lambda row: (row["grouped_by"] != "network", -row["n_days"])
    )
    return mart_table(
        "growth-table",
        "Exponential growth, ln H = \u03bbt + c, of the network and of each pool",
        Head("", lambda row: marts.name(row["owner"]), is_total=lambda row: bool(row["owner"] == "all")),
        _growth_columns(),
        rows,
        mart="hashrate_growth",
        note=(
            "Durbin-Watson is 2 for independent residuals; far below, growth is not one exponential "
            "and R\u00b2 "
            "says little. See the pieces below."
        ),
    )


def _growth_group_tables(marts: Marts) -> list[Table]:
    title = "Exponential growth"
    return group_tables(marts, "hashrate_growth_group", "growth-group-table", title, _growth_columns())


def _growth_columns() -> list[Show]:
    return [
        field("n_days", "Days"),
        *measured(
            "lambda_per_day",
            "\u03bb",
            _lambda,
            "lambda_low_per_day",
            "lambda_high_per_day",
            unit="%/day",
            between=lambda low, high: f"{_lambda(low)} to {_lambda(high)}",
        ),
        field("intercept", "c", lambda value: f"{value:.2f}"),
        field("r_squared", "R\u00b2", _two),
        field("adjusted_r_squared", "adjusted", _two),
        field("residual_sd", "SD", _two, group="Residuals"),
        field("durbin_watson", "Durbin-Watson", _two, group="Residuals"),
        field("normality_p_value", "p of normal", p_value, group="Residuals"),
    ]


def _lambda(value: float | None) -> str:
    return NOTHING if value is None else f"{100 * value:+.3f}".replace("-", "\N{MINUS SIGN}")


def _two(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _break_days(row: Row) -> str:
    """Write the interval of the break at which a piece begins; the first piece begins at none."""
    low, high = row["first_day_low"], row["first_day_high"]
    return NOTHING if low is None else f"{moment(low)} to {moment(high)}"


def _segment_table(marts: Marts) -> Table:
    rows = _of_network(marts.rows("hashrate_segment"))
    return mart_table(
        "segment-table",
        "Pieces of constant growth between the breaks, network",
        by_text("Piece", "segment"),
        [
            field("first_day", "From", moment, kind="text"),
            Show(INTERVAL, _break_days, kind="text"),
            field("last_day", "To", moment, kind="text"),
            field("n_days", "Days"),
            field("lambda_per_day", "\u03bb", _lambda, unit="%/day"),
            field("r_squared", "R\u00b2", percent),
        ],
        rows,
        mart="hashrate_segment",
        records=marts.rows("hashrate_segment"),
        note="The CSV also has the pieces of each pool.",
    )
