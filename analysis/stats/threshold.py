"""Find the level of one series above which the mean of another series differs: estimate, interval and test.

As SQL function: detrended_threshold_fit(levels, responses), one list of each in order of time.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.stats.intervals import AS_EQUAL
from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

MIN_PERIODS: Final = 20
TRIMMED_RATIO: Final = 0.15
MAX_SHIFTS: Final = 999
TREND_DEGREE: Final = 3
# 95 % critical value of the likelihood ratio of a threshold: B. E. Hansen, 2000, doi:10.1111/1468-0262.00124.
CRITICAL: Final = 7.35
FIT_NAMES: Final = ("threshold", "low", "high", "below_mean", "above_mean", "r_squared", "p_value")
FIT_TYPE: Final = pa.struct([(name, pa.float64()) for name in FIT_NAMES])


class ThresholdFit(NamedTuple):
    """Holds the level that divides the responses best, its 95 % interval, and the mean on either side.

    r_squared is the part of the variance that the split explains; p_value tests that there is no threshold.
    """

    threshold: float
    low: float
    high: float
    below_mean: float
    above_mean: float
    r_squared: float
    p_value: float


def threshold_fit(levels: Numbers, responses: Numbers) -> ThresholdFit | None:
    """Find the level above which the mean response differs most: fit one mean below it and one above it.

    The fit is by least squares; a response at the threshold itself counts below. Thresholds that leave fewer
    than 15 % of the periods on a side are not tried. The interval holds every threshold whose likelihood
    ratio stays below Hansen's critical value; all from one level up to the next divide the periods alike, so
    it ends at the level after the last of these splits. In simulated series of 30 to 400 periods it holds the
    threshold in 96 to 100 % of samples. The p-value is the part of circular shifts of the responses
    against the levels that fit at least as well. A shift keeps how each series depends on its own past, which
    a plain permutation would not. The result is None for fewer than 20 periods, for levels or responses that
    never change, and where no threshold leaves 15 % of the periods on each side.
    """
    n = len(levels)
    if n < MIN_PERIODS or np.ptp(responses) == 0 or np.ptp(levels) == 0:
        return None
    order = np.argsort(levels, kind="stable")
    ordered = levels[order]
    least = int(np.ceil(TRIMMED_RATIO * n))
    # A split lies between two neighbours of different level; equal levels stay together.
    sizes = np.array([k for k in range(least, n - least + 1) if ordered[k - 1] < ordered[k]])
    if not len(sizes):
        return None
    errors = _errors(responses[order][None, :], sizes)[0]
    best = int(np.argmin(errors))
    total = float(((responses - responses.mean()) ** 2).sum())
    floor = max(float(errors[best]), 1e-18 * total)
    inside = np.flatnonzero(n * (errors - errors[best]) / floor <= CRITICAL)
    shifts = np.unique(np.linspace(1, n - 1, min(n - 1, MAX_SHIFTS)).astype(int))
    shifted = np.stack([np.roll(responses, shift)[order] for shift in shifts])
    n_as_good = int((_errors(shifted, sizes).min(axis=1) <= errors[best] * (1 + 1e-12)).sum())
    below = responses[order][: sizes[best]]
    above = responses[order][sizes[best] :]
    return ThresholdFit(
        threshold=float(ordered[sizes[best] - 1]),
        low=float(ordered[sizes[inside[0]] - 1]),
        high=float(ordered[sizes[inside[-1]]]),
        below_mean=float(below.mean()),
        above_mean=float(above.mean()),
        r_squared=1 - float(errors[best]) / total,
        p_value=(n_as_good + 1) / (len(shifts) + 1),
    )


def detrended_threshold_fit(levels: Numbers, responses: Numbers) -> ThresholdFit | None:
    """Return threshold_fit of levels above 0 and responses, but with the p-value of both without their trend.

    Two series that each have a trend look related: of unrelated ones of 60 and 150 periods, 62 to 77 % had
    p < 0.05. So the p-value is that of a fit to ln level and response, from each of which a cubic polynomial
    over the order of the periods is subtracted; of simulated series with straight or bent trends 0 to 5 %
    have p < 0.05 then (less a straight line: 27 % of bent ones). It is 1 where the means without trends
    differ in the other direction, or the responses are only a trend.
    """
    fit = threshold_fit(levels, responses)
    if fit is None:
        return None
    rest = _without_trend(responses)
    is_trend = np.ptp(rest) <= AS_EQUAL * np.abs(responses).max()
    plain = None if is_trend else threshold_fit(_without_trend(np.log(levels)), rest)
    if plain is None or (plain.above_mean > plain.below_mean) != (fit.above_mean > fit.below_mean):
        return fit._replace(p_value=1.0)
    return fit._replace(p_value=plain.p_value)


def _without_trend(series: Numbers) -> Numbers:
    """Return a series less the cubic polynomial over its places that fits it best."""
    place = np.linspace(-1, 1, len(series))
    rest: Numbers = series - np.polyval(np.polyfit(place, series, TREND_DEGREE), place)
    return rest


def _errors(series: Numbers, sizes: Numbers) -> Numbers:
    """Return the squared error of fitting two means, for each series (row) and size of the first group."""
    n = series.shape[1]
    centred = series - series.mean(axis=1, keepdims=True)
    first = centred.cumsum(axis=1)[:, sizes - 1]
    # The centred series sums to 0, so the second group's sum is that of the first with the other sign.
    explained = first**2 / sizes + first**2 / (n - sizes)
    errors: Numbers = np.maximum((centred**2).sum(axis=1, keepdims=True) - explained, 0)
    return errors


FUNCTIONS: Final = (
    SqlFunction(
        "detrended_threshold_fit",
        lambda levels, responses: by_row(detrended_threshold_fit, FIT_TYPE, levels, responses),
        ["DOUBLE[]", "DOUBLE[]"],
        struct_sql(FIT_TYPE),
    ),
)
