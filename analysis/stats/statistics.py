"""Statistics that SQL does not have, from SciPy, registered as vectorised functions of DuckDB.

Every function takes whole columns and gives a struct per row; a row for which the statistic does not exist
gives a struct of nulls, never a number. They are pure, so a build can be repeated.

    wilson_interval(successes, trials)      95 % interval of a proportion
    rank_test(sample, other)                Mann-Whitney U, two-sided, with its effect size
    part_interval(parts, wholes)            95 % interval of sum / sum over independent pairs, 0 to 1
    ratio_interval(numerators, denominators)  the same of a ratio that may be above 1
    median_interval(values)                 95 % interval of the median of independent values
    adjusted_p_values(p_values)             Holm's correction for many tests
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

CONFIDENCE: Final = 0.95
SEED: Final = 20190221

INTERVAL: Final = pa.struct([("low", pa.float64()), ("high", pa.float64())])
RANK_TEST: Final = pa.struct(
    [("u", pa.float64()), ("p_value", pa.float64()), ("rank_biserial", pa.float64())]
)

Numbers = npt.NDArray[np.float64]
Function = tuple[str, Callable[..., Any], list[Any], str]


class Interval(NamedTuple):
    """Bounds of a 95 % interval."""

    low: float
    high: float


class RankTest(NamedTuple):
    """Mann-Whitney U of the first sample, two-sided p-value, rank-biserial effect size."""

    u: float
    p_value: float
    rank_biserial: float


def wilson_intervals(successes: Numbers, trials: Numbers) -> tuple[Numbers, Numbers]:
    """Lower and upper bounds of Wilson's score interval; NaN where there was no trial.

    Source: E. B. Wilson, 1927, doi:10.1080/01621459.1927.10502953. The same numbers as
    scipy.stats.binomtest(k, n).proportion_ci(method="wilson"), which takes one pair at a time.
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


def rank_test(sample: Numbers, other: Numbers) -> RankTest | None:
    """Compare two independent samples by rank; None where either is empty.

    The p-value is exact for small samples without ties, else asymptotic with corrections for ties and
    continuity (scipy.stats.mannwhitneyu, method "auto"), and 1 where all values are alike. The effect size is
    2 U / (n m) - 1: -1 when every value of `sample` is below every value of `other`, 0 when neither tends to
    be larger.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    if not len(sample) or not len(other):
        return None
    result = stats.mannwhitneyu(sample, other, alternative="two-sided", method="auto")
    u = float(result.statistic)
    is_constant = np.ptp(np.concatenate([sample, other])) == 0  # of which SciPy says 1 or nan, by its version
    return RankTest(u, 1.0 if is_constant else float(result.pvalue), 2 * u / (len(sample) * len(other)) - 1)


def ratio_interval(numerators: Numbers, denominators: Numbers) -> Interval | None:
    """Interval of sum(numerators) / sum(denominators) when pairs, not units, are independent.

    Jackknife over pairs with Student's t for n - 1 degrees of freedom. None for fewer than two pairs, for a
    denominator of 0, and where all pairs have the same ratio: equal pairs say nothing about the width.

    Source: W. G. Cochran, Sampling Techniques, 3rd edition, 1977, section 6.17 (jackknife of a ratio).
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    n_pairs = len(numerators)
    if n_pairs < 2 or not (denominators > 0).all():  # noqa: PLR2004 - one pair has no spread
        return None
    if np.ptp(numerators / denominators) == 0:
        return None
    top, bottom = numerators.sum(), denominators.sum()
    without_one = (top - numerators) / (bottom - denominators)
    error = np.sqrt((n_pairs - 1) * without_one.var())
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n_pairs - 1) * error
    return Interval(float(top / bottom - half), float(top / bottom + half))


def part_interval(parts: Numbers, wholes: Numbers) -> Interval | None:
    """Interval of sum(parts) / sum(wholes), each part within 0 and its whole.

    ratio_interval on the logit scale, so that the bounds stay within 0 and 1. From 5 pairs on it holds the
    true ratio in 92 to 95 % of simulated samples; a bootstrap (BCa) does in 84 % of those of 5 pairs. Where
    every part is 0, or the whole, there is no spread, but n such pairs do tell something: Wilson's interval
    for none, or all, of n pairs, as wide as if no pair could lie between.
    """
    n_pairs = len(parts)
    if n_pairs > 1 and (wholes > 0).all() and ((parts == 0).all() or (parts == wholes).all()):
        low, high = wilson_intervals(np.array([n_pairs * float(parts[0] > 0)]), np.array([float(n_pairs)]))
        return Interval(float(low[0]), float(high[0]))
    interval = ratio_interval(parts, wholes)
    if interval is None or (parts < 0).any() or (parts > wholes).any():
        return interval
    ratio = parts.sum() / wholes.sum()
    log_odds, half = np.log(ratio / (1 - ratio)), (interval.high - ratio) / (ratio * (1 - ratio))
    return Interval(float(1 / (1 + np.exp(half - log_odds))), float(1 / (1 + np.exp(-half - log_odds))))


def median_interval(values: Numbers) -> Interval | None:
    """Interval of the median of what independent values are drawn from, whatever its distribution.

    The k-th smallest and the k-th largest value, k the most that misses the median in at most 5 % of samples
    by the binomial distribution: it holds the truth in 95 % and more. None below 6 values, of which even the
    least and the largest hold the median less often.
    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition, 1999, section 3.2; the bounds of
    scipy.stats.quantile_test.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    n = len(values)
    k = int(stats.binom.ppf((1 - CONFIDENCE) / 2, n, 0.5))  # at most k - 1 values below: less than 2.5 %
    if k < 1:
        return None
    ordered = np.sort(values)
    return Interval(float(ordered[k - 1]), float(ordered[n - k]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number: the chance of even one false claim among all stays below the level.

    It holds however the tests depend on each other, and those of pools do: what one pool mines no other does.
    Source: S. Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions of this module known to one connection."""
    create_functions(
        connection,
        (
            ("wilson_interval", _wilson_column, ["BIGINT", "BIGINT"], "STRUCT(low DOUBLE, high DOUBLE)"),
            (
                "rank_test",
                lambda samples, others: by_row(rank_test, RANK_TEST, samples, others),
                ["DOUBLE[]", "DOUBLE[]"],
                "STRUCT(u DOUBLE, p_value DOUBLE, rank_biserial DOUBLE)",
            ),
            (
                "part_interval",
                lambda parts, wholes: by_row(part_interval, INTERVAL, parts, wholes),
                ["DOUBLE[]", "DOUBLE[]"],
                "STRUCT(low DOUBLE, high DOUBLE)",
            ),
            (
                "ratio_interval",
                lambda tops, bottoms: by_row(ratio_interval, INTERVAL, tops, bottoms),
                ["DOUBLE[]", "DOUBLE[]"],
                "STRUCT(low DOUBLE, high DOUBLE)",
            ),
            (
                "median_interval",
                lambda values: by_row(median_interval, INTERVAL, values),
                ["DOUBLE[]"],
                "STRUCT(low DOUBLE, high DOUBLE)",
            ),
            ("adjusted_p_values", _adjusted_column, ["DOUBLE[]"], "DOUBLE[]"),
        ),
    )


def create_functions(connection: duckdb.DuckDBPyConnection, functions: Iterable[Function]) -> None:
    """Register functions of whole columns: name, function, types of the parameters, type of the result."""
    for name, function, parameters, result in functions:
        connection.create_function(
            name,
            function,
            parameters,
            result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )


def _wilson_column(successes: pa.ChunkedArray, trials: pa.ChunkedArray) -> pa.Array:
    columns = (_floats(successes), _floats(trials))
    low, high = wilson_intervals(*columns)
    arrays = [pa.array(bound, pa.float64(), from_pandas=True) for bound in (low, high)]
    return pa.StructArray.from_arrays(arrays, fields=list(INTERVAL))


def _floats(column: pa.ChunkedArray) -> Numbers:
    """Numbers of a column; NaN for null."""
    numbers: Numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def _adjusted_column(lists: pa.ChunkedArray) -> pa.Array:
    """Correct each list of p-values; a null stays null and is no test."""
    return pa.array([_adjusted(values) for values in lists.to_pylist()], pa.list_(pa.float64()))


def _adjusted(p_values: list[float | None] | None) -> list[float | None] | None:
    if p_values is None:
        return None
    adjusted = iter(holm([value for value in p_values if value is not None]))
    return [None if value is None else next(adjusted) for value in p_values]


def by_row(
    statistic: Callable[..., tuple[float, ...] | None], type_: pa.StructType, *columns: pa.ChunkedArray
) -> pa.Array:
    """Give a statistic of lists, row by row; nulls inside a list are left out, and NaN becomes null."""
    nothing = (np.nan,) * type_.num_fields
    results = [
        [None if np.isnan(value) else value for value in statistic(*map(_list, row)) or nothing]
        for row in zip(*columns, strict=True)
    ]
    return pa.array([dict(zip(type_.names, result, strict=True)) for result in results], type_)


def _list(scalar: Any) -> Numbers:
    """Numbers of one list; a missing list has none."""
    if scalar.values is None:
        return np.empty(0)
    numbers: Numbers = scalar.values.drop_null().to_numpy(zero_copy_only=False)
    return numbers
