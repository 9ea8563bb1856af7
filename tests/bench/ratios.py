"""Say how sure a ratio is that was measured in pairs."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from scipy import stats

MIN_FOR_INTERVAL: Final = 2


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the geometric mean of ratios by Student's t; None for a single one."""
    if len(ratios) < MIN_FOR_INTERVAL:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=statistics.fmean(logs), scale=error)
    return math.exp(low), math.exp(high)
