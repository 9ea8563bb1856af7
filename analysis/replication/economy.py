"""Checks the paper's statements on hashrate, revenue and the halving with the data of its authors."""

from collections.abc import Iterator
from typing import Final

import duckdb
import numpy as np

from analysis.replication.statement import SIGNIFICANCE, CheckedStatement, change, rate_per_day, series
from analysis.stats.event_study import event_effect
from analysis.stats.growth import fit_growth, growth_segments
from analysis.stats.sql_functions import Numbers
from analysis.stats.threshold import detrended_threshold_fit

HASHES_PER_PH: Final = 1e15
HALVING_DAY: Final = "2016-07-09"
HALVING_WINDOW_DAYS: Final = 30
# Growth is compared per 14 days, about the time of 2016 blocks (a difficulty epoch).
PERIOD_DAYS: Final = 14
LEAST_PRESENT_RATIO: Final = 0.8
# Where the paper gives no R2, the line must explain this part of the variance.
LEAST_R_SQUARED: Final = 0.5
# For each series: its column of the hashrate file, its name, and the R2 that the paper gives.
GROWTHS: Final[tuple[tuple[str, str, float | None], ...]] = (
    ("ALL", "the network", 0.95),
    ("AntPool", "AntPool", None),
    ("F2Pool", "F2Pool", None),
    ("BTCCOM", "BTC.com", None),
    ("ViaBTC", "ViaBTC", None),
)
HASHRATES: Final = "SELECT day, hashes_per_s FROM paper_hashrates WHERE label = $1 ORDER BY day"
REVENUES: Final = """
    SELECT day, hashes_per_s, revenue_usd
    FROM paper_hashrates INNER JOIN paper_revenues USING (day)
    WHERE label = 'ALL' AND hashes_per_s > 0 ORDER BY day
"""


def growth(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement that hashrate grows exponentially, for the network and each of four pools.

    A series that cannot be fitted gives no statement.
    """
    for label, name, published in GROWTHS:
        days, values = series(connection, HASHRATES, label)
        fit = fit_growth(days, values)
        if fit is None:
            continue
        segments = growth_segments(days, values)
        rates = ", ".join(f"{segment.lambda_per_day:.4f}" for segment in segments)
        holds = fit.lambda_low_per_day > 0 and fit.r_squared >= (published or LEAST_R_SQUARED)
        yield CheckedStatement(
            statement=f"Hashrate of {name} grows exponentially",
            paper=f"R2 = {published} (conference version)" if published else "exponential",
            ours=f"R2 = {fit.r_squared:.3f}, adjusted {fit.adjusted_r_squared:.3f},"
            f" lambda = {rate_per_day(fit)}, {fit.n_days:,.0f} days",
            verdict="replicated" if holds else "differs",
            reason="ln H = lambda t + c on days above 0. The trend exists, but residuals depend on each other"
            f" (Durbin-Watson {fit.durbin_watson:.2f}) and the series breaks into {len(segments)} pieces"
            f" with lambda {rates}, so no single rate describes it.",
        )


def unit_revenue(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield two checked statements, one on the network and one on pools.

    They say that hashrate grows although a unit of hashrate earns less and less.
    """
    days, hashrates, revenues = series(connection, REVENUES)
    network, whole, unit = (fit_growth(days, y) for y in (hashrates, revenues, revenues / hashrates))
    pools = [(name, fit_growth(*series(connection, HASHRATES, label))) for label, name, _ in GROWTHS[1:]]
    grown = {name: fit for name, fit in pools if fit is not None}
    if network is None or whole is None or unit is None or not grown:
        return
    falls = unit.lambda_high_per_day < 0
    yield CheckedStatement(
        statement="Hashrate outgrows what it earns",
        paper="revenue per unit of hashrate falls while hashrate grows",
        ours=f"lambda of hashrate {rate_per_day(network)}; of revenue in USD {rate_per_day(whole)};"
        f" of revenue per unit {rate_per_day(unit)}; {unit.n_days:,.0f} days",
        verdict="replicated" if falls and network.lambda_low_per_day > 0 else "differs",
        reason="ln y = lambda t + c on days that both files have. The price rose and fell by far more than"
        f" this trend (R2 of revenue per unit {unit.r_squared:.2f}), and one halving is part of it.",
    )
    growing = [name for name, fit in grown.items() if fit.lambda_low_per_day > 0]
    yield CheckedStatement(
        statement="Each pool grows although a unit earns less (prisoner's dilemma)",
        paper="pools keep adding hashrate",
        ours=f"lambda above 0 for {len(growing)} of {len(grown)} pools:"
        f" {'; '.join(f'{name} {rate_per_day(fit)}' for name, fit in grown.items())}",
        verdict="replicated" if falls and len(growing) == len(grown) else "differs",
        reason="These figures agree with the dilemma. They do not show that a pool would earn more if all"
        " pools stopped growing; that needs costs, which no file has.",
    )


def threshold(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement that hashrate grows only if revenue per unit of it exceeds a threshold."""
    days, hashrates, revenues = series(connection, REVENUES)
    levels, logs = _periods(days, revenues / hashrates * HASHES_PER_PH), np.log(_periods(days, hashrates))
    growths = np.diff(logs)
    known = ~np.isnan(levels[:-1]) & ~np.isnan(growths)
    fit = detrended_threshold_fit(levels[:-1][known], growths[known])
    if fit is None:
        return
    is_as_said = fit.p_value <= SIGNIFICANCE and fit.above_mean > fit.below_mean
    yield CheckedStatement(
        statement="Hashrate grows when revenue per unit is above a threshold",
        paper="grows above, not below",
        ours=f"{fit.threshold:,.0f} USD per PH/s and day (95 % interval {fit.low:,.0f} to {fit.high:,.0f});"
        f" per {PERIOD_DAYS} days hashrate changes by {change(fit.below_mean, 1)} below and"
        f" {change(fit.above_mean, 1)} above it; p = {fit.p_value:.2f}",
        verdict="replicated" if is_as_said else "differs",
        reason=f"Means of {known.sum()} periods of {PERIOD_DAYS} days, each with the growth to the next."
        " Both have the period's hashrate in them; p is of both without their trends. "
        + (
            "The split fits better than splits of unrelated series."
            if is_as_said
            else "Series shifted against each other, which are unrelated, are too often split as well as"
            " that, so it cannot be called a threshold."
        ),
    )


def halving(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statements that price and fees are not sensitive to the halving of 2016.

    The change of the price is compared with the changes at other (placebo) dates. The statement on fees is
    always "cannot be replicated", because no fees were published.
    """
    days, prices = series(connection, "SELECT day, price_usd FROM paper_prices ORDER BY day")
    event = float(np.datetime64(HALVING_DAY).astype(int))
    window = HALVING_WINDOW_DAYS
    effect = event_effect(days, prices, event, window)
    if effect is not None:
        yield CheckedStatement(
            statement="The price is not sensitive to the halving",
            paper="not sensitive",
            ours=f"{change(effect.log_change)} from {window} days before to {window} after; placebo dates"
            f" {change(effect.placebo_low)} to {change(effect.placebo_high)}, p = {effect.p_value:.2f}",
            verdict="replicated" if effect.p_value > SIGNIFICANCE else "differs",
            reason=f"One halving ({HALVING_DAY}) against {effect.n_placebos:.0f} other dates, whose windows"
            " overlap, so only an unusually large change could be seen.",
        )
    yield CheckedStatement(
        statement="Fees are not sensitive to the halving",
        paper="not sensitive",
        ours="none",
        verdict="cannot be replicated",
        reason="No fees were published. The revenue file gives fees and subsidy as one sum in USD, and no"
        " file has the block times that are needed to subtract the subsidy.",
    )


def _periods(days: Numbers, values: Numbers) -> Numbers:
    """Return the mean value of each period of 14 days; NaN if a fifth or more of its days have no value.

    `days` are days since 1970-01-01, and `values` has one value for each of them.
    """
    if not len(days):
        return values
    places = ((days - days[0]) // PERIOD_DAYS).astype(int)
    counts = np.bincount(places)
    means = np.bincount(places, weights=values) / np.maximum(counts, 1)
    whole: Numbers = np.where(counts > LEAST_PRESENT_RATIO * PERIOD_DAYS, means, np.nan)
    return whole
