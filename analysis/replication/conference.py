"""Checks what the paper's conference version adds, with the data of its authors.

The figures are those of the slides in the authors' repository (BIGCOM, July 2020). They count days t from
2016-02-25 on, and their data go on to 2020-02-01, a year longer than what the authors published.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import duckdb
import numpy as np

from analysis.replication.statement import (
    SIGNIFICANCE,
    CheckedStatement,
    change,
    one_row,
    percent,
    rate_per_day,
    series,
)
from analysis.stats.event_study import event_effect
from analysis.stats.growth import fit_growth, growth_segments

FIRST_DAY: Final = np.datetime64("2016-02-25")
# Stage S1 of exponential growth ends at the first of these days, stage S2 begins at the second.
S1_LAST_T: Final = 1004
S2_FIRST_T: Final = 1029
HASHES_PER_TH: Final = 1e12
UNIT_COST: Final = 0.1667
TH_PER_GH: Final = 1e-3
# The scale of the figure that shows the three and the five largest pools; no number is given.
FIVE_LOWEST: Final = 0.3
FIVE_HIGHEST: Final = 0.9
# Columns of the hashrate file that are not one pool.
NO_POOL: Final = ("ALL", "Unknown", "others")

POOLS_WITH_FALLING_SHARE: Final = ("AntPool", "F2Pool")
WEEK_DAYS: Final = 7

HASHRATES: Final = "SELECT day, hashes_per_s FROM paper_hashrates WHERE label = $1 ORDER BY day"
SHARES: Final = """
    SELECT pools.day, pools.hashes_per_s / networks.hashes_per_s
    FROM paper_hashrates AS pools INNER JOIN paper_hashrates AS networks USING (day)
    WHERE pools.label = $1 AND networks.label = 'ALL' AND networks.hashes_per_s > 0
    ORDER BY pools.day
"""
UNIT_REVENUES: Final = """
    SELECT day, revenue_usd / (hashes_per_s / $1)
    FROM paper_hashrates INNER JOIN paper_revenues USING (day)
    WHERE label = 'ALL' AND hashes_per_s > 0 ORDER BY day
"""


@dataclass(frozen=True)
class PublishedGrowth:
    """Holds the growth that the slides give for one hashrate: lambda per day, R2, share at t = 1004.

    `label` is the column of the hashrate file. `share` is a pool's part of the network's hashrate, None for
    the network itself. t counts days from the slides' first day.
    """

    label: str
    name: str
    lambda_per_day: float
    r_squared: float
    share: float | None = None


GROWTHS: Final = (
    PublishedGrowth("AntPool", "AntPool", 0.003580, 0.8746, 0.1411),
    PublishedGrowth("BTCCOM", "BTC.com", 0.003922, 0.8047, 0.1921),
    PublishedGrowth("F2Pool", "F2Pool", 0.004302, 0.8083, 0.0870),
    PublishedGrowth("SlushPool", "SlushPool", 0.004488, 0.8389, 0.1118),
    PublishedGrowth("ALL", "the network", 0.004048, 0.9477),
)


def growth_rates(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Check the slides' growth rate and R2 of hashrate; yield a checked statement per pool and network."""
    for published in GROWTHS:
        days, values = series(connection, HASHRATES, published.label)
        fit = fit_growth(days, values)
        in_s1 = days <= _day_of(S1_LAST_T)
        first_stage = fit_growth(days[in_s1], values[in_s1])
        if fit is None or first_stage is None:
            continue
        is_same = fit.lambda_low_per_day <= published.lambda_per_day <= fit.lambda_high_per_day
        yield CheckedStatement(
            statement=f"Growth rate of {published.name}",
            paper=f"lambda = {published.lambda_per_day:.5f} per day, R2 = {published.r_squared:.3f}"
            " (conference version)",
            ours=f"lambda = {rate_per_day(fit)}, R2 = {fit.r_squared:.3f}, {fit.n_days:,.0f} days",
            verdict="replicated" if is_same else "differs",
            reason=f"Replicated means that our interval holds the published lambda. Up to t = {S1_LAST_T} it"
            f" is {rate_per_day(first_stage)}, R2 = {first_stage.r_squared:.3f}. The slides fit days up to"
            f" 2020-02-01; the published file ends on {np.datetime64(int(days[-1]), 'D')}.",
        )


def two_stages(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement that the network's hashrate grows exponentially only until t = 1004.

    The change of the hashrate around that day is compared with its changes around other dates. t counts days
    from the slides' first day.
    """
    days, values = series(connection, HASHRATES, "ALL")
    window = S2_FIRST_T - S1_LAST_T
    effect = event_effect(days, values, _day_of(S1_LAST_T), window)
    if effect is None:
        return
    ends = effect.p_value <= SIGNIFICANCE and effect.log_change < effect.placebo_low
    breaks = [_t_of(segment.first_t) for segment in growth_segments(days, values)[1:]]
    found = f"t = {', '.join(f'{t:.0f}' for t in breaks)}" if breaks else "no day"
    yield CheckedStatement(
        statement="Exponential growth ends at t = 1004 (stages S1, S2)",
        paper=f"stage S1 to t = {S1_LAST_T}, stage S2 from t = {S2_FIRST_T} (conference version)",
        ours=f"hashrate of the network changes by {change(effect.log_change)} from {window} days before"
        f" t = {S1_LAST_T} to {window} after; placebo dates {change(effect.placebo_low)} to"
        f" {change(effect.placebo_high)}, p = {effect.p_value:.2f}",
        verdict="replicated" if ends else "differs",
        reason=f"t = {S1_LAST_T} is {_date_of(S1_LAST_T)}. A search for breaks of the growth rate finds"
        f" {found}; it cuts no piece shorter than a tenth of the days. Stage S2 cannot be checked: only"
        f" {int((days >= _day_of(S2_FIRST_T)).sum())} of its days are published.",
    )


def falling_shares(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield, for AntPool and F2Pool, the checked statement that the share falls while the hashrate grows.

    The slides call this the Malthusian trap. It is replicated where the 95 % interval of the growth rate is
    above 0 for the hashrate and below 0 for the share.
    """
    fits = {}
    for published in GROWTHS:
        rate = fit_growth(*series(connection, HASHRATES, published.label))
        share = fit_growth(*series(connection, SHARES, published.label))
        if published.share is not None and rate is not None and share is not None:
            fits[published.name] = rate, share
    others = [
        f"{name} {rate_per_day(share)}"
        for name, (_, share) in fits.items()
        if name not in POOLS_WITH_FALLING_SHARE
    ]
    for name in POOLS_WITH_FALLING_SHARE:
        if name not in fits:
            continue
        rate, share = fits[name]
        is_trapped = rate.lambda_low_per_day > 0 and share.lambda_high_per_day < 0
        yield CheckedStatement(
            statement=f"Share of {name} falls as its hashrate grows (Malthus)",
            paper="hashrate grows exponentially, share falls (conference version)",
            ours=f"lambda of hashrate {rate_per_day(rate)}; lambda of share {rate_per_day(share)}",
            verdict="replicated" if is_trapped else "differs",
            reason="The slides call this the Malthusian trap and name two pools. ln share = lambda t + c on"
            f" days above 0. Share of the others: {'; '.join(others) or 'none'}.",
        )


def shares_at_end(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement on the pools' shares of hashrate at the end of stage S1 (t = 1004).

    The slides' shares are compared with those of the week around that day.
    """
    published_shares, found, agree = [], [], []
    for published in GROWTHS:
        days, shares = series(connection, SHARES, published.label)
        week = shares[np.abs(days - _day_of(S1_LAST_T)) <= WEEK_DAYS // 2]
        if published.share is None or len(week) < WEEK_DAYS:
            continue
        published_shares.append(f"{published.name} {percent(published.share)}")
        found.append(
            f"{published.name} {percent(week.mean())} ({percent(week.min())} to {percent(week.max())})"
        )
        agree.append(week.min() <= published.share <= week.max())
    if not published_shares:
        return
    yield CheckedStatement(
        statement=f"Shares of hashrate at t = {S1_LAST_T}",
        paper=f"{', '.join(published_shares)} (conference version)",
        ours=", ".join(found),
        verdict="replicated" if all(agree) else "differs",
        reason=f"Mean and range of the {WEEK_DAYS} days around {_date_of(S1_LAST_T)}, because shares of one"
        f" day vary by chance. {sum(agree)} of {len(agree)} published shares lie within the range.",
    )


def unit_cost(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement on the unit cost of hashrate in the slides' Cournot model.

    It also says in which unit the authors' files give the slides' number.
    """
    days, costs = series(connection, UNIT_REVENUES, HASHES_PER_TH)
    in_window = (days >= _day_of(S1_LAST_T)) & (days <= _day_of(S2_FIRST_T))
    found = costs[in_window]
    if len(found) < WEEK_DAYS or days[in_window][0] != _day_of(S1_LAST_T):
        return
    steps = np.abs(np.diff(np.log(found)))
    at_end, low, high, mean = found[0], found.min(), found.max(), found.mean()
    per_gh = TH_PER_GH * np.array([low, high])
    is_same = per_gh[0] <= UNIT_COST <= per_gh[1]
    fits_per_th = low <= UNIT_COST <= high
    yield CheckedStatement(
        statement="Unit cost xi of hashrate (Cournot competition)",
        paper=f"{UNIT_COST} USD per GHash/s (conference version)",
        ours=f"{at_end:.3f} USD per TH/s and day at t = {S1_LAST_T}; {low:.3f} to {high:.3f}, mean"
        f" {mean:.3f}, from then to t = {S2_FIRST_T}",
        verdict="replicated" if is_same else "differs",
        reason=f"Revenue in USD divided by hashrate. Per GH/s it is {TH_PER_GH * mean:.6f} USD a day,"
        f" {UNIT_COST / (TH_PER_GH * mean):,.0f} times less than the paper says. "
        + (
            "The paper's number lies in our range if its unit is TH/s and day."
            if fits_per_th
            else "The paper's number does not fit per TH/s and day either."
        )
        + f" It changes by up to {change(steps.max())} from one day to the next, so it is no constant; and it"
        " is revenue, which equals cost only if nobody profits.",
    )


def top_five(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement on the share of the five largest pools of each day.

    The slides show it as a curve, without a number.
    """
    n_days, n_half, least, median, most, n_inside = one_row(
        connection,
        """
        WITH ranked AS (
            SELECT day, hashes_per_s,
                row_number() OVER (PARTITION BY day ORDER BY hashes_per_s DESC) AS position
            FROM paper_hashrates WHERE NOT list_contains($1, label)
        ),
        shares AS (
            SELECT day, sum(ranked.hashes_per_s) / any_value(networks.hashes_per_s) AS share
            FROM ranked INNER JOIN paper_hashrates AS networks USING (day)
            WHERE position <= 5 AND networks.label = 'ALL' AND networks.hashes_per_s > 0 GROUP BY day
        )
        SELECT count(*), count(*) FILTER (WHERE share > 0.5), min(share), median(share), max(share),
            count(*) FILTER (WHERE share BETWEEN $2 AND $3)
        FROM shares
        """,
        list(NO_POOL),
        FIVE_LOWEST,
        FIVE_HIGHEST,
    )
    if not n_days:
        return
    yield CheckedStatement(
        statement="Hashrate of the five largest pools, each day",
        paper=f"a curve between {percent(FIVE_LOWEST, 0)} and {percent(FIVE_HIGHEST, 0)}"
        " (conference version)",
        ours=f"{percent(least)} to {percent(most)}, median {percent(median)}; over one half on {n_half:,} of"
        f" {n_days:,} days",
        verdict="replicated" if n_inside == n_days else "differs",
        reason=f"The slides give no number; {n_inside:,} days lie within the scale of their figure. Pools"
        " inside the columns 'Unknown' and 'others' cannot be told apart, so ours is a lower bound.",
    )


def _day_of(t: int) -> float:
    """Return the day number, counted since 1970-01-01, of day t of the slides."""
    return float((FIRST_DAY + t).astype(int))


def _date_of(t: int) -> str:
    """Return the date of day t of the slides, as in `2018-11-25`."""
    return str(FIRST_DAY + t)


def _t_of(day: float) -> float:
    """Return t of the slides for a day number that is counted since 1970-01-01."""
    return day - _day_of(0)
