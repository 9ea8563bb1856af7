"""Test that a planted threshold is found with its interval, and that the test rarely finds a false one."""

import numpy as np
import pytest

from analysis.database import connect
from analysis.stats.threshold import detrended_threshold_fit, threshold_fit


def series(seed: int, leaning: float, n: int) -> np.ndarray:
    """Return n values, each `leaning` times the one before plus a random number."""
    values = [0.0]
    for step in np.random.default_rng(seed).normal(0, 1, n + 50):
        values.append(leaning * values[-1] + step)
    return np.array(values[-n:])


def test_a_planted_threshold_is_found() -> None:
    """With growth of 0.08 above a level and none below, the level is found and lies in the interval."""
    levels = series(1, 0.8, 100)
    responses = np.where(levels > 0.5, 0.08, 0.0) + np.random.default_rng(2).normal(0, 0.03, 100)

    fit = threshold_fit(levels, responses)

    assert fit is not None
    assert fit.threshold == pytest.approx(levels[levels <= 0.5].max(), abs=0.2)
    assert fit.low <= levels[levels <= 0.5].max() <= fit.high
    assert (fit.below_mean, fit.above_mean) == pytest.approx((0, 0.08), abs=0.015)
    assert fit.p_value <= 0.02


def test_the_interval_holds_a_clear_threshold() -> None:
    """Of 60 series with a jump of four standard deviations, the interval holds the threshold in 55 and more.

    The threshold lies between two levels, so the interval reaches from one to the next.
    """
    n_held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        levels = rng.lognormal(0, 0.5, 60)
        fit = threshold_fit(levels, rng.normal(0, 1, 60) + 4 * (levels > 1))
        n_held += fit is not None and fit.low <= 1 <= fit.high
    assert n_held >= 55


def test_a_common_trend_is_no_threshold() -> None:
    """Levels and responses that only fall together have a p-value below 0.05 in at most 4 of 25 samples."""
    n_found = n_plain = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        trend = np.linspace(1, -1, 60)
        levels = np.exp(trend + rng.normal(0, 0.3, 60))
        responses = 0.1 * trend + rng.normal(0, 0.03, 60)
        fit, plain = detrended_threshold_fit(levels, responses), threshold_fit(levels, responses)
        assert fit is not None
        assert plain is not None
        assert fit[:-1] == plain[:-1]
        n_found += fit.p_value < 0.05
        n_plain += plain.p_value < 0.05
    assert n_found <= 4
    assert n_plain >= 15


def test_a_threshold_beside_a_trend_is_found() -> None:
    """A jump at a level shows although both series have a trend; a line alone has a p-value of 1."""
    rng = np.random.default_rng(5)
    trend, noise = np.linspace(-1, 1, 80), rng.normal(0, 0.5, 80)
    levels = np.exp(trend + noise)
    fit = detrended_threshold_fit(levels, 0.02 * trend + 0.1 * (noise > 0) + rng.normal(0, 0.02, 80))
    line = detrended_threshold_fit(levels, 0.02 * trend + 5)

    assert fit is not None
    assert fit.p_value <= 0.02
    assert line is not None
    assert line.p_value == 1


def test_the_split_is_the_best_of_all() -> None:
    """Estimate, means and explained variance equal a trial of every split that leaves 15 % on a side."""
    levels, responses = series(3, 0, 40), series(4, 0, 40)
    errors = {
        level: sum(
            ((part - part.mean()) ** 2).sum()
            for part in (responses[levels <= level], responses[levels > level])
        )
        for level in np.sort(levels)[5:34]
    }
    best = min(errors, key=lambda level: errors[level])

    fit = threshold_fit(levels, responses)

    assert fit is not None
    assert fit.threshold == best
    assert fit.below_mean == pytest.approx(responses[levels <= best].mean())
    assert fit.above_mean == pytest.approx(responses[levels > best].mean())
    assert fit.r_squared == pytest.approx(1 - errors[best] / ((responses - responses.mean()) ** 2).sum())


def test_no_threshold_is_found_as_rarely_as_the_test_says() -> None:
    """Of 200 pairs of unrelated autocorrelated series, at most 10 % give a p-value below 0.05."""
    fits = [threshold_fit(series(seed, 0.8, 60), series(seed + 1000, 0.5, 60)) for seed in range(200)]
    assert sum(fit.p_value < 0.05 for fit in fits if fit) <= 20
    assert all(fits)


def test_equal_levels_stay_on_one_side() -> None:
    """A series of two levels has one possible split; one of a single level gives None."""
    levels = np.array([1.0, 2.0] * 15)

    fit = threshold_fit(levels, levels)

    assert fit is not None
    assert (fit.threshold, fit.low, fit.high, fit.below_mean, fit.above_mean) == (1, 1, 2, 1, 2)
    assert threshold_fit(np.ones(30), levels) is None


@pytest.mark.parametrize("n", [0, 1, 19])
def test_no_fit_without_twenty_periods(n: int) -> None:
    """Fewer than twenty periods, or responses that never change, give None."""
    assert threshold_fit(np.arange(float(n)), np.arange(float(n))) is None
    assert threshold_fit(np.arange(30.0), np.zeros(30)) is None


def test_sql_gives_nulls_where_there_is_nothing() -> None:
    """The SQL function gives nulls for a null list."""
    with connect() as connection:
        assert connection.execute("SELECT detrended_threshold_fit(NULL, NULL).p_value").fetchall() == [
            (None,)
        ]
