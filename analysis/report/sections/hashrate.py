"""Makes the report's section on the hashrate of the network and of pools, and on its exponential growth."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report import time_marks
from analysis.report.basis import on_blocks
from analysis.report.charts.lines import HASHRATE_LABEL, Axis, Line, Point, interval_point, line_panel
from analysis.report.charts.marks import DatedEvent
from analysis.report.charts.ratios import RatioAxis, RatioRow, ratio_panel
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, LegendKey, SectionContent, Table, Unanswered
from analysis.report.pools import MAX_CHART_POOLS, pool_colour
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    group_tables,
    interval_columns,
    mart_table,
    period_name,
    pool_head,
    text_head,
)
from analysis.report.text import (
    GAP,
    INTERVAL,
    NOTHING,
    decimal,
    growth,
    growth_range,
    metric,
    moment,
    p_value,
    plural,
)
from analysis.report.topic import Topic

PAPER_COLOUR: Final = "var(--accent-2)"
OBSERVED_COLOUR: Final = "var(--accent-1)"
FIT_COLOUR: Final = "var(--ink)"
PAPER_FORMULA: Final = "H = D \u00b7 2\u2074\u2078 / ((2\u00b9\u2076 \u2212 1) \u00b7 600)".replace(" ", GAP)
EPOCH: Final = dt.date(1970, 1, 1)
NOT_ENOUGH_DAYS: Final = Unanswered(
    question="Does hashrate grow exponentially?",
    lacks=(
        "30 days with blocks of known time and difficulty are needed. `pool-collector backfill` reads older "
        "blocks from a node's disk; `pool-collector fetch checkpoints pool-labels` gets what "
        "others have published."
    ),
)
HALF_DEPENDENT: Final = 1.0  # a Durbin-Watson statistic below this: residuals are not independent
LEAST_TIMED: Final = (
    0.9  # of the blocks of known difficulty; with fewer, the two methods rest on other blocks
)
NO_DIFFICULTY: Final = (
    "The difficulty of these blocks is not known. `pool-collector backfill` reads it from block files; "
    "`pool-collector fetch checkpoints` gets what others have published."
)
FIXED_DIFFICULTY: Final = (
    ". That figure assumes one block in 10 min; the difficulty of this chain never changes, so it does not "
    "follow the hashrate"
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "hashrate": Read("hashrate", "period_kind, first_height", "grouped_by = 'network'"),
        "hashrate_pool": Read(
            "hashrate", "is_unknown, block_count DESC, owner", "grouped_by = 'pool' AND period_kind = 'all'"
        ),
        "hashrate_group": Read(
            "hashrate",
            "grouped_by, is_unknown, block_count DESC, owner",
            "grouped_by != 'network' AND period_kind = 'all'",
        ),
        "hashrate_growth": Read("hashrate_growth", "grouped_by, owner", "grouped_by IN ('network', 'pool')"),
        "hashrate_growth_group": Read("hashrate_growth", "grouped_by, owner", "grouped_by != 'network'"),
        "hashrate_segment": Read(
            "hashrate_segment", "grouped_by, owner, segment", "grouped_by IN ('network', 'pool')"
        ),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how large the hashrate was, and whether it grew exponentially."""
    row = marts.whole_window("hashrate")
    if row is None:
        return []
    by_difficulty = metric(row["paper_hashes_per_s"], "H/s")
    said = []
    if row["paper_hashes_per_s"] is None:
        return []
    if row["observed_hashes_per_s"] is None:
        said.append(
            f"By difficulty the hashrate was {by_difficulty}. The time that the blocks took is not known."
        )
    else:
        low, high = (metric(row[f"observed_{end}_hashes_per_s"], "H/s") for end in ("low", "high"))
        n_timed, n_known = row["timed_block_count"], row["difficulty_block_count"]
        # Between n blocks there are n - 1 intervals.
        is_whole = n_timed >= row["block_count"] - 1
        blocks = (
            "The blocks found" if is_whole else f"{plural(n_timed, 'block')} of known difficulty and time"
        )
        is_alike = n_timed >= LEAST_TIMED * n_known
        known = "" if is_alike else f" of {plural(n_known, 'block')}, also those without a time,"
        said.append(
            f"{blocks} need {metric(row['observed_hashes_per_s'], 'H/s')} on average "
            f"({INTERVAL} {low} to {high}); by the difficulty{known} it is {by_difficulty}"
            f"{'' if marts.has_retargets else FIXED_DIFFICULTY}."
        )
    fit = next((r for r in marts.rows("hashrate_growth") if r["grouped_by"] == "network"), None)
    if fit is None or fit["lambda_per_day"] is None:
        return said
    return [*said, *_growth(marts, fit)]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: hashrate by two methods, over time and per pool; fits of its growth."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    if len(_course(marts)) > 1:
        parts.append(_course_figure(marts))
    if any(row["paper_hashes_per_s"] is not None for row in marts.rows("hashrate")):
        parts.append(_network_table(marts))
    elif marts.window["n_blocks"]:
        missing.append(NO_DIFFICULTY)
    pools = [row for row in marts.rows("hashrate_pool") if row["observed_hashes_per_s"]]
    if pools:
        parts += [_pool_figure(marts, pools), _pool_table(marts)]
        parts += group_tables(marts, "hashrate_group", "hashrate-group-table", "Hashrate", _pool_columns())
    if _of_network(marts.rows("hashrate_growth")):
        parts += [_growth_table(marts), *_growth_group_tables(marts), _segment_table(marts)]
    else:
        missing.append(NOT_ENOUGH_DAYS)
    return SectionContent(parts=parts, missing=missing)


def _growth(marts: Marts, fit: Row) -> list[str]:
    interval = growth_range(fit["lambda_low_per_day"], fit["lambda_high_per_day"])
    rate = f"{growth(fit['lambda_per_day'])} per day ({INTERVAL} {interval})"
    pieces = sum(1 for row in marts.rows("hashrate_segment") if row["grouped_by"] == "network")
    said = [
        (
            f"One exponential curve over {plural(fit['n_days'], 'day')} changes by {rate}, with R² "
            f"{decimal(fit['r_squared'])}."
        )
    ]
    if pieces > 1:
        said.append(f"It is not one exponential: {pieces} pieces of constant growth fit better.")
    statistic = fit["durbin_watson"]
    if statistic is not None and statistic < HALF_DEPENDENT:  # NaN is not
        said.append(
            f"The residuals depend on each other (Durbin-Watson {decimal(statistic)}; 2 if independent), so "
            "R² says little."
        )
    return said


def _of_network(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["grouped_by"] == "network"]


def _course(marts: Marts) -> list[tuple[dt.date, Row]]:
    """Return the network's hashrate over time as (day, row), without periods of unknown difficulty."""
    return marts.over_time("hashrate", "paper_hashes_per_s")


def _course_lines(marts: Marts, course: Sequence[tuple[dt.date, Row]], segments: Sequence[Row]) -> list[Line]:
    """Return the lines of the chart: hashrate by two methods, and the fit of each exponential piece."""
    observed = [
        interval_point(day, row, "observed", "hashes_per_s", is_partial=time_marks.is_partial(marts, row))
        for day, row in course
    ]
    paper = [Point(x=day, y=row["paper_hashes_per_s"]) for day, row in course]
    lines = [
        Line(label="observed", colour=OBSERVED_COLOUR, points=observed),
        Line(label="by difficulty", colour=PAPER_COLOUR, points=paper, stroke="dashed"),
    ]
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
    return lines


def _course_figure(marts: Marts) -> Figure:
    course = _course(marts)
    segments = _of_network(marts.rows("hashrate_segment"))
    lines = _course_lines(marts, course, segments)
    dated = time_marks.events(marts, course[0][0], course[-1][0])
    breaks = [
        DatedEvent(x=row["first_day"], label="B", words=f"{row['first_day']}: the growth changes")
        for row in segments[1:]
    ]
    period = "UTC day" if course[0][1]["period_kind"] == "day" else "difficulty epoch"
    drawing = line_panel(
        "hashrate",
        "Hashrate of the network",
        lines,
        x=Axis(title=""),
        y=Axis(title="Hashes per second, logarithmic", label=HASHRATE_LABEL, is_log=True),
        events=[*breaks, *dated],
    )
    return Figure(
        figure_id="hashrate-chart",
        title=f"Hashrate of the network per {period}",
        caption=(
            f"The band is the {INTERVAL} of the observed hashrate. It shows how much luck there is in "
            "finding blocks."
        ),
        panels=[drawing],
        marts=("hashrate", "hashrate_segment"),
        rests_on=on_blocks(marts),
        legend=[
            *(line.legend for line in lines[:3]),
            *(
                [LegendKey(label="B: the growth changes", colour="var(--muted)", shape="dotted")]
                if breaks
                else []
            ),
            *time_marks.course_legend(marts, course, dated),
        ],
    )


def _fitted(row: Row, day: str) -> Point:
    days = (row[day] - EPOCH).days
    return Point(x=row[day], y=math.exp(row["lambda_per_day"] * days + row["intercept"]))


def _rate(value: float | None) -> str:
    return metric(value, "H/s")


def _rates(low: float | None, high: float | None) -> str:
    return NOTHING if low is None else f"{_rate(low)} to {_rate(high)}"


def _interval_columns() -> tuple[MartColumn, MartColumn]:
    return interval_columns(
        "observed_hashes_per_s",
        "Observed",
        _rate,
        "observed_low_hashes_per_s",
        "observed_high_hashes_per_s",
        between=_rates,
    )


def _network_table(marts: Marts) -> Table:
    kinds = {"all": 0, "epoch": 1, "day": 2}
    known = [row for row in marts.rows("hashrate") if row["paper_hashes_per_s"] is not None]
    rows = sorted(known, key=lambda row: (kinds[row["period_kind"]], -(row["first_height"] or 0)))
    return mart_table(
        "hashrate-table",
        "Hashrate of the network: over all, then epochs and days, newest first",
        RowHead("Period", period_name, is_total=lambda row: bool(row["period_kind"] == "all")),
        [
            column("block_count", "Blocks"),
            column("mean_difficulty", "Difficulty", decimal),
            column("paper_hashes_per_s", "By difficulty", _rate),
            *_interval_columns(),
        ],
        rows,
        mart="hashrate",
        records=marts.rows("hashrate"),
    )


def _pool_figure(marts: Marts, pools: Sequence[Row]) -> Figure:
    rows = [
        RatioRow(
            row=row["owner"],
            label=marts.name(row["owner"]),
            value=_rate(row["observed_hashes_per_s"]),
            ratio=row["observed_hashes_per_s"],
            low=row["observed_low_hashes_per_s"],
            high=row["observed_high_hashes_per_s"],
            colour=pool_colour(marts, row["owner"]),
        )
        for row in pools[:MAX_CHART_POOLS]
    ]
    axis = RatioAxis(label=HASHRATE_LABEL, title="Hashes per second", limit=None)
    return Figure(
        figure_id="hashrate-pool-chart",
        title="Hashrate per pool",
        caption=(
            f"Observed, over the whole window. Lines are {INTERVAL}s. At most {MAX_CHART_POOLS} pools "
            "are drawn."
        ),
        panels=[ratio_panel("hashrate-pool", "Hashrate per pool", rows, axis)],
        marts=("hashrate",),
        rests_on=on_blocks(marts),
    )


def _pool_columns() -> list[MartColumn]:
    return [
        column("block_count", "Blocks"),
        column("paper_hashes_per_s", "By difficulty", _rate),
        *_interval_columns(),
    ]


def _pool_table(marts: Marts) -> Table:
    return mart_table(
        "hashrate-pool-table",
        "Hashrate per pool over the whole window",
        pool_head(marts, "owner"),
        _pool_columns(),
        marts.rows("hashrate_pool"),
        mart="hashrate",
        is_folded=True,
    )


def _growth_table(marts: Marts) -> Table:
    n_blocks = {row["owner"]: row["block_count"] for row in marts.rows("hashrate_pool")}
    rows = sorted(
        marts.rows("hashrate_growth"),
        key=lambda row: (row["grouped_by"] != "network", -n_blocks.get(row["owner"], 0), row["owner"]),
    )
    return mart_table(
        "growth-table",
        "Exponential growth, ln H = \u03bbt + c, of the network and of each pool",
        RowHead(
            "Pool", lambda row: marts.name(row["owner"]), is_total=lambda row: bool(row["owner"] == "all")
        ),
        _growth_columns(),
        rows,
        mart="hashrate_growth",
        note=(
            "Durbin-Watson is 2 if the residuals are independent. Far below 2, growth is not one "
            "exponential and R² says little; see the pieces below."
        ),
    )


def _growth_group_tables(marts: Marts) -> list[Table]:
    title = "Exponential growth"
    return group_tables(marts, "hashrate_growth_group", "growth-group-table", title, _growth_columns())


def _growth_columns() -> list[MartColumn]:
    return [
        column("n_days", "Days"),
        *interval_columns(
            "lambda_per_day",
            "\u03bb",
            growth,
            "lambda_low_per_day",
            "lambda_high_per_day",
            unit="per day",
            between=growth_range,
        ),
        column("intercept", "c", decimal),
        column("r_squared", "R\u00b2", decimal),
        column("adjusted_r_squared", "adjusted", decimal),
        column("residual_sd", "SD", decimal, group="Residuals"),
        column("durbin_watson", "Durbin-Watson", decimal, group="Residuals"),
        column("normality_p_value", "p of normal", p_value, group="Residuals"),
    ]


def _break_days(row: Row) -> str:
    """Return as text the interval of days in which the break before a piece of constant growth lies.

    The first piece has no break before it and gets an en dash.
    """
    low, high = row["first_day_low"], row["first_day_high"]
    return NOTHING if low is None else f"{moment(low)} to {moment(high)}"


def _segment_table(marts: Marts) -> Table:
    rows = _of_network(marts.rows("hashrate_segment"))
    return mart_table(
        "segment-table",
        "Pieces of constant growth between the breaks, network",
        text_head("Piece", "segment"),
        [
            column("first_day", "From", moment, kind="text"),
            MartColumn(INTERVAL, _break_days, kind="text"),
            column("last_day", "To", moment, kind="text"),
            column("n_days", "Days"),
            column("lambda_per_day", "\u03bb", growth, unit="per day"),
            column("r_squared", "R\u00b2", decimal),
        ],
        rows,
        mart="hashrate_segment",
        records=marts.rows("hashrate_segment"),
        note="The CSV also has the pieces of each pool.",
    )


TOPIC: Final = Topic(
    section_id="hashrate",
    title="Hashrate",
    question="How much hashing power is there, and how does it grow?",
    intro=(
        "By difficulty: the hashrate with which the network would find a block every 600 s on "
        f"average, {PAPER_FORMULA}. Observed: the expected number of hashes for the blocks found, "
        "divided by the time that they took by header times. Of the hashrate by difficulty a pool has its "
        "share of all blocks. Of the observed one it has its share of the expected hashes of those blocks "
        "whose time is known: a block whose parent is not in the dataset, such as the first one, took a time "
        "that nobody knows and is left out."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
