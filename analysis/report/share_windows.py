"""Makes the figures and the table of pool shares per time window: the last day, week, month, year, and all.

A reader switches between the windows of a figure. A window that the data does not span is left out.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from analysis.report import time_marks
from analysis.report.basis import on_blocks
from analysis.report.charts.marks import DatedEvent
from analysis.report.charts.ratios import RatioRow, ratio_panel
from analysis.report.charts.stacks import PARTIAL_KEY, Layer, Period, stack_panel
from analysis.report.data import MIN_EPOCH_BLOCKS, UNKNOWN, Marts, Read, Row
from analysis.report.model import Figure, Panel, Table
from analysis.report.pool_comparison import SIGNIFICANCE
from analysis.report.pools import pool_colour, prominent_pools
from analysis.report.tables import MartColumn, column, mart_table, pool_head, ratio_columns
from analysis.report.text import (
    INTERVAL,
    p_claim,
    p_value,
    percent,
    percent_range,
    plural,
    share_change,
    share_change_range,
    with_interval,
)

WINDOWS: Final[Mapping[str, str]] = MappingProxyType(
    {"day": "1 day", "week": "1 week", "month": "30 days", "year": "1 year", "all": "All"}
)
OTHER: Final = "other"
N_RANKED: Final = 12
LAST_DAYS: Final = 62
LAST_WEEKS: Final = 116
UP: Final = "\N{BLACK UP-POINTING TRIANGLE}"
DOWN: Final = "\N{BLACK DOWN-POINTING TRIANGLE}"


def _newest(kind: str, days: int) -> str:
    """Return the SQL condition that selects the periods of one kind from the last `days` days of the data."""
    newest = "(SELECT max(from_day) FROM pool_share_period)"
    return f"period_kind = '{kind}' AND from_day > {newest} - {days}"


READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        **time_marks.READS,
        "pool_share_window": Read("pool_share_window", "window_days NULLS LAST, is_unknown, rank, pool"),
        "share_of_days": Read("pool_share_period", "from_day, pool", _newest("day", LAST_DAYS)),
        "share_of_weeks": Read("pool_share_period", "from_day, pool", _newest("week", 7 * LAST_WEEKS)),
        "share_of_months": Read("pool_share_period", "from_day, pool", "period_kind = 'month'"),
    }
)


def risers(marts: Marts) -> list[str]:
    """Return sentences on the pools that gained and lost most in the last month (or week).

    A change counts only if a test shows that it is not chance.
    """
    rows = [row for row in marts.rows("pool_share_window") if not row["is_unknown"] and _is_sure(row)]
    window = next((name for name in ("month", "week") if any(r["time_window"] == name for r in rows)), None)
    changed = sorted(
        (row for row in rows if row["time_window"] == window), key=lambda row: float(row["gained_share"])
    )
    ends = [("gained", row) for row in changed[-1:] if row["gained_share"] > 0]
    ends += [("lost", row) for row in changed[:1] if row["gained_share"] < 0]
    return [
        f"{marts.name(row['pool'])} {word} most in the last "
        f"{WINDOWS[row['time_window']].removeprefix('1 ')}: "
        f"{share_change(row['gained_share'])} points ({INTERVAL} {_change_range(row)}), to "
        f"{percent(row['share_ratio'])}; {p_claim(row['adjusted_p_value'])}, corrected for the number of "
        "pools."
        for word, row in ends
    ]


def recent_leader(marts: Marts) -> list[str]:
    """Return a sentence on the leader of the last month (or week), if other pools lead over all blocks.

    Of pools that mined equally many none leads.
    """
    leaders: dict[str, list[Row]] = {}
    for row in marts.rows("pool_share_window"):
        if row["rank"] == 1:
            leaders.setdefault(row["time_window"], []).append(row)
    recently = next((leaders[name] for name in ("month", "week") if name in leaders), [])
    if len(recently) != 1 or "all" not in leaders:
        return []
    (recent,) = recently
    if recent["pool"] in {row["pool"] for row in leaders["all"]}:
        return []
    window = WINDOWS[recent["time_window"]].removeprefix("1 ")
    return [f"In the last {window} {marts.name(recent['pool'])} led with {with_interval(recent, 'share')}."]


def window_figure(marts: Marts) -> Figure:
    """Return the figure of each pool's share, a panel per time window; arrows mark significant changes."""
    drawn = {*prominent_pools(marts, N_RANKED), UNKNOWN}
    panels = []
    shown = _windows(marts)
    for window in shown:
        rows = [row for row in _rows_of(marts, window) if row["pool"] in drawn]
        first = rows[0]
        title = f"Share of blocks per pool, {WINDOWS[window]}: {plural(first['total_block_count'], 'block')}"
        panel = ratio_panel(f"share-{window}", title, [_ratio_row(marts, row) for row in rows])
        panels.append(replace(panel, title=WINDOWS[window] if len(shown) > 1 else ""))
    n_left = len({row["pool"] for row in marts.rows("pool_share_window")} - drawn)
    left = f" {plural(n_left, 'smaller pool')}: in the table only." if n_left else ""
    return Figure(
        figure_id="share-chart",
        title="Share of blocks",
        caption=(
            f"Dots show the shares of all blocks, lines their {INTERVAL}s. The pools are those that are "
            f"largest overall and recently. {UP} and {DOWN} mark a share that rose or fell against the "
            f"window of equal length before (p < 0.05, corrected for the number of pools).{left}"
        ),
        panels=panels,
        marts=("pool_share_window", "block_pool"),
        rests_on=on_blocks(marts),
        choice="Time window" if len(panels) > 1 else "",
    )


def window_table(marts: Marts) -> Table:
    """Return the table of shares per pool and time window, with the change against the window before."""
    return mart_table(
        "share-window-table",
        "Share per pool and time window, and its change",
        pool_head(marts),
        [
            MartColumn("Window", lambda row: WINDOWS[row["time_window"]], kind="text"),
            column("block_count", "Blocks"),
            column("total_block_count", "Of"),
            *ratio_columns("share", "Share"),
            MartColumn(
                "Points",
                lambda row: share_change(row["gained_share"]),
                group="Change against the window before",
            ),
            MartColumn(INTERVAL, _change_range, group="Change against the window before"),
            column("adjusted_p_value", "p, corrected", p_value, group="Change against the window before"),
        ],
        marts.rows("pool_share_window"),
        mart="pool_share_window",
        note="A change is the share less that in the window of equal length before, in percentage points.",
        is_folded=True,
    )


def stack_figure(marts: Marts) -> Figure | None:
    """Return the figure of stacked shares over time, a panel per window; None if no window has 2 periods."""
    layers = _layers(marts)
    panels: list[Panel] = []
    marked: list[DatedEvent] = []
    has_partial = False
    for window in _windows(marts):
        rows = _period_rows(marts, window)
        periods = _periods(marts, rows, layers)
        if len(periods) < 2:  # noqa: PLR2004 - one period is no course
            continue
        found = time_marks.events(marts, periods[0].from_day, periods[-1].to_day)
        marked += found
        has_partial = has_partial or not all(period.is_complete for period in periods)
        title = f"Shares per {rows[0]['period_kind']}, {WINDOWS[window]}"
        panel = stack_panel(f"stack-{window}", title, layers, periods, events=found)
        panels.append(replace(panel, title=WINDOWS[window]))
    if not panels:
        return None
    if len(panels) == 1:
        panels = [replace(panels[0], title="")]
    return Figure(
        figure_id="share-stack-chart",
        title="Shares over time",
        caption=(
            "Shares of all blocks, stacked, per day, week or month. The pools are those that are largest "
            "overall and recently; the others are one layer. A period without a block, and a month with "
            f"fewer than {MIN_EPOCH_BLOCKS} blocks, stays empty. "
            "In weeks and months, a block without a time is placed by its height. "
            "Intervals are in the table."
        ),
        panels=panels,
        marts=("pool_share_period", "dated_change"),
        rests_on=on_blocks(marts),
        legend=[
            *(layer.legend for layer in layers),
            *([PARTIAL_KEY] if has_partial else []),
            *time_marks.legend(marked),
        ],
        choice="Time window" if len(panels) > 1 else "",
        layout="full",
    )


def period_tables(marts: Marts) -> list[Table]:
    """Return, in a list, the table behind the stacked shares of all blocks, newest period first.

    The list is empty if the periods are days, which have a table of their own.
    """
    rows = sorted(
        _period_rows(marts, "all"),
        key=lambda row: (-row["from_day"].toordinal(), -row["block_count"], row["pool"]),
    )
    if not rows or rows[0]["period_kind"] == "day":
        return []
    table = mart_table(
        "share-period-table",
        f"Blocks and share per {rows[0]['period_kind']} and pool, newest first",
        pool_head(marts),
        [
            MartColumn("From", lambda row: f"{row['from_day']}", kind="text"),
            column("block_count", "Blocks"),
            column("total_block_count", "Of"),
            *ratio_columns("share", "Share"),
            MartColumn("Covered", lambda row: "whole" if row["is_complete"] else "in part", kind="text"),
        ],
        rows,
        mart="pool_share_period",
        is_folded=True,
    )
    return [table]


def _windows(marts: Marts) -> list[str]:
    """Return the time windows to show; one that has as many blocks as the whole data is left out."""
    counts = {row["time_window"]: row["total_block_count"] for row in marts.rows("pool_share_window")}
    return [
        window
        for window in WINDOWS
        if window in counts and (window == "all" or counts[window] < counts["all"])
    ]


def _rows_of(marts: Marts, window: str) -> list[Row]:
    return [row for row in marts.rows("pool_share_window") if row["time_window"] == window]


def _ratio_row(marts: Marts, row: Row) -> RatioRow:
    arrow = (f" {UP}" if row["gained_share"] > 0 else f" {DOWN}") if _is_sure(row) else ""
    return RatioRow(
        row=row["pool"],
        label=marts.name(row["pool"]),
        value=f"{percent(row['share_ratio'])}{arrow}",
        ratio=row["share_ratio"],
        low=row["share_low_ratio"],
        high=row["share_high_ratio"],
        colour=pool_colour(marts, row["pool"]),
    )


def _is_sure(row: Row) -> bool:
    """Return whether a test, corrected for the number of pools, shows that the pool's share changed."""
    return row["adjusted_p_value"] is not None and row["adjusted_p_value"] < SIGNIFICANCE


def _change_range(row: Row) -> str:
    return share_change_range(row["gained_low_share"], row["gained_high_share"])


def _layers(marts: Marts) -> list[Layer]:
    """Return the layers of the chart of stacked shares from the top: prominent pools, others, unknown."""
    named = [
        Layer(key=pool, label=marts.name(pool), colour=pool_colour(marts, pool))
        for pool in prominent_pools(marts)
    ]
    rest = []
    if len(marts.pools) > len(named):
        rest.append(Layer(key=OTHER, label="other pools", colour="var(--pool-other)"))
    if any(row["is_unknown"] for row in marts.shares):
        rest.append(Layer(key=UNKNOWN, label="unknown", colour="var(--unknown)", is_hatched=True))
    return [*named, *rest]


def _period_rows(marts: Marts, window: str) -> list[Row]:
    """Return the rows of shares in each period of a time window.

    The periods are days if the window spans up to two months, weeks up to two years, else months.
    """
    if window == "day":
        return []
    known = [row for row in marts.shares if row["block_count"]]
    length = _length(marts)
    if not known or length is None:
        return []
    days = {"week": 7, "month": 30, "year": 365}.get(window, length)
    if days <= LAST_DAYS:
        rows = marts.rows("share_of_days")
    elif days <= 7 * LAST_WEEKS:
        rows = marts.rows("share_of_weeks")
    else:
        rows = marts.rows("share_of_months")
    if window == "all" or not rows:
        return list(rows)
    newest: dt.date = max(row["from_day"] for row in rows)
    return [row for row in rows if row["from_day"] > newest - dt.timedelta(days=days)]


def _length(marts: Marts) -> int | None:
    """Return the number of days from the first to the last day with a block; None without a block."""
    days = [row["day"] for row in marts.day_shares]
    return (max(days) - min(days)).days + 1 if days else None


def _periods(marts: Marts, rows: Sequence[Row], layers: Sequence[Layer]) -> list[Period]:
    """Return for each period the share of blocks of each layer, and a text with them, the largest first.

    A month of which the dataset has only some blocks, fewer than a day's, is left out.
    """
    named = {layer.key: layer.label for layer in layers}
    found: dict[dt.date, list[Row]] = {}
    for row in rows:
        found.setdefault(row["from_day"], []).append(row)
    periods = []
    for day, shares in sorted(found.items()):
        total, kind = shares[0]["total_block_count"], shares[0]["period_kind"]
        if kind == "month" and not shares[0]["is_complete"] and total < MIN_EPOCH_BLOCKS:
            continue  # chance alone would fill the column
        counts: dict[str, int] = {}
        for row in shares:
            key = row["pool"] if row["pool"] in named else OTHER
            counts[key] = counts.get(key, 0) + row["block_count"]
        said = {row["pool"]: _share_words(marts, row) for row in shares if row["pool"] in named}
        if OTHER in counts:
            said[OTHER] = f"{named[OTHER]} {percent(counts[OTHER] / total)}"
        words = ", ".join(said[key] for key in sorted(said, key=lambda key: -counts[key]))
        of = f"{kind} of {day}" if kind == "week" else f"{day:%Y-%m}" if kind == "month" else f"{day}"
        part = "" if shares[0]["is_complete"] else ", only a part of it"
        periods.append(
            Period(
                from_day=day,
                to_day=_after(day, kind),
                ratios={key: number / total for key, number in counts.items()},
                words=f"{of} ({plural(total, 'block')}{part}): {words}",
                is_complete=shares[0]["is_complete"],
            )
        )
    return periods


def _share_words(marts: Marts, row: Row) -> str:
    low, high = row["share_low_ratio"], row["share_high_ratio"]
    return f"{marts.name(row['pool'])} {percent(row['share_ratio'])} ({percent_range(low, high)})"


def _after(day: dt.date, kind: str) -> dt.date:
    """Return the first day after the period (a day, week or month, by `kind`) that begins at `day`."""
    if kind == "month":
        return (day.replace(day=1) + dt.timedelta(days=32)).replace(day=1)
    return day + dt.timedelta(days=7 if kind == "week" else 1)
