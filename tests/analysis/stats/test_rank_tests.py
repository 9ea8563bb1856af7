"""Compare the rank test with published numbers, and test how rarely Holm's correction errs."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.database import connect
from analysis.stats import rank_tests


def answer(query: str) -> list[tuple[Any, ...]]:
    """Run a query in a DuckDB that has the functions, and return its rows."""
    with connect() as connection:
        return connection.execute(query).fetchall()


def test_rank_test_of_a_published_example() -> None:
    """Hollander and Wolfe, example 4.1 (tritiated water): U = 35 of 50, one-sided p = 0.1272."""
    at_term = np.array([0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46])
    early = np.array([1.15, 0.88, 0.90, 0.74, 1.21])

    result = rank_tests.rank_test(at_term, early)

    assert result is not None
    assert result.u == 35
    assert result.p_value == pytest.approx(2 * 0.1272, abs=1e-4)
    assert result.rank_biserial == pytest.approx(2 * 35 / 50 - 1)


def test_rank_test_counts_ties_by_half() -> None:
    """U and the effect size equal a count of pairs in which ties are a half; the p-value is SciPy's."""
    sample, other = np.array([1.0, 2, 2, 3, 5, 5]), np.array([2.0, 3, 3, 4, 5, 9])
    pairs = [(a > b) + (a == b) / 2 for a in sample for b in other]

    result = rank_tests.rank_test(sample, other)

    assert result is not None
    assert result.u == sum(pairs)
    assert result.rank_biserial == pytest.approx(2 * np.mean(pairs) - 1)
    assert result.p_value == stats.mannwhitneyu(sample, other).pvalue


def test_an_exact_rank_test_is_only_for_few_pairs() -> None:
    """Of 8 values against 1,000 the exact p-value takes long, and against 20,000 gigabytes."""
    rng = np.random.default_rng(3)
    few, many = rng.exponential(size=8), rng.exponential(size=2000)

    for other, method in ((many[:1000], "exact"), (many, "asymptotic")):
        result = rank_tests.rank_test(few, other)
        assert result is not None
        assert result.p_value == stats.mannwhitneyu(few, other, method=method).pvalue


def test_rank_test_of_values_all_alike_finds_nothing() -> None:
    """Two samples of one equal value give half of the pairs, no effect and a p-value of 1."""
    assert rank_tests.rank_test(np.zeros(4), np.zeros(5)) == (10, 1, 0)


def test_effect_size_has_the_sign_of_the_promise() -> None:
    """The effect is -1 when the first sample is below the second, 1 when it is above."""
    fast, slow = np.arange(5.0), np.arange(10.0, 15.0)

    assert rank_tests.rank_test(fast, slow) == (0, 2 / 252, -1)
    assert rank_tests.rank_test(slow, fast) == (25, 2 / 252, 1)


def test_rank_test_in_sql_is_null_without_a_sample() -> None:
    """A null or an empty sample gives nulls; nulls inside a list do not count."""
    rows = answer(
        "SELECT rank_test(a, b).u, rank_test(a, b).p_value FROM (VALUES"
        " (NULL, [1.0]), ([1.0], []), ([3.0, NULL], [1.0, 2.0])) AS t(a, b)"
    )

    assert rows[:2] == [(None, None)] * 2
    assert rows[2][0] == 2


def test_p_values_are_corrected_for_their_number() -> None:
    """Four p-values are corrected as by hand; nulls stay and do not count.

    Holm's correction gives 0.01 * 4, 0.02 * 3, 0.03 * 2 raised to the one before, and 0.5.
    """
    ((found, none, missing),) = answer(
        "SELECT adjusted_p_values([0.03, NULL, 0.01, 0.5, 0.02]), adjusted_p_values([NULL]),"
        " adjusted_p_values(NULL)"
    )

    assert [found[0], *found[2:]] == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert (found[1], none, missing) == (None, [None], None)


def test_corrected_p_values_rarely_name_anybody_where_nobody_differs() -> None:
    """In at most 30 of 400 windows of 12 equal pools, a corrected p-value is below 0.05."""
    rng = np.random.default_rng(11)
    n_named = 0
    for _ in range(400):
        values, pools = rng.exponential(size=240), rng.integers(0, 12, 240)
        tests = [rank_tests.rank_test(values[pools == pool], values[pools != pool]) for pool in range(12)]
        n_named += min(rank_tests.holm([test.p_value for test in tests if test])) < 0.05
    assert n_named <= 30


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.1])
def test_the_interval_of_the_effect_holds_it(factor: float) -> None:
    """In 95 % of samples with many ties the interval holds the effect that a huge sample shows."""
    draw = np.random.default_rng(11)

    def sample(mean: float, n: int) -> Any:
        return np.floor(draw.exponential(mean, n))

    whole = rank_tests.rank_test(sample(20 * factor, 200_000), sample(20, 200_000))
    assert whole is not None
    n_held = 0
    for _ in range(400):
        bounds = rank_tests.rank_biserial_interval(sample(20 * factor, 40), sample(20, 200))
        assert bounds is not None
        n_held += bounds.low <= whole.rank_biserial <= bounds.high

    assert 0.91 <= n_held / 400 <= 0.98


def test_the_effect_of_samples_apart_has_no_interval() -> None:
    """Samples that do not overlap, or have one value, do not tell the width of an interval."""
    assert rank_tests.rank_biserial_interval(np.array([1.0, 2.0]), np.array([3.0, 4.0])) is None
    assert rank_tests.rank_biserial_interval(np.array([1.0]), np.array([3.0, 0.0])) is None
