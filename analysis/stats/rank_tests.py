"""Compare two samples by rank, and correct the p-values of many tests.

As SQL functions:

    rank_test(sample, other)       Mann-Whitney U, two-sided, with its effect size
    adjusted_p_values(p_values)    Holm's correction for many tests
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.stats.intervals import CONFIDENCE, Interval
from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

MAX_EXACT_PAIRS: Final = 10_000
RANK_TEST: Final = pa.struct(
    [("u", pa.float64()), ("p_value", pa.float64()), ("rank_biserial", pa.float64())]
)


class RankTest(NamedTuple):
    """Holds Mann-Whitney U of the first sample, the two-sided p-value and the rank-biserial effect size."""

    u: float
    p_value: float
    rank_biserial: float


def rank_test(sample: Numbers, other: Numbers) -> RankTest | None:
    """Test by rank whether values of `sample` tend to differ from those of `other` (Mann-Whitney).

    The result is None where either sample is empty. The p-value is exact for small samples without ties, else
    asymptotic with corrections for ties and continuity (scipy.stats.mannwhitneyu, method "auto", which takes
    gigabytes for 8 values against 20,000; so for more than 10,000 pairs it is asymptotic). It is 1 where all
    values are equal. The effect size is 2 U / (n m) - 1: -1 when every value of `sample` is below every value
    of `other`, 0 when neither tends to be larger.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    if not len(sample) or not len(other):
        return None
    method = "auto" if len(sample) * len(other) <= MAX_EXACT_PAIRS else "asymptotic"
    result = stats.mannwhitneyu(sample, other, alternative="two-sided", method=method)
    u = float(result.statistic)
    is_constant = np.ptp(np.concatenate([sample, other])) == 0  # SciPy gives 1 or nan here, by its version
    return RankTest(u, 1.0 if is_constant else float(result.pvalue), 2 * u / (len(sample) * len(other)) - 1)


def rank_biserial_interval(sample: Numbers, other: Numbers) -> Interval | None:
    """Return the 95 % interval of the rank-biserial effect size of two independent samples.

    Its variance is that of the placements: for each value, the part of the other sample that lies below it,
    where an equal value counts half (E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, 1988,
    doi:10.2307/2531595; the effect size is twice their area less 1). The samples may differ in spread. The
    result is None where a sample has fewer than two values or the samples do not overlap.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    n, m = len(sample), len(other)
    if n < 2 or m < 2:  # noqa: PLR2004 - one value has no spread
        return None
    ranks = stats.rankdata(np.concatenate([sample, other]))
    below_sample = (ranks[:n] - stats.rankdata(sample)) / m
    below_other = (ranks[n:] - stats.rankdata(other)) / n
    error = np.sqrt(below_sample.var(ddof=1) / n + below_other.var(ddof=1) / m)
    if error == 0:
        return None
    effect, half = 2 * below_sample.mean() - 1, 2 * stats.norm.ppf((1 + CONFIDENCE) / 2) * error
    return Interval(float(max(effect - half, -1)), float(min(effect + half, 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number, so that the level bounds the chance of any false claim.

    The correction holds however the tests depend on each other. Tests of pools do: a block of one pool is not
    a block of another. Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def _adjusted_column(lists: pa.ChunkedArray) -> pa.Array:
    """Return each list of p-values corrected by Holm; a null stays null and does not count as a test."""
    return pa.array([_adjusted(values) for values in lists.to_pylist()], pa.list_(pa.float64()))


def _adjusted(p_values: list[float | None] | None) -> list[float | None] | None:
    """Return one list of p-values corrected by Holm; nulls stay at their positions, None stays None."""
    if p_values is None:
        return None
    adjusted = iter(holm([value for value in p_values if value is not None]))
    return [None if value is None else next(adjusted) for value in p_values]


FUNCTIONS: Final = (
    SqlFunction(
        "rank_test",
        lambda samples, others: by_row(rank_test, RANK_TEST, samples, others),
        ["DOUBLE[]", "DOUBLE[]"],
        struct_sql(RANK_TEST),
    ),
    SqlFunction("adjusted_p_values", _adjusted_column, ["DOUBLE[]"], "DOUBLE[]"),
)
