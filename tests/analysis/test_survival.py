"""Curves of waiting give published numbers, agree with each other, and keep their intervals' promise."""

import numpy as np
import pytest

from analysis.survival import MINED, REPLACED, competing_risks, incidence, life_table

# Weeks of remission of 21 patients on 6-mercaptopurine; a plus in the paper is a censored one.
RELAPSED = [6, 6, 6, 7, 10, 13, 16, 22, 23]
CENSORED = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]


def test_kaplan_meier_of_a_published_example() -> None:
    """E. J. Freireich and others, 1963 (Blood 21, 699-716): S(6) = 0.857 to S(23) = 0.448."""
    delays = np.array(RELAPSED + CENSORED, dtype=float)
    causes = np.array([MINED] * 9 + [0] * 12)
    grid = np.array([5.0, 6, 7, 10, 13, 16, 22, 23, 40])

    curves = competing_risks(delays, causes, grid)

    published = [1, 0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert np.round(curves["waiting"][:-1], 4).tolist() == published
    assert curves["waiting"][-1] is None
    assert curves["n_at_risk"] == [21, 21, 17, 15, 12, 11, 7, 6, 0]


def test_incidence_without_competition_is_kaplan_meier_with_greenwoods_error() -> None:
    """One cause: 1 - S, and the standard errors that textbooks give for the same example."""
    table = life_table(np.array(RELAPSED + CENSORED, dtype=float), np.array([MINED] * 9 + [0] * 12))
    at_events = table.events[0] > 0

    result = incidence(table, MINED)

    expected = [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346]
    assert np.round(np.sqrt(result.variance[at_events]), 4).tolist() == expected
    assert np.round(result.ratio[at_events], 4)[-1] == 0.5518


def test_incidence_without_censoring_is_a_count() -> None:
    """Nobody censored: the part that had each end by then, with the error of a proportion."""
    delays = np.array([1.0, 2, 2, 3, 4, 5, 6, 7, 8, 9])
    causes = np.array([1, 1, 2, 2, 1, 3, 1, 1, 2, 4])

    table = life_table(delays, causes)

    for cause in (MINED, REPLACED):
        result = incidence(table, cause)
        expected = np.array([np.mean((delays <= time) & (causes == cause)) for time in table.times])
        assert result.ratio == pytest.approx(expected)
        assert result.variance == pytest.approx(expected * (1 - expected) / 10)


def test_all_that_can_happen_adds_up() -> None:
    """Incidences of all causes and the chance that nothing has happened are 1 at every time."""
    rng = np.random.default_rng(5)
    delays, causes = rng.exponential(10, 300).round(1), rng.integers(0, 5, 300)

    table = life_table(delays, causes)

    total = sum(incidence(table, cause).ratio for cause in range(1, 5))
    after = table.survival_before * (1 - table.events.sum(axis=0) / table.n_at_risk)
    assert total + after == pytest.approx(np.ones(len(table.times)))


def test_interval_covers_the_true_incidence_about_as_often_as_it_says() -> None:
    """Two exponential causes and exponential censoring: of 300 worlds, 92 to 98 % hold the truth."""
    rng = np.random.default_rng(2)
    truth = 0.6 / 1.0 * (1 - np.exp(-1.0))
    hits = 0
    for _ in range(300):
        ends = np.array([rng.exponential(1 / rate, 200) for rate in (0.5, 0.6, 0.4)])
        curves = competing_risks(ends.min(axis=0), ends.argmin(axis=0), np.array([1.0]))
        hits += curves["mined_low"][0] <= truth <= curves["mined_high"][0]
    assert 276 <= hits <= 294
