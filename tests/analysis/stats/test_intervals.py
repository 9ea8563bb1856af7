"""Compare intervals with SciPy and published examples, and test how often they hold the truth."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.database import connect
from analysis.stats import intervals


def answer(query: str) -> list[tuple[Any, ...]]:
    """Run a query in a DuckDB that has the functions, and return its rows."""
    with connect() as connection:
        return connection.execute(query).fetchall()


def test_wilson_interval_is_scipys() -> None:
    """Every pair of successes and trials up to 30 gives the bounds of scipy.stats.binomtest."""
    pairs = [(k, n) for n in range(1, 31) for k in range(n + 1)]
    low, high = intervals.wilson_intervals(*np.array(pairs, dtype=float).T)

    for (k, n), found in zip(pairs, zip(low, high, strict=True), strict=True):
        expected = stats.binomtest(k, n).proportion_ci(confidence_level=0.95, method="wilson")
        assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_interval_of_a_published_example() -> None:
    """R. G. Newcombe, 1998, table I: 81 of 263 gives 0.2553 to 0.3662, 0 of 20 gives 0 to 0.1611."""
    low, high = intervals.wilson_intervals(np.array([81.0, 0.0]), np.array([263.0, 20.0]))

    assert list(zip(low.round(4), high.round(4), strict=True)) == [(0.2553, 0.3662), (0.0, 0.1611)]


@pytest.mark.parametrize(("n_trials", "least", "most"), [(10, 0.92, 0.983), (144, 0.94, 0.962)])
def test_wilson_interval_holds_the_truth_as_often_as_the_readme_says(
    n_trials: int, least: float, most: float
) -> None:
    """On average over all shares it does in 95 % of samples, for nine in ten within narrow bounds."""
    successes = np.arange(n_trials + 1.0)
    low, high = intervals.wilson_intervals(successes, np.full(n_trials + 1, float(n_trials)))
    shares = (np.arange(1000) + 0.5) / 1000
    held = np.array(
        [
            stats.binom.pmf(successes, n_trials, share)[(low <= share) & (share <= high)].sum()
            for share in shares
        ]
    )

    assert held.mean() == pytest.approx(0.95, abs=0.005)
    assert least < np.quantile(held, 0.05) < np.quantile(held, 0.95) < most
    assert held.min() > 0.83


def test_wilson_interval_in_sql_is_null_without_trials() -> None:
    """No trial, or a null, gives null bounds, among other rows."""
    rows = answer(
        "SELECT wilson_interval(k, n).low, wilson_interval(k, n).high"
        " FROM (VALUES (0, 0), (NULL, 3), (1, NULL), (3, 3)) AS t(k, n)"
    )

    assert rows[:3] == [(None, None)] * 3
    assert rows[3][1] == 1.0


def test_part_interval_by_hand() -> None:
    """For 1 of 2 and 3 of 4, the jackknife gives a standard error of 1/8 of the ratio 2/3.

    Leaving one pair out gives 3/4 and 1/2.
    """
    t = float(stats.t.ppf(0.975, 1))
    half = t / 8 / (2 / 9)
    expected = tuple(1 / (1 + np.exp(-(np.log(2) + sign * half))) for sign in (-1, 1))

    assert intervals.part_interval(np.array([1.0, 3]), np.array([2.0, 4])) == pytest.approx(expected)


@pytest.mark.parametrize("of", [intervals.ratio_interval, intervals.part_interval])
def test_interval_of_more_than_the_whole_is_symmetric(of: Any) -> None:
    """If a numerator is above its denominator, the interval has equal widths on both sides of the ratio."""
    half = float(stats.t.ppf(0.975, 1)) / 8

    found = of(np.array([3.0, 7]), np.array([2.0, 4]))

    assert found == pytest.approx((5 / 3 - half, 5 / 3 + half))


def test_a_multiple_below_one_may_still_be_above() -> None:
    """The upper bound of ratio_interval may exceed 1, though every ratio of the sample is below 1."""
    parts, wholes = np.array([90.0, 99, 95, 98, 97]), np.full(5, 100.0)

    assert intervals.part_interval(parts, wholes).high < 1  # type: ignore[union-attr]  # five pairs with spread
    assert intervals.ratio_interval(parts, wholes).high > 1  # type: ignore[union-attr]  # the same


@pytest.mark.parametrize("n_pairs", [2, 5, 100])
def test_none_of_many_blocks_bounds_the_part_from_above(n_pairs: int) -> None:
    """0 of n, and n of n, give Wilson's interval as SciPy computes it."""
    wholes = np.arange(3.0, 3 + n_pairs)
    expected = stats.binomtest(0, n_pairs).proportion_ci(method="wilson")

    assert intervals.part_interval(0 * wholes, wholes) == pytest.approx((0, expected.high))
    assert intervals.part_interval(wholes, wholes) == pytest.approx((1 - expected.high, 1))


@pytest.mark.parametrize("n_blocks", [5, 8, 11, 23, 40])
@pytest.mark.parametrize(("a", "b"), [(8, 2), (18, 2), (4, 6), (1, 99)])
def test_part_interval_covers_the_true_part_as_often_as_it_says(n_blocks: int, a: int, b: int) -> None:
    """In 90 to 97 % of 1,000 samples of blocks with varying ratios, the interval holds the true ratio."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        offered = rng.integers(500, 3000, n_blocks).astype(float)
        taken = rng.binomial(offered.astype(int), rng.beta(a, b, n_blocks)).astype(float)
        interval = intervals.part_interval(taken, offered)
        assert interval is not None
        hits += interval.low <= a / (a + b) <= interval.high
    assert 900 <= hits <= 970


@pytest.mark.parametrize(
    ("n_blocks", "block_share", "mean"),
    [(10, 0.1, 3), (20, 0.1, 3), (50, 0.05, 3), (100, 0.02, 10), (200, 0.02, 5)],
)
def test_part_interval_covers_a_part_that_few_blocks_have(
    n_blocks: int, block_share: float, mean: float
) -> None:
    """In at least 97 % of 1,000 samples where few blocks take any, the interval holds the true ratio."""
    rng = np.random.default_rng(7)
    offered = np.full(n_blocks, 2500.0)
    hits = 0
    for _ in range(1000):
        taken = np.where(rng.random(n_blocks) < block_share, rng.geometric(1 / mean, n_blocks), 0)
        interval = intervals.part_interval(taken.astype(float), offered)
        assert interval is not None
        hits += interval.low <= block_share * mean / 2500 <= interval.high
    assert hits >= 970


@pytest.mark.parametrize(("n_blocks", "least"), [(5, 930), (20, 840), (50, 840)])
def test_part_interval_covers_a_part_that_few_blocks_have_or_lack_wholly(n_blocks: int, least: int) -> None:
    """So it is in most of 1,000 samples where the ratios are beta(0.05, 5), or the reverse."""
    rng = np.random.default_rng(7)
    hits = np.zeros(2)
    for _ in range(1000):
        offered = rng.integers(500, 3000, n_blocks)
        taken = rng.binomial(offered, rng.beta(0.05, 5, n_blocks))
        for reverse, parts in enumerate((taken, offered - taken)):
            interval = intervals.part_interval(parts.astype(float), offered.astype(float))
            assert interval is not None
            hits[reverse] += interval.low <= abs(reverse - 0.05 / 5.05) <= interval.high
    assert (hits >= least).all()


@pytest.mark.parametrize("n_blocks", [10, 20, 50, 100])
def test_one_transaction_of_one_block_is_little(n_blocks: int) -> None:
    """One taken in one block, or one left, bounds the ratio by some transactions, not by a whole block."""
    offered = np.full(n_blocks, 10_000.0)
    one = (np.arange(n_blocks) == 0).astype(float)
    one_taken, one_left = (intervals.part_interval(parts, offered) for parts in (one, offered - one))

    assert one_taken is not None
    assert one_left is not None
    assert 0 < one_taken.low < one_taken.high < 100 / offered.sum()
    assert 1 - 100 / offered.sum() < one_left.low < one_left.high < 1


@pytest.mark.parametrize(
    ("taken", "offered"),
    [([], []), ([5], [10]), ([5, 10, 15], [10, 20, 30]), ([0], [3]), ([0, 1], [0, 2])],
    ids=["none", "one", "equal-ratios", "one-zero", "nothing-offered"],
)
def test_intervals_say_nothing_where_there_is_no_spread(taken: list[int], offered: list[int]) -> None:
    """No pair, one pair, equal ratios, or a whole of 0 give None: nothing tells the width."""
    for interval in (intervals.ratio_interval, intervals.part_interval):
        assert interval(np.array(taken, float), np.array(offered, float)) is None


@pytest.mark.parametrize("part", [0.0, 1.0])
def test_rounding_is_no_spread(part: float) -> None:
    """Parts that differ from 0, or from their wholes, by rounding alone give the interval of those."""
    wholes = np.arange(1.0, 9)
    rounded = part * wholes * (1 + np.where(wholes % 2, 2e-16, -2e-16)) + (1 - part) * 1e-17

    found = intervals.part_interval(rounded, wholes)

    assert found == intervals.part_interval(part * wholes, wholes)
    assert found is not None
    assert found.high - found.low > 0.3
    assert intervals.ratio_interval(rounded + wholes, wholes) is None


@pytest.mark.parametrize("n_values", range(1, 41))
def test_median_interval_is_scipys(n_values: int) -> None:
    """The bounds are those of scipy.stats.quantile_test; None where it has none."""
    values = np.random.default_rng(n_values).exponential(600, n_values)
    expected = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    found = intervals.median_interval(values)

    if np.isnan([expected.low, expected.high]).any():
        assert found is None
        assert n_values < 6
    else:
        assert found == (expected.low, expected.high)


@pytest.mark.parametrize("n_values", [6, 7, 20, 144])
def test_median_interval_covers_the_truth_at_least_as_often_as_it_says(n_values: int) -> None:
    """In at least 94 % of 1,000 exponential samples of mean 600 s, the interval holds 600 ln 2."""
    samples = np.random.default_rng(5).exponential(600, (1000, n_values))
    found = [intervals.median_interval(sample) for sample in samples]
    hits = sum(interval.low <= 600 * np.log(2) <= interval.high for interval in found if interval)
    assert 940 <= hits <= 985
