"""How long until something happens, when several things may and not all are seen: functions of DuckDB.

    competing_risks(delays, causes, grid)    curves at the times of `grid`, all in one struct of lists

Causes are 0 for censored, 1 mined, 2 replaced, 3 expired, 4 anything else.
"""

import warnings
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.statistics import CONFIDENCE, Numbers, create_functions

MINED, REPLACED, EXPIRED, OTHER = 1, 2, 3, 4
CURVES: Final = (
    *("at_s", "n_at_risk", "waiting", "waiting_low", "waiting_high"),
    *("mined", "mined_low", "mined_high", "replaced", "expired", "other"),
)
RESULT: Final = pa.struct(
    [*((name, pa.list_(pa.float64())) for name in CURVES), ("half_mined_s", pa.float64())]
)


class Incidence(NamedTuple):
    """Cumulative incidence of one cause at the distinct times of events, with its variance."""

    ratio: Numbers
    variance: Numbers


class LifeTable(NamedTuple):
    """Distinct times, those at risk just before each, and events per cause (index 0: cause 1)."""

    times: Numbers
    n_at_risk: Numbers
    events: Numbers

    @property
    def survival_before(self) -> Numbers:
        """Chance that nothing has happened just before each time (Kaplan-Meier, all causes)."""
        after = np.cumprod(1 - self.events.sum(axis=0) / self.n_at_risk)
        return np.concatenate([[1.0], after[:-1]])


def life_table(delays: Numbers, causes: Numbers) -> LifeTable:
    """Count events and those at risk; who is censored at the time of an event was still at risk then."""
    times, place = np.unique(delays, return_inverse=True)
    leaving = np.bincount(place, minlength=len(times))
    n_at_risk = len(delays) - np.concatenate([[0], np.cumsum(leaving)[:-1]])
    events = [np.bincount(place[causes == cause], minlength=len(times)) for cause in range(1, OTHER + 1)]
    return LifeTable(times, n_at_risk.astype(float), np.array(events, dtype=float))


def incidence(table: LifeTable, cause: int) -> Incidence:
    """Cumulative incidence of one cause in the presence of the others.

    The estimator of O. O. Aalen and S. Johansen, 1978 (Scand. J. Statist. 5, 141-150): the sum over times of
    the chance of being free until then, times d / n. Its variance by the delta method: E. Marubini and M. G.
    Valsecchi, 1995, "Analysing Survival Data from Clinical Trials and Observational Studies", chapter 10.
    """
    n, d, own = table.n_at_risk, table.events.sum(axis=0), table.events[cause - 1]
    free = table.survival_before
    ratio = np.cumsum(free * own / n)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(n > d, d / (n * (n - d)), 0.0)
    square = (
        ratio**2 * np.cumsum(weight) - 2 * ratio * np.cumsum(ratio * weight) + np.cumsum(ratio**2 * weight)
    )
    own_part = np.cumsum(free**2 * own * (n - own) / n**3)
    mixed = ratio * np.cumsum(free * own / n**2) - np.cumsum(ratio * free * own / n**2)
    return Incidence(ratio, np.maximum(square + own_part - 2 * mixed, 0.0))


def competing_risks(delays: Numbers, causes: Numbers, grid: Numbers) -> dict[str, Any]:
    """Curves at the times of `grid` (ascending), null behind the last delay, since nothing is known there.

    `waiting` is the Kaplan-Meier curve of not being mined yet, replaced and expired ones taken as censored,
    with the log-log interval of scipy.stats.ecdf; `mined`, `replaced`, `expired` and `other` are cumulative
    incidences in the presence of each other. half_mined_s is when the incidence of mined ones reaches a half.
    """
    from scipy import special, stats  # noqa: PLC0415 - SciPy loads slowly, and only a build needs it

    table = life_table(delays, causes)
    incidences = {cause: incidence(table, cause) for cause in range(1, OTHER + 1)}
    mined = incidences[MINED]
    half = special.ndtri((1 + CONFIDENCE) / 2) * np.sqrt(mined.variance)
    data = stats.CensoredData.right_censored(delays, causes != MINED)
    waiting = stats.ecdf(data).sf
    with warnings.catch_warnings():
        # SciPy warns where the log-log interval is not defined and answers NaN, which becomes null below.
        warnings.simplefilter("ignore")
        bounds = waiting.confidence_interval(CONFIDENCE, method="log-log")
    place = np.searchsorted(table.times, grid, side="right") - 1
    is_known = grid <= table.times[-1]

    def at_grid(values: Numbers, before: float) -> list[float | None]:
        chosen = np.where(place >= 0, values[np.maximum(place, 0)], before)
        return _known(chosen, is_known)

    n_left = len(delays) - np.searchsorted(np.sort(delays), grid, side="left")
    reached = np.flatnonzero(mined.ratio >= 1 / 2)
    return {
        "at_s": grid.tolist(),
        "n_at_risk": n_left.astype(float).tolist(),
        "waiting": _known(waiting.evaluate(grid), is_known),
        "waiting_low": _known(bounds.low.evaluate(grid), is_known),
        "waiting_high": _known(bounds.high.evaluate(grid), is_known),
        "mined": at_grid(mined.ratio, 0.0),
        "mined_low": at_grid(np.maximum(mined.ratio - half, 0.0), 0.0),
        "mined_high": at_grid(np.minimum(mined.ratio + half, 1.0), 0.0),
        "replaced": at_grid(incidences[REPLACED].ratio, 0.0),
        "expired": at_grid(incidences[EXPIRED].ratio, 0.0),
        "other": at_grid(incidences[OTHER].ratio, 0.0),
        "half_mined_s": float(table.times[reached[0]]) if len(reached) else None,
    }


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions of this module known to one connection."""
    fields = ", ".join(f"{name} DOUBLE[]" for name in CURVES)
    parameters = ["DOUBLE[]"] * 3
    create_functions(
        connection,
        (("competing_risks", _column, parameters, f"STRUCT({fields}, half_mined_s DOUBLE)"),),
    )


def _known(values: Numbers, is_known: npt.NDArray[np.bool_]) -> list[float | None]:
    return [
        float(value) if known and np.isfinite(value) else None
        for value, known in zip(values, is_known, strict=True)
    ]


def _column(delays: pa.ChunkedArray, causes: pa.ChunkedArray, grids: pa.ChunkedArray) -> pa.Array:
    """Give the curves row by row; a row without delays has none."""
    results: list[dict[str, Any] | None] = []
    for row in zip(delays, causes, grids, strict=True):
        if any(not each.is_valid or not len(each.values) for each in row):
            results.append(None)
        else:
            results.append(competing_risks(*(each.values.to_numpy(zero_copy_only=False) for each in row)))
    return pa.array(results, RESULT)
