"""Compare curves of waiting with published numbers, and test how often their intervals hold the truth."""

import numpy as np
import pytest

from analysis.stats.survival import (
    EXPIRED,
    MINED,
    REPLACED,
    Cells,
    LifeTable,
    competing_risks,
    curve,
    incidence,
    life_table,
    standard_error,
)

# Weeks of remission of 21 patients on 6-mercaptopurine; a plus in the paper is a censored one.
RELAPSED = [6, 6, 6, 7, 10, 13, 16, 22, 23]
CENSORED = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]


def test_kaplan_meier_of_a_published_example() -> None:
    """E. J. Freireich and others, 1963 (Blood 21, 699-716): S(6) = 0.857 to S(23) = 0.448."""
    delays = np.array(RELAPSED + CENSORED, dtype=float)
    causes = np.array([MINED] * 9 + [0] * 12)
    grid = np.array([5.0, 6, 7, 10, 13, 16, 22, 23, 40])

    curves = competing_risks(delays, causes, np.arange(21), np.ones(21), grid)

    published = [1, 0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert np.round(curves["waiting"][:-1], 4).tolist() == published
    assert curves["waiting"][-1] is None
    assert curves["n_at_risk"] == [21, 21, 17, 15, 12, 11, 7, 6, 0]


def apart(causes: np.ndarray) -> Cells:
    """Give every spell a cell and a batch of its own, as if all were independent."""
    return Cells(causes, np.arange(len(causes)), np.ones(len(causes)))


def single_table(delays: np.ndarray, causes: np.ndarray) -> LifeTable:
    """Return the life table of spells, each a cell of its own."""
    return life_table(delays, causes, np.ones(len(delays)))


def test_incidence_without_competition_is_kaplan_meier_with_greenwoods_error() -> None:
    """With one cause the incidence is 1 - S, with the textbooks' standard errors up to n / (n - 1)."""
    delays, causes = np.array(RELAPSED + CENSORED, dtype=float), np.array([MINED] * 9 + [0] * 12)
    table = single_table(delays, causes)
    at_events = np.array([6.0, 7, 10, 13, 16, 22, 23])

    error = standard_error(table, apart(causes), MINED, at_events)

    greenwood = [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346]
    assert error * np.sqrt(20 / 21) == pytest.approx(greenwood, rel=0.03)
    assert np.round(incidence(table, MINED)[-1], 4) == 0.5518


def test_incidence_without_censoring_is_a_count() -> None:
    """Without censoring the incidence is the part of spells that ended by then, with a proportion's error."""
    delays = np.array([1.0, 2, 2, 3, 4, 5, 6, 7, 8, 9])
    causes = np.array([1, 1, 2, 2, 1, 3, 1, 1, 2, 4])

    table = single_table(delays, causes)

    for cause in (MINED, REPLACED):
        expected = np.array([np.mean((delays <= time) & (causes == cause)) for time in table.times])
        assert incidence(table, cause) == pytest.approx(expected)
        error = standard_error(table, apart(causes), cause, table.times)
        assert error**2 == pytest.approx(expected * (1 - expected) / 9)


def test_all_that_can_happen_adds_up() -> None:
    """The incidences of all causes and the chance that nothing has happened add up to 1 at every time."""
    rng = np.random.default_rng(5)
    delays, causes = rng.exponential(10, 300).round(1), rng.integers(0, 5, 300)

    table = single_table(delays, causes)

    total = sum(incidence(table, cause) for cause in range(1, 5))
    after = table.survival_before * (1 - table.events.sum(axis=0) / table.n_at_risk)
    assert total + after == pytest.approx(np.ones(len(table.times)))


@pytest.mark.parametrize("cause", [MINED, REPLACED, EXPIRED])
def test_error_is_that_of_leaving_out_one_batch_after_the_other(cause: int) -> None:
    """For 20 batches of 40 spells, with ties and censoring, the error is that of a jackknife within 3 %."""
    rng = np.random.default_rng(1)
    delays = (rng.exponential(10, 800) * np.repeat(rng.uniform(0.5, 2, 20), 40)).round(0)
    causes, batch = rng.integers(0, 5, 800), np.repeat(np.arange(20), 40)
    grid = np.array([0.0, 2, 5, 10, 20, 40])
    without: list[np.ndarray] = []
    for left_out in range(20):
        table = single_table(delays[batch != left_out], causes[batch != left_out])
        at = np.searchsorted(table.times, grid, side="right") - 1
        without.append(incidence(table, cause)[at])

    found = standard_error(single_table(delays, causes), Cells(causes, batch, np.ones(800)), cause, grid)

    by_hand = np.sqrt(19 / 20 * ((without - np.mean(without, axis=0)) ** 2).sum(axis=0))
    assert found == pytest.approx(by_hand, rel=0.03)


def test_equal_spells_may_be_counted_in_one_cell() -> None:
    """Cells with counts give the curves and intervals of the single spells."""
    rng = np.random.default_rng(7)
    delays, causes, batch = rng.integers(1, 9, 2000) * 1.0, rng.integers(0, 5, 2000), rng.integers(0, 9, 2000)
    grid = np.arange(9.0)
    cells, counts = np.unique(np.stack([delays, causes, batch]), axis=1, return_counts=True)

    single = competing_risks(delays, causes, batch, np.ones(2000), grid)
    counted = competing_risks(*cells, counts, grid)

    assert len(counts) < 500
    for name in single:
        expected, found = (np.array(each[name], dtype=float) for each in (single, counted))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), name


def test_few_batches_give_no_interval() -> None:
    """Spells of only four block intervals give no confidence interval, however many there are."""
    delays, causes = np.arange(1.0, 401), np.ones(400)

    cells = Cells(causes, np.arange(400) % 4, np.ones(400))
    found = curve(single_table(delays, causes), cells, MINED, np.array([100.0]))

    assert found.ratio == pytest.approx([0.25])
    assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize(("n_ahead", "truth"), [(1, 0.632), (2, 0.264)])
def test_intervals_hold_the_truth_where_a_block_takes_all_at_once(n_ahead: int, truth: float) -> None:
    """In at least 88 of 100 worlds the interval holds the truth, though a block mines many spells at once.

    A block takes what entered n blocks ago. 1,500 transactions of 100 blocks are not 1,500 independent
    observations: with Greenwood's error fewer than half of the intervals would hold the truth.
    """
    hits = {"mined": 0, "waiting": 0}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(600, 100))
        entered = np.sort(rng.uniform(0, arrivals[-1], 1500))
        wait = np.searchsorted(arrivals, entered)
        taken_by = wait + n_ahead - 1
        delays = arrivals[np.minimum(taken_by, 99)] - entered
        causes = np.where(taken_by < 100, MINED, 0)
        batch = np.unique(wait, return_inverse=True)[1] * 30 // len(np.unique(wait))
        curves = competing_risks(delays, causes, batch, np.ones(1500), np.array([600.0]))
        hits["mined"] += curves["mined_low"][0] <= truth <= curves["mined_high"][0]
        hits["waiting"] += curves["waiting_low"][0] <= 1 - truth <= curves["waiting_high"][0]
    assert all(88 <= n <= 99 for n in hits.values()), hits
