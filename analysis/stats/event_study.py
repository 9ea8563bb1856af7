"""Test whether a daily series changed at an event's date more than at other dates (placebo dates).

As SQL function: event_effect(days, values, event_day, window_days, all_events), days counted from 1970-01-01.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.stats.sql_functions import Numbers, SqlFunction, struct_sql

MIN_PRESENT_RATIO: Final = 0.8
MIN_PLACEBOS: Final = 19
EFFECT_NAMES: Final = ("log_change", "placebo_low", "placebo_high", "n_placebos", "p_value")
EFFECT_TYPE: Final = pa.struct([(name, pa.float64()) for name in EFFECT_NAMES])


class EventEffect(NamedTuple):
    """Holds how much the mean of ln value changed at a date, and the middle 95 % of placebo changes.

    n_placebos is the number of placebo dates; p_value tests whether the change is larger than theirs.
    """

    log_change: float
    placebo_low: float
    placebo_high: float
    n_placebos: float
    p_value: float


def event_effect(
    days: Numbers, values: Numbers, event_day: float, window_days: int, all_events: Collection[float] = ()
) -> EventEffect | None:
    """Test whether the mean of ln value changed at a date more than at placebo dates.

    The change is the mean in the window after the date minus that before it; the date is left out. Placebo
    dates are all days of the series whose windows overlap no window of this event or of `all_events`. The
    p-value is the part of placebo changes at least as far from their median as this one, with the event
    counted among them; so in a series that grows steadily, a standstill counts as a change. Placebo windows
    overlap, so placebo dates within a window of each other are nearly the same: together they count as
    n_placebos / window_days independent dates, and p is never below 1 / (that number + 1). In simulated
    random walks and autocorrelated series of 200 to 3,000 days, 0 to 5 % of p-values are below 0.05. The
    result is None where less than 80 % of the days of either window have a value above 0, or there are fewer
    than 19 placebos.
    """
    is_positive = values > 0
    days, logs = days[is_positive].astype(int), np.log(values[is_positive])
    if not len(days):
        return None
    series = np.full(days.max() - days.min() + 1, np.nan)
    series[days - days.min()] = logs
    changes = _changes(series, window_days)
    place = int(event_day) - int(days.min())
    if not 0 <= place < len(series) or np.isnan(changes[place]):
        return None
    places = np.array([event_day, *all_events]).astype(int) - int(days.min())
    is_far = (np.abs(np.arange(len(series))[:, None] - places) > 2 * window_days).all(axis=1)
    placebos = changes[is_far & ~np.isnan(changes)]
    if len(placebos) < MIN_PLACEBOS:
        return None
    change = changes[place]
    low, high = np.quantile(placebos, [0.025, 0.975])
    usual = np.median(placebos)
    as_far_ratio = float((np.abs(placebos - usual) >= abs(change - usual)).mean())
    n_apart = len(placebos) / window_days
    p_value = (as_far_ratio * n_apart + 1) / (n_apart + 1)
    return EventEffect(float(change), float(low), float(high), len(placebos), p_value)


def _changes(series: Numbers, window_days: int) -> Numbers:
    """Return for each day of a series the mean of the window after it minus that of the window before it.

    It is NaN where too many days of a window are missing.
    """
    is_known = ~np.isnan(series)
    sums = np.concatenate([[0], np.where(is_known, series, 0).cumsum()])
    counts = np.concatenate([[0], is_known.cumsum()])
    place = np.arange(len(series))
    before, end = np.maximum(place - window_days, 0), np.minimum(place + 1 + window_days, len(series))
    n_before, n_after = counts[place] - counts[before], counts[end] - counts[place + 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        changes = (sums[end] - sums[place + 1]) / n_after - (sums[place] - sums[before]) / n_before
    enough = np.minimum(n_before, n_after) >= MIN_PRESENT_RATIO * window_days
    result: Numbers = np.where(enough, changes, np.nan)
    return result


def _effect_column(
    days: pa.ChunkedArray,
    values: pa.ChunkedArray,
    event_days: pa.ChunkedArray,
    windows: pa.ChunkedArray,
    all_events: pa.ChunkedArray,
) -> pa.Array:
    columns = (days, values, event_days, windows, all_events)
    rows = []
    for t, y, event, window, others in zip(*(column.to_pylist() for column in columns), strict=True):
        effect = None
        if event is not None and window is not None:
            effect = event_effect(
                np.array(t or [], float), np.array(y or [], float), event, window, others or ()
            )
        rows.append(effect._asdict() if effect else dict.fromkeys(EFFECT_NAMES))
    return pa.array(rows, EFFECT_TYPE)


FUNCTIONS: Final = (
    SqlFunction(
        "event_effect",
        _effect_column,
        ["DOUBLE[]", "DOUBLE[]", "DOUBLE", "BIGINT", "DOUBLE[]"],
        struct_sql(EFFECT_TYPE),
    ),
)
