"""Test that growth fits recover planted values, check their residuals, and find planted breaks."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.database import connect
from analysis.stats import growth

DAYS = np.arange(200.0)


def noise(seed: int, correlation: float, sd: float = 0.1) -> np.ndarray:
    """Return residuals of 200 days, each `correlation` times the one before plus a random number."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(0, sd * np.sqrt(1 - correlation**2), len(DAYS) + 50)
    values = [0.0]
    for step in steps:
        values.append(correlation * values[-1] + step)
    return np.array(values[-len(DAYS) :])


def test_an_exact_exponential_is_recovered() -> None:
    """An exact exponential gives lambda, c and R2; checks of residuals are None, as there are none."""
    fit = growth.fit_growth(DAYS, np.exp(0.02 * DAYS + 3))

    assert fit is not None
    assert fit[:7] == pytest.approx((200, 0.02, 0.02, 0.02, 3, 1, 1), rel=1e-6)
    assert np.isnan([fit.durbin_watson, fit.normality_p_value]).all()


def test_the_fit_is_least_squares_with_the_textbook_statistics() -> None:
    """R2, adjusted R2, residual deviation and Durbin-Watson equal their definitions; zeros are left out."""
    values = np.exp(0.01 * DAYS + 1 + noise(1, 0))
    values[::10] = 0
    t, y = DAYS[values > 0], np.log(values[values > 0])
    design = np.stack([t, np.ones_like(t)], axis=1)
    (slope, intercept), (square_sum,), *_ = np.linalg.lstsq(design, y)
    residuals = y - design @ [slope, intercept]
    r_squared = 1 - square_sum / ((y - y.mean()) ** 2).sum()

    fit = growth.fit_growth(DAYS, values)

    assert fit is not None
    assert (fit.n_days, fit.lambda_per_day, fit.intercept) == pytest.approx((180, slope, intercept))
    assert fit.r_squared == pytest.approx(r_squared)
    assert fit.adjusted_r_squared == pytest.approx(1 - (1 - r_squared) * 179 / 178)
    assert fit.residual_sd == pytest.approx(np.sqrt(square_sum / 178))
    assert fit.durbin_watson == pytest.approx((np.diff(residuals) ** 2).sum() / square_sum)
    assert fit.normality_p_value == pytest.approx(stats.jarque_bera(residuals).pvalue)


@pytest.mark.parametrize("n_days", [40, 200])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_the_interval_of_lambda_holds_the_truth_about_as_often_as_it_says(
    correlation: float, n_days: int
) -> None:
    """In at least 90 % of 200 series the interval holds lambda, also with correlated residuals."""
    days = DAYS[:n_days]
    series = [np.exp(0.01 * days + noise(seed, correlation)[:n_days]) for seed in range(200)]
    fits = [growth.fit_growth(days, values) for values in series]
    hits = sum(fit.lambda_low_per_day <= 0.01 <= fit.lambda_high_per_day for fit in fits if fit)
    assert hits >= 180
    # The fit of a line lowers the correlation of residuals, more so in a shorter series.
    found = np.mean([fit.durbin_watson for fit in fits if fit])
    assert found == pytest.approx(2 * (1 - correlation), abs=0.15 if n_days == len(DAYS) else 0.4)


@pytest.mark.parametrize("early", [0, 1], ids=["none", "one"])
@pytest.mark.parametrize("n_days", [365, 4000])
def test_a_pool_of_the_last_weeks_has_an_interval_of_some_percent(n_days: int, early: int) -> None:
    """Neither one block long before makes it absurdly wide, nor years without a block falsely narrow."""
    days = np.arange(float(n_days))
    found = np.zeros(n_days)
    found[-32:] = np.random.default_rng(1).poisson(20, 32)
    found[3] = early

    fit = growth.fit_count_growth(days, found, np.full(n_days, 144.0), np.full(n_days, 144.0))
    assert fit is not None
    assert 0.02 < fit.lambda_high_per_day - fit.lambda_low_per_day < 0.4


@pytest.mark.parametrize("values", [[], [1.0] * 9, [0.0] * 50, [7.0] * 50])
def test_no_fit_without_ten_days_or_without_a_change(values: list[float]) -> None:
    """A series that is too short, constant, or nowhere above 0 gives None."""
    assert growth.fit_growth(np.arange(float(len(values))), np.array(values)) is None


@pytest.mark.parametrize("n_blocks", [10, 50])
def test_the_slope_of_a_right_clock_is_not_certain(n_blocks: int) -> None:
    """Of 200 clocks that are right, with template ages of 0 to 30 s, at least 91 % have 0 in the interval."""
    rng = np.random.default_rng(2)
    lags = [(np.sort(rng.random(n_blocks)), -30 * rng.random(n_blocks)) for _ in range(200)]
    fits = [growth.fit_line(arrivals, ages) for arrivals, ages in lags]
    assert sum(fit.lambda_low_per_day <= 0 <= fit.lambda_high_per_day for fit in fits if fit) >= 182


def test_no_slope_of_values_at_one_time() -> None:
    """Ten values at one time give None; ten equal values over time have the slope 0, which is exact."""
    assert growth.fit_line(np.ones(10), np.arange(10.0)) is None
    fit = growth.fit_line(np.arange(10.0), np.full(10, -3.0))
    assert fit is not None
    assert fit[1:4] == (0, 0, 0)


@pytest.mark.parametrize(
    ("first", "last", "n_days"),
    [(4, 1, 365), (4, 0.25, 365), (1, 8, 365), (15, 30, 365), (4, 1, 60), (10, 5, 30)],
)
def test_counts_with_days_of_none_give_the_planted_rate(first: float, last: float, n_days: int) -> None:
    """The mean of lambda is the planted one, and in 91 % of 200 series or more its interval holds it."""
    rng = np.random.default_rng(5)
    days = np.arange(float(n_days))
    rate = np.log(last / first) / (n_days - 1)
    drawn = rng.poisson(first * np.exp(rate * days), (200, n_days)).astype(float)
    others = rng.poisson(144 - first * np.exp(rate * days), (200, n_days))
    fits = [
        growth.fit_count_growth(days, own, own + other, own + other)
        for own, other in zip(drawn, others, strict=True)
    ]
    found = np.array([fit[1:4] for fit in fits if fit])

    assert len(found) == 200
    error = found[:, 0].std() / np.sqrt(200)
    assert abs(found[:, 0].mean() - rate) < 4 * error
    assert ((found[:, 1] <= rate) & (rate <= found[:, 2])).mean() >= 0.91


def test_a_rate_that_wanders_for_weeks_rarely_looks_like_growth() -> None:
    """In 60 days of a rate that wanders by 30 % but does not grow, 48 of 60 intervals and more hold 0."""
    rng, counts, n_held = np.random.default_rng(7), np.full(60, 144.0), 0
    for _ in range(60):
        wandering = [rng.normal()]
        for step in rng.normal(size=59):
            wandering.append(0.95 * wandering[-1] + np.sqrt(1 - 0.95**2) * step)
        found = rng.binomial(144, 10 / 144 * np.exp(0.3 * np.array(wandering) - 0.045))
        fit = growth.fit_count_growth(DAYS[:60], found.astype(float), counts, counts)
        assert fit is not None
        n_held += fit.lambda_low_per_day <= 0 <= fit.lambda_high_per_day
    assert n_held >= 48


def test_the_fit_of_counts_solves_its_equations() -> None:
    """Where the blocks of a day are worth more and more, lambda is that of the part plus that of the total.

    The expected blocks of a quasi-Poisson fit have the sum and the mean day of those found.
    """
    rng = np.random.default_rng(6)
    worth, counts = 1e18 * np.exp(0.01 * DAYS), np.full(len(DAYS), 144.0)
    found = rng.poisson(3 * np.exp(-0.02 * DAYS)) + 0.0

    fit = growth.fit_count_growth(DAYS, found * worth, counts * worth, counts)

    assert fit is not None
    expected = np.exp(fit.lambda_per_day * DAYS + fit.intercept) / worth
    assert [expected.sum(), expected @ DAYS] == pytest.approx([found.sum(), found @ DAYS])
    assert fit.lambda_low_per_day < -0.01 < fit.lambda_high_per_day
    pearson = (found - expected) / np.sqrt(expected)
    assert fit.durbin_watson == pytest.approx((np.diff(pearson) ** 2).sum() / (pearson**2).sum())
    assert fit.normality_p_value == pytest.approx(stats.jarque_bera(pearson).pvalue)
    assert fit.residual_sd == pytest.approx(np.sqrt((pearson**2).sum() / 198 / expected.mean()))


@pytest.mark.parametrize("bend", [0.0, 3.0])
def test_many_events_a_day_give_the_fit_of_logarithms(bend: float) -> None:
    """With 10,000 events a day it is the least squares fit of logarithms, also where the totals bend."""
    counts = np.full(len(DAYS), 100_000.0)
    found = np.random.default_rng(7).poisson(10_000, len(DAYS)) + 0.0
    worth = np.exp(0.01 * DAYS + bend * np.sqrt(DAYS / 200))

    fit = growth.fit_count_growth(DAYS, found * worth, counts * worth, counts)
    log_fit = growth.fit_growth(DAYS, found * worth)

    assert fit is not None
    assert log_fit is not None
    same = ("lambda_per_day", "intercept", "r_squared", "residual_sd")
    assert [getattr(fit, name) for name in same] == pytest.approx(
        [getattr(log_fit, name) for name in same], rel=0.01
    )


def test_what_grew_and_then_ended_has_not_certainly_grown() -> None:
    """1 to 8 a day and then none for as long, or for years: the interval holds decline."""
    grown = np.round(1 + 7 * np.arange(60) / 59)
    short, long = (np.concatenate([grown, np.zeros(n)]) for n in (60, 3000))

    fits = [
        growth.fit_count_growth(np.arange(len(y)) + 0.0, y, np.full(len(y), 40.0), np.full(len(y), 40.0))
        for y in (short, long)
    ]

    assert all(fit is not None and fit.lambda_low_per_day < 0 for fit in fits)
    assert fits[0] is not None
    assert fits[1] is not None
    assert fits[1].lambda_high_per_day < fits[0].lambda_high_per_day


@pytest.mark.parametrize("values", [[], [1.0] * 9 + [0.0] * 9, [0.0] * 50, [7.0] * 50])
def test_no_fit_of_counts_on_fewer_than_ten_days_or_without_a_change(values: list[float]) -> None:
    """A series with fewer than ten days above 0, or a constant one, gives None."""
    days = np.arange(float(len(values)))
    totals = np.full(len(values), 9.0)
    assert growth.fit_count_growth(days, np.array(values), totals, totals) is None


def test_an_exact_exponential_of_counts_is_recovered() -> None:
    """One event of two a day whose worth doubles every day gives ln 2, and no checks of residuals."""
    fit = growth.fit_count_growth(DAYS, 2.0**DAYS, 2 * 2.0**DAYS, np.full(len(DAYS), 2.0))

    assert fit is not None
    assert fit[:7] == pytest.approx((200, np.log(2), np.log(2), np.log(2), 0, 1, 1), abs=1e-9)
    assert np.isnan([fit.durbin_watson, fit.normality_p_value]).all()


def test_a_planted_break_is_found_within_a_few_days() -> None:
    """Growth that stops at day 120 gives two pieces that meet near that day, with the planted rates."""
    y = np.where(DAYS < 120, 0.02 * DAYS, 2.4) + noise(3, 0.3, 0.05)

    first, second = growth.growth_segments(DAYS, np.exp(y))

    assert abs(second.first_t - 120) <= 6
    assert first.last_t < second.first_t
    assert (first.lambda_per_day, second.lambda_per_day) == pytest.approx((0.02, 0), abs=0.001)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
@pytest.mark.parametrize("jump", [0.0, -0.5])
def test_the_interval_of_a_break_holds_it_about_as_often_as_it_says(correlation: float, jump: float) -> None:
    """In 90 % of the series that are cut once, the interval of the break holds the planted day 120."""
    y = np.where(DAYS < 120, 0.02 * DAYS, 2.4 + jump + (0.02 * (DAYS - 120) if jump else 0))
    found = [growth.growth_segments(DAYS, np.exp(y + noise(seed, correlation))) for seed in range(60)]
    breaks = [pieces[1] for pieces in found if len(pieces) == 2]
    hits = [each.first_low_t <= 120 <= each.first_high_t for each in breaks]  # type: ignore[operator]  # not the first

    assert len(hits) >= 40
    assert np.mean(hits) >= 0.9
    assert all(pieces[0].first_low_t is None for pieces in found)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_breaks_are_rarely_found_where_there_are_none(correlation: float) -> None:
    """At most 3 of 30 straight series are cut, also with correlated residuals."""
    series = [np.exp(0.01 * DAYS + noise(seed, correlation)) for seed in range(30)]
    assert sum(len(growth.growth_segments(DAYS, values)) > 1 for values in series) <= 3


def test_cuts_are_the_best_of_all() -> None:
    """The squared error of two pieces is the least that a trial of every cut finds."""
    y = np.random.default_rng(4).normal(0, 1, 40).cumsum()
    t = np.arange(40.0)

    def error(first: int, last: int) -> float:
        return float(np.polynomial.Polynomial.fit(t[first:last], y[first:last], 1, full=True)[1][0][0])

    errors, cuts = growth._best_cuts(growth._Sums.of(t, y), 40, 10, 1)

    tried = {cut: error(0, cut) + error(cut, 40) for cut in range(10, 31)}
    assert errors == pytest.approx([error(0, 40), min(tried.values())])
    assert cuts == [[], [min(tried, key=lambda cut: tried[cut])]]


def test_gamma_intervals_are_the_published_ones() -> None:
    """Garwood, 1936: 0 events give 0 to 3.689, 5 events 1.623 to 11.668; shapes of 10 give Gamma(10)."""
    low, high = growth.gamma_intervals(np.array([0.0, 5, 10, np.nan]), np.array([1.0, 6, 10, 1]))

    assert low[:3] == pytest.approx([0, 1.623, stats.gamma.ppf(0.025, 10)], abs=1e-3)
    assert high[:3] == pytest.approx([3.689, 11.668, stats.gamma.ppf(0.975, 10)], abs=1e-3)
    assert np.isnan([low[3], high[3]]).all()


def test_sql_gives_nulls_and_empty_lists_where_there_is_nothing() -> None:
    """The SQL functions give nulls or empty lists for a null list, an empty one and one too short."""
    with connect() as connection:
        rows = connection.execute(
            "SELECT growth_fit(x, x).r_squared, growth_segments(x, x), gamma_interval(len(x), 0).high"
            " FROM (VALUES (NULL::DOUBLE[]), ([]), ([1.0, 2.0])) AS t(x)"
        ).fetchall()
    assert rows == [(None, [], None)] * 3


def test_what_does_not_exist_is_null_and_not_nan() -> None:
    """The residual checks of an exact exponential are null in SQL, so that JSON can write them."""
    with connect() as connection:
        row = connection.execute(
            "SELECT fit.durbin_watson IS NULL, fit.normality_p_value IS NULL, fit.r_squared"
            " FROM (SELECT growth_fit(range(20)::DOUBLE[], [exp(x) FOR x IN range(20)]) AS fit)"
        ).fetchone()
    assert row == (True, True, pytest.approx(1))


@pytest.mark.data
def test_the_network_of_the_paper_grew_exponentially_in_pieces(data_dir: Path) -> None:
    """The authors' hashrate of 2016-02-25 to 2019-01-03 gives R2 0.969, and its last piece shrinks."""
    table = pd.read_csv(data_dir / "paper" / "hash_rate.csv")
    values = table["ALL"].to_numpy(float)
    t = np.arange(float(len(values)))

    fit, segments = growth.fit_growth(t, values), growth.growth_segments(t, values)

    assert fit is not None
    assert (round(fit.r_squared, 3), round(fit.lambda_per_day, 5)) == (0.969, 0.00427)
    assert segments[-1].lambda_per_day < 0 < segments[0].lambda_per_day
    assert table["Time"][int(segments[-1].first_t)].startswith("2018-09")
