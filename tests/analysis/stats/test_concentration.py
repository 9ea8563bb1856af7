"""Test that indices of concentration equal their definitions, and that their intervals hold the truth."""

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.database import connect
from analysis.stats import concentration

Counts = st.lists(st.integers(1, 60), min_size=1, max_size=12)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB in which the SQL functions are registered."""
    with connect() as connection:
        yield connection


@given(Counts)
def test_indices_are_their_definitions(counts: list[int]) -> None:
    """Each index equals its textbook form, spelled out over all owners and pairs of owners."""
    total = sum(counts)
    shares = [count / total for count in counts]
    ordered = sorted(counts, reverse=True)
    majority = next(n for n in range(1, len(counts) + 1) if 2 * sum(ordered[:n]) > total)
    pairs = sum(abs(a - b) for a in counts for b in counts)

    hhi, nakamoto, gini, entropy_bits = concentration.indices(counts)

    assert hhi == pytest.approx(sum(share**2 for share in shares))
    assert nakamoto == majority
    assert gini == pytest.approx(pairs / (2 * len(counts) * total), abs=1e-12)
    assert entropy_bits == pytest.approx(stats.entropy(shares, base=2), abs=1e-12)


@given(Counts, st.integers(0, 8), st.randoms())
def test_the_two_bounds_enclose_every_way_to_give_out_unknown_blocks(
    counts: list[int], n_unknown: int, random: np.random.RandomState
) -> None:
    """However unknown blocks are given out, three indices lie between two extremes.

    The extremes are an owner for each unknown block, and all unknown blocks to the largest owner.
    """
    truth = [*counts, *[0] * n_unknown]
    for _ in range(n_unknown):
        truth[random.randint(0, len(truth) - 1)] += 1
    largest = counts.index(max(counts))
    apart = concentration.indices([*counts, *[1] * n_unknown])
    together = concentration.indices([*counts[:largest], counts[largest] + n_unknown, *counts[largest + 1 :]])

    true = concentration.indices([count for count in truth if count])

    for index, sign in ((0, 1), (1, -1), (3, -1)):
        assert sign * apart[index] <= sign * true[index] + 1e-9
        assert sign * true[index] <= sign * together[index] + 1e-9


def ways(n_blocks: int, n_owners: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to give n_blocks blocks to n_owners owners."""
    if n_owners == 1:
        yield (n_blocks,)
        return
    for first in range(n_blocks + 1):
        for others in ways(n_blocks - first, n_owners - 1):
            yield (first, *others)


@pytest.mark.parametrize(
    ("counts", "n_unknown"),
    [([4, 2, 2], 2), ([4, 4], 2), ([], 3), ([3], 0), ([1, 1, 6], 4), ([2, 5, 9], 3), ([7, 1], 0)],
)
def test_gini_lies_in_its_range_however_unknown_blocks_are_given_out(
    counts: list[int], n_unknown: int
) -> None:
    """The bounds are the least and largest gini over all ways to give out the unknown blocks."""
    found = [
        concentration.indices([count for count in map(sum, zip(truth, way, strict=True)) if count])[2]
        for truth in [[*counts, *[0] * n_unknown]]
        for way in ways(n_unknown, len(truth))
    ]

    bounds = concentration.gini_range(np.array(counts, float), n_unknown)

    assert bounds == pytest.approx((min(found), max(found)), abs=1e-12)


UNEQUAL = (0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.07)
EQUAL = (1 / 12,) * 12


@pytest.mark.parametrize("shares", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
@pytest.mark.parametrize("n_blocks", [144, 2016])
def test_intervals_hold_the_truth_about_as_often_as_they_say(n_blocks: int, shares: Any) -> None:
    """In at least 90 of 100 samples each interval holds the true value; gini of equal owners in 75."""
    truth = concentration.indices(np.array(shares) * 1200)
    top_3 = sum(shares[:3])
    rng = np.random.default_rng(5)
    hits, top_hits = np.zeros(4), 0
    for _ in range(100):
        counts = np.sort(rng.multinomial(n_blocks, shares).astype(float))[::-1]
        bounds = concentration.concentration_intervals(counts)
        assert bounds is not None
        low, high = np.reshape(bounds, (4, 2)).T
        hits += (low <= truth + 1e-9) & (truth <= high + 1e-9)
        top = concentration.top_intervals(counts, n_blocks)[2]
        top_hits += top.low <= top_3 <= top.high
    least = np.array([90, 85, 75 if shares == EQUAL else 90, 90])
    assert (hits >= least).all(), hits
    assert top_hits >= 88


@given(Counts.filter(lambda counts: len(counts) > 1))
def test_intervals_hold_the_estimate(counts: list[int]) -> None:
    """Every index lies inside its own interval."""
    bounds = concentration.concentration_intervals(np.array(counts, float))
    assert bounds is not None
    low, high = np.reshape(bounds, (4, 2)).T
    found = concentration.indices(counts)
    assert (low <= found + 1e-9).all()
    assert (found <= high + 1e-9).all()


def test_top_intervals_are_wilsons_where_the_order_is_certain() -> None:
    """For two owners with very different counts, the bounds are Wilson's, also with unknown blocks."""
    first, second = concentration.top_intervals(np.array([600.0, 200.0]), 1000)

    assert first == pytest.approx(stats.binomtest(600, 1000).proportion_ci(method="wilson"), abs=1e-3)
    assert second == pytest.approx(stats.binomtest(800, 1000).proportion_ci(method="wilson"), abs=1e-3)


def test_homogeneity_of_a_worked_example() -> None:
    """20:20 against 30:10 gives 16 / 3 with 1 degree of freedom; no common owner gives V = 1."""
    result = concentration.homogeneity_test(np.array([20.0, 20]), np.array([30.0, 10]))

    assert result == pytest.approx((16 / 3, 1, stats.chi2.sf(16 / 3, 1), np.sqrt(16 / 3 / 80)))
    disjoint = concentration.homogeneity_test(np.array([50.0, 0]), np.array([0.0, 50]))
    assert disjoint is not None
    assert disjoint.cramers_v == pytest.approx(1)


def test_homogeneity_is_rejected_about_as_often_as_it_says() -> None:
    """For two days of the same shares, with many small owners, about 5 % of tests have p below 0.05."""
    rng = np.random.default_rng(3)
    shares = np.array([0.3, 0.25, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01])
    days = rng.multinomial(144, shares, size=(400, 2)).astype(float)
    results = [concentration.homogeneity_test(*pair) for pair in days]
    assert 8 <= sum(result.p_value < 0.05 for result in results if result) <= 34
    assert all(results)


def test_few_blocks_join_the_smallest_owner() -> None:
    """Two owners of 2 blocks each are merged, and with 2 blocks expected they join the smallest other one."""
    result = concentration.homogeneity_test(np.array([40.0, 2, 20, 0]), np.array([20.0, 0, 40, 2]))

    expected = stats.chi2_contingency([[40, 22], [20, 42]], correction=False)
    assert result is not None
    assert result[:3] == pytest.approx((expected.statistic, 1, expected.pvalue))


@pytest.mark.parametrize(
    ("counts", "others"),
    [([5], [5]), ([], []), ([3, 1], [0, 0]), ([1, 1, 1], [1, 1, 1]), ([144, 0], [138, 6])],
)
def test_no_test_without_two_groups(counts: list[int], others: list[int]) -> None:
    """One owner, no block, or too few blocks for two groups give None."""
    assert concentration.homogeneity_test(np.array(counts, float), np.array(others, float)) is None


def test_sql_gives_nulls_where_there_is_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    """The SQL functions give nulls for a null list, an empty list and one owner, among other rows."""
    rows = connection.execute(
        "SELECT concentration(c).hhi, concentration_intervals(c).hhi_low IS NULL, gini_range(c, 0).high,"
        " len(top_intervals(c, 7)) FROM (VALUES (NULL), ([]), ([0]), ([7]), ([1, 1])) AS t(c)"
    ).fetchall()

    nothing = (None, True, None, 0)
    assert rows == [nothing, nothing, nothing, (1.0, True, 0.0, 1), (0.5, False, 0.0, 2)]
