"""Compute 95 % intervals of shares, ratios and medians.

As SQL functions:

    wilson_interval(successes, trials)        of a proportion
    part_interval(parts, wholes)              of sum / sum over independent pairs, within 0 to 1
    ratio_interval(numerators, denominators)  of a ratio of sums that may be above 1
    median_interval(values)                   of the median of independent values

A row for which an interval does not exist gives a struct of nulls, never a number.
"""

from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

CONFIDENCE: Final = 0.95
AS_EQUAL: Final = 1e-12  # sums of floating-point numbers that differ by less, for their size, are equal

INTERVAL: Final = pa.struct([("low", pa.float64()), ("high", pa.float64())])


class Interval(NamedTuple):
    """Holds the lower and upper bound of a 95 % interval."""

    low: float
    high: float


def wilson_intervals(successes: Numbers, trials: Numbers) -> tuple[Numbers, Numbers]:
    """Return the lower and upper bounds of Wilson's 95 % score interval for each pair; NaN for 0 trials.

    Source: E. B. Wilson, 1927, doi:10.1080/01621459.1927.10502953. The same numbers as
    scipy.stats.binomtest(k, n).proportion_ci(method="wilson"), which takes one pair at a time. The interval
    holds the true share in 95 % of samples on average over all shares. For nine shares in ten that is 92 to
    98 % with 10 trials and 94 to 96 % with 144; where a fraction of one success or of one failure is
    expected, it may be 84 %.
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = successes / trials
        center = (ratio + z**2 / (2 * trials)) / (1 + z**2 / trials)
        half = z / (1 + z**2 / trials) * np.sqrt(ratio * (1 - ratio) / trials + z**2 / (4 * trials**2))
    low = np.where(successes == 0, 0.0, np.maximum(center - half, 0.0))
    high = np.where(successes == trials, 1.0, np.minimum(center + half, 1.0))
    none = trials <= 0
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


def ratio_interval(numerators: Numbers, denominators: Numbers) -> Interval | None:
    """Return the 95 % interval of sum(numerators) / sum(denominators), from independent pairs of the two.

    The two numbers of a pair may depend on each other. The method is a jackknife over pairs with Student's t
    for n - 1 degrees of freedom. The result is None for fewer than two pairs, for a denominator of 0, and
    where all pairs have the same ratio, because equal pairs do not tell the width.

    Source: W. G. Cochran, Sampling Techniques, 3rd edition, 1977, section 6.17 (jackknife of a ratio).
    """
    n_pairs = len(numerators)
    if n_pairs < 2 or not (denominators > 0).all():  # noqa: PLR2004 - one pair has no spread
        return None
    ratios = numerators / denominators
    if np.ptp(ratios) <= AS_EQUAL * np.abs(ratios).max():
        return None
    from scipy import special  # noqa: PLC0415 - SciPy loads slowly, and most commands do not need it

    top, bottom = numerators.sum(), denominators.sum()
    without_one = (top - numerators) / (bottom - denominators)
    error = np.sqrt((n_pairs - 1) * without_one.var())
    half = special.stdtrit(n_pairs - 1, (1 + CONFIDENCE) / 2) * error  # scipy.stats.t.ppf, which loads slowly
    return Interval(float(top / bottom - half), float(top / bottom + half))


def part_interval(parts: Numbers, wholes: Numbers) -> Interval | None:
    """Return the 95 % interval of sum(parts) / sum(wholes), where each part lies between 0 and its whole.

    It is ratio_interval on the logit scale, so that the bounds stay within 0 and 1. From 5 pairs on it holds
    the true ratio in 89 to 97 % of simulated samples, by the spread of the wholes and ratios; a bootstrap
    (BCa) does in 84 % of those of 5 pairs of equal wholes. Where few pairs have any part, or few lack any,
    these alone show the spread: Student's t has no more degrees of freedom than there are such pairs, but at
    least 2. A bound that this moves is moved no further than to Wilson's for that many successes of n pairs,
    which is as wide as if each pair were only 0 or 1. So it holds the truth in 98 to 99 % of samples in which
    one pair in 10 to 50 has a few parts, and in 86 to 98 % of samples of 5 to 50 pairs whose ratios are
    beta(0.05, 5), or the reverse. Where every part is 0, or every part is its whole, there is no spread, and
    the result is Wilson's interval.
    """
    n_pairs = len(parts)
    if n_pairs < 2:  # noqa: PLR2004 - one pair has no spread
        return None
    parts = np.where(np.abs(parts) <= AS_EQUAL * wholes, 0.0, parts)
    parts = np.where(np.abs(parts - wholes) <= AS_EQUAL * wholes, wholes, parts)
    if (wholes > 0).all() and ((parts == 0).all() or (parts == wholes).all()):
        low, high = wilson_intervals(np.array([n_pairs * float(parts[0] > 0)]), np.array([float(n_pairs)]))
        return Interval(float(low[0]), float(high[0]))
    interval = ratio_interval(parts, wholes)
    if interval is None or (parts < 0).any() or (parts > wholes).any():
        return interval
    ratio = parts.sum() / wholes.sum()
    log_odds, half = np.log(ratio / (1 - ratio)), (interval.high - ratio) / (ratio * (1 - ratio))
    low, high = 1 / (1 + np.exp(half - log_odds)), 1 / (1 + np.exp(-half - log_odds))
    n_some, n_whole = int(np.count_nonzero(parts)), int(np.count_nonzero(parts == wholes))
    # One pair alone would give Student's t a single degree of freedom, and wider bounds than none at all.
    n_telling = max(2, min(n_some, n_pairs - n_whole))
    if n_telling < n_pairs - 1:
        from scipy import special  # noqa: PLC0415 - as above

        half *= special.stdtrit(n_telling, (1 + CONFIDENCE) / 2)
        half /= special.stdtrit(n_pairs - 1, (1 + CONFIDENCE) / 2)
        bounds = wilson_intervals(np.array([n_whole, n_some], float), np.full(2, float(n_pairs)))
        low = min(low, max(1 / (1 + np.exp(half - log_odds)), bounds[0][0]))
        high = max(high, min(1 / (1 + np.exp(-half - log_odds)), bounds[1][1]))
    return Interval(float(low), float(high))


def median_interval(values: Numbers) -> Interval | None:
    """Return the 95 % interval of the median of the distribution that independent values are drawn from.

    The bounds are the k-th smallest and the k-th largest value. By the binomial distribution, k is the
    largest number for which they miss the median in at most 5 % of samples, whatever the distribution. The
    result is None for fewer than 6 values, where even the smallest and the largest miss it more often.
    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition, 1999, section 3.2; the bounds of
    scipy.stats.quantile_test.
    """
    n = len(values)
    tail = (1 - CONFIDENCE) / 2
    if 0.5**n >= tail:
        return None
    from scipy import special  # noqa: PLC0415 - as above

    # At most k - 1 of n values lie below the median in less than 2.5 % of samples: scipy.stats.binom.ppf.
    k = int(np.ceil(special.bdtrik(tail, n, 0.5)))
    k -= int(special.bdtr(k - 1, n, 0.5) >= tail)
    ordered = np.sort(values)
    return Interval(float(ordered[k - 1]), float(ordered[n - k]))


def interval_column(bounds: tuple[Numbers, Numbers]) -> pa.Array:
    """Convert arrays of lower and upper bounds into an Arrow column of intervals; NaN becomes null."""
    arrays = [pa.array(bound, pa.float64(), from_pandas=True) for bound in bounds]
    return pa.StructArray.from_arrays(arrays, fields=list(INTERVAL))


def _wilson_column(successes: pa.ChunkedArray, trials: pa.ChunkedArray) -> pa.Array:
    """Return an Arrow column with Wilson's 95 % interval for each row's successes and trials."""
    return interval_column(wilson_intervals(_floats(successes), _floats(trials)))


def _floats(column: pa.ChunkedArray) -> Numbers:
    """Return an Arrow column as an array of floats; a null becomes NaN."""
    numbers: Numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


FUNCTIONS: Final = (
    SqlFunction("wilson_interval", _wilson_column, ["BIGINT", "BIGINT"], struct_sql(INTERVAL)),
    SqlFunction(
        "part_interval",
        lambda parts, wholes: by_row(part_interval, INTERVAL, parts, wholes),
        ["DOUBLE[]", "DOUBLE[]"],
        struct_sql(INTERVAL),
    ),
    SqlFunction(
        "ratio_interval",
        lambda tops, bottoms: by_row(ratio_interval, INTERVAL, tops, bottoms),
        ["DOUBLE[]", "DOUBLE[]"],
        struct_sql(INTERVAL),
    ),
    SqlFunction(
        "median_interval",
        lambda values: by_row(median_interval, INTERVAL, values),
        ["DOUBLE[]"],
        struct_sql(INTERVAL),
    ),
)
