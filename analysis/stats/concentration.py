"""Measure how concentrated mining is over owners, and test whether that has changed.

Each row is a list of the numbers of blocks per owner; a list without blocks gives nulls.

As SQL functions:

    concentration(counts)                   hhi, nakamoto, gini, entropy_bits
    concentration_intervals(counts)         the same with _low and _high: 95 % by bootstrap over blocks
    top_intervals(counts, n_blocks)         low and high of the share of the n largest owners, for each n
    gini_range(counts, n_unknown)           least and largest gini, whoever owns the unknown blocks
    homogeneity_test(counts, other_counts)  chi-square test that two periods have the same shares
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy  # loads its parts when it is first used

from analysis.stats.intervals import CONFIDENCE, INTERVAL, Interval, wilson_intervals
from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

SEED: Final = 20190221
N_RESAMPLES: Final = 999
N_BIAS_RESAMPLES: Final = 299
BIAS_FACTORS: Final = (1, 3)
MAJORITY: Final = 0.5
MIN_EXPECTED: Final = 5

INDICES: Final = ("hhi", "nakamoto", "gini", "entropy_bits")
BOUNDS: Final = tuple(f"{name}_{bound}" for name in INDICES for bound in ("low", "high"))
INDEX_TYPE: Final = pa.struct([(name, pa.float64()) for name in INDICES])
BOUND_TYPE: Final = pa.struct([(name, pa.float64()) for name in BOUNDS])
TEST_TYPE: Final = pa.struct(
    [
        ("chi_square", pa.float64()),
        ("degrees_of_freedom", pa.float64()),
        ("p_value", pa.float64()),
        ("cramers_v", pa.float64()),
    ]
)


class HomogeneityTest(NamedTuple):
    """Holds Pearson's chi-square test of two rows of counts, one per period: its results and Cramer's V.

    Cramer's V is 0 for equal shares and 1 where no owner has blocks in both rows.
    """

    chi_square: float
    degrees_of_freedom: float
    p_value: float
    cramers_v: float


def indices(counts: npt.ArrayLike) -> Numbers:
    """Compute the indices of blocks per owner: counts (..., n owners) give (..., 4), in the order of INDICES.

    hhi           Herfindahl-Hirschman index, sum of squared shares: 1 / n for equal owners, 1 for one alone.
    nakamoto      the fewest owners that together have more than half of the blocks.
    gini          mean absolute difference of two owners / twice the mean: 0 when equal, near 1 for one alone.
    entropy_bits  Shannon entropy of the shares, base 2: log2 n for equal owners, 0 for one alone.

    Owners of 0 blocks count for gini only. All indices are NaN where there is no block.
    """
    ascending = np.sort(np.asarray(counts, dtype=np.float64), axis=-1)
    n_owners = ascending.shape[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = ascending / ascending.sum(axis=-1, keepdims=True)
        hhi = (shares**2).sum(axis=-1)
        leading = ascending[..., ::-1].cumsum(axis=-1)
        nakamoto = 1.0 + (2 * leading <= ascending.sum(axis=-1, keepdims=True)).sum(axis=-1)
        place = np.arange(1, n_owners + 1)
        gini = 2 * (shares * place).sum(axis=-1) / n_owners - (n_owners + 1) / n_owners
        entropy = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)
    nakamoto = np.where(np.isnan(hhi), np.nan, nakamoto)
    return np.stack([hhi, nakamoto, np.maximum(gini, 0), entropy + 0.0], axis=-1)


def concentration(counts: Numbers) -> tuple[float, ...] | None:
    """Return hhi, nakamoto, gini and entropy_bits of a list of counts; None if it counts no block."""
    if not counts.sum() > 0:
        return None
    return tuple(map(float, indices(counts)))


def concentration_intervals(counts: Numbers) -> tuple[float, ...] | None:
    """Return the bounds of the 95 % interval of each index of concentration, in the order of BOUNDS.

    The result is None for fewer than two owners. The estimate always lies within its bounds. The method is a
    bootstrap over blocks: drawing blocks with replacement is one multinomial draw of the counts (999 draws,
    seeded). A sample looks more concentrated than its source, and a draw looks more concentrated than the
    sample by about as much again. So the quantiles are moved by that bias, once for the inner and three times
    for the outer end. The bounds of nakamoto are those numbers of owners at which `top_intervals` reaches one
    half. Owners without a block in the sample are missing: gini is that of the owners seen, and entropy of
    few blocks is too low.

    In simulated days of 144 blocks and epochs of 2,016 the intervals of hhi and entropy hold the true value
    in 95 % and more of samples, that of nakamoto in 86 % and more; that of gini in 96 % and more of samples
    of unequal owners, and in 68 to 82 % of equal ones. With 30 equal owners and 20 blocks the intervals of
    entropy and nakamoto nearly always miss the true value. Source: Efron and Tibshirani, An Introduction to
    the Bootstrap, 1993, chapters 10 and 13.
    """
    counts = counts[counts > 0]
    if len(counts) < 2:  # noqa: PLR2004 - one owner has no spread
        return None
    of_draws, found = indices(_draws(counts, N_RESAMPLES)), indices(counts)
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(of_draws, tails, axis=0, method="inverted_cdf")
    bias = of_draws.mean(axis=0) - found
    low = np.minimum(np.min([low - factor * bias for factor in BIAS_FACTORS], axis=0), found)
    high = np.maximum(np.max([high - factor * bias for factor in BIAS_FACTORS], axis=0), found)
    tops = top_intervals(np.sort(counts)[::-1], counts.sum())
    nakamoto = INDICES.index("nakamoto")
    low[nakamoto] = 1 + sum(top.high <= MAJORITY for top in tops)
    high[nakamoto] = min(1 + sum(top.low <= MAJORITY for top in tops), len(counts))
    most = np.array([1, len(counts), 1, np.log2(counts.sum())])
    return tuple(map(float, np.stack([low.clip(0, most), high.clip(0, most)], axis=-1).ravel()))


def top_intervals(counts: Numbers, n_blocks: float) -> list[Interval]:
    """Return the 95 % interval of the share of the n largest owners together, for n = 1, 2, ...

    `counts` are blocks per named owner in falling order, `n_blocks` is the number of all blocks, unknown ones
    included. Wilson's interval assumes that the owners found largest are the largest. Among nearly equal
    owners the luckiest are found largest, so their sum is too large, by as much as bootstrap draws are above
    it. The lower bound is moved by twice that bias. In simulated days and epochs of unequal and of equal
    owners the interval holds the true share in 88 % and more of samples; Wilson's alone does in 0 to 99 %.
    """
    counts = counts[counts > 0]
    if not len(counts):
        return []
    found = counts.cumsum()
    low, high = wilson_intervals(found, np.full(len(counts), n_blocks))
    draws = _draws(np.append(counts, n_blocks - found[-1]), N_BIAS_RESAMPLES)[:, :-1]
    of_draws = np.sort(draws, axis=1)[:, ::-1].cumsum(axis=1).mean(axis=0)
    moved = low - 2 * np.maximum(of_draws - found, 0) / n_blocks
    return [Interval(*map(float, pair)) for pair in zip(np.maximum(moved, 0), high, strict=True)]


def gini_range(counts: Numbers, n_unknown: float) -> Interval | None:
    """Return the least and largest gini that is possible when unknown blocks go to known or to new owners.

    For m new owners gini is largest when each of them has one block and the largest owner has the rest. It is
    smallest when the blocks go to the owners with the fewest until these are level (gini is Schur-convex).
    The least value divides blocks into parts, so it is a little below what whole blocks allow. The result is
    None where there is no block.
    """
    ascending = np.sort(counts[counts > 0])
    total = ascending.sum() + n_unknown
    if total <= 0:
        return None
    newcomers = np.arange(0 if len(ascending) else 1, n_unknown + 1)
    n_owners = len(ascending) + newcomers
    placed = np.arange(1, len(ascending) + 1) * ascending
    # Gini follows from the sum of rank times blocks, with owners in rising order.
    rich = newcomers * (newcomers + 1) / 2 + newcomers * ascending.sum() + placed.sum()
    rich = rich + n_owners * (n_unknown - newcomers)
    even = np.full(len(newcomers), np.inf)
    for n_reached in range(len(ascending) + 1):  # owners with unknown blocks added, all level
        n_level = newcomers + n_reached
        level = (n_unknown + ascending[:n_reached].sum()) / np.maximum(n_level, 1)
        above = placed[n_reached:].sum() + newcomers * ascending[n_reached:].sum()
        is_level = (n_level > 0) & (level >= ascending[:n_reached].max(initial=0))
        is_level &= level <= ascending[n_reached:].min(initial=np.inf)
        even = np.where(is_level, level * n_level * (n_level + 1) / 2 + above, even)
    least, most = (2 * placed / total / n_owners - (n_owners + 1) / n_owners for placed in (even, rich))
    return Interval(max(float(least.min()), 0.0), float(most.max()))


def _draws(counts: Numbers, n_draws: int) -> Numbers:
    """Draw `n_draws` bootstrap samples of all blocks, seeded; return counts (n_draws, n owners)."""
    n_blocks = counts.sum()
    return (
        np.random.default_rng(SEED).multinomial(int(n_blocks), counts / n_blocks, size=n_draws).astype(float)
    )


def homogeneity_test(counts: Numbers, other_counts: Numbers) -> HomogeneityTest | None:
    """Test that the blocks of two periods are drawn from the same shares.

    Element i of both lists is one owner.

    The test is Pearson's chi-square without continuity correction (scipy.stats.chi2_contingency). Owners with
    an expected count below 5 in either period are merged, because the test is wrong for so few; where they
    have fewer than 5 even together, the smallest of the other owners joins them. The result is None where a
    single group remains, or a period has no block.
    """
    table = np.stack([counts, other_counts])
    totals = table.sum(axis=1)
    if not (totals > 0).all():
        return None
    sizes = table.sum(axis=0)
    least_size = MIN_EXPECTED * totals.sum() / totals.min()
    is_small = sizes < least_size
    if 0 < sizes[is_small].sum() < least_size and not is_small.all():
        is_small[np.where(is_small, np.inf, sizes).argmin()] = True
    rest = table[:, is_small].sum(axis=1, keepdims=True)
    table = np.hstack([table[:, ~is_small], rest]) if rest.any() else table[:, ~is_small]
    if table.shape[1] < 2:  # noqa: PLR2004 - one group has nothing to differ from
        return None
    result = scipy.stats.chi2_contingency(table, correction=False)
    cramers_v = float(np.sqrt(result.statistic / table.sum()))
    return HomogeneityTest(float(result.statistic), float(result.dof), float(result.pvalue), cramers_v)


def _paired(
    statistic: Callable[[Numbers, float], Any],
    type_: pa.DataType,
    lists: pa.ChunkedArray,
    sizes: pa.ChunkedArray,
) -> pa.Array:
    """Apply `statistic` to the list of counts and the number of each row; return the results as a column."""
    rows = [
        (tuple(counts or ()), size or 0)
        for counts, size in zip(lists.to_pylist(), sizes.to_pylist(), strict=True)
    ]
    found = {row: _as_dicts(statistic(np.array(row[0], float), float(row[1]))) for row in dict.fromkeys(rows)}
    return pa.array([found[row] for row in rows], type_)


def _as_dicts(found: Interval | list[Interval] | None) -> Any:
    """Return an interval as a dict, or several as a list of dicts, which Arrow converts to structs."""
    if isinstance(found, list):
        return [interval._asdict() for interval in found]
    return None if found is None else found._asdict()


FUNCTIONS: Final = (
    SqlFunction(
        "concentration",
        lambda counts: by_row(concentration, INDEX_TYPE, counts),
        ["BIGINT[]"],
        struct_sql(INDEX_TYPE),
    ),
    SqlFunction(
        "concentration_intervals",
        lambda counts: by_row(concentration_intervals, BOUND_TYPE, counts),
        ["BIGINT[]"],
        struct_sql(BOUND_TYPE),
    ),
    SqlFunction(
        "gini_range",
        lambda counts, n_unknown: _paired(gini_range, INTERVAL, counts, n_unknown),
        ["BIGINT[]", "BIGINT"],
        struct_sql(INTERVAL),
    ),
    SqlFunction(
        "top_intervals",
        lambda counts, n_blocks: _paired(top_intervals, pa.list_(INTERVAL), counts, n_blocks),
        ["BIGINT[]", "BIGINT"],
        f"{struct_sql(INTERVAL)}[]",
    ),
    SqlFunction(
        "homogeneity_test",
        lambda counts, others: by_row(homogeneity_test, TEST_TYPE, counts, others),
        ["BIGINT[]", "BIGINT[]"],
        struct_sql(TEST_TYPE),
    ),
)
