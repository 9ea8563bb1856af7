"""Defines a checked statement of a paper, and writes the figures in it as text."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import duckdb
import numpy as np

from analysis.stats.intervals import wilson_intervals
from analysis.stats.sql_functions import Numbers

Verdict = Literal["replicated", "differs", "cannot be replicated"]

COLUMNS: Final = ("statement", "paper", "ours", "verdict", "reason")
SIGNIFICANCE: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class CheckedStatement:
    """Holds a statement of the paper, its figure, our figure from the authors' data, and a verdict.

    `reason` says why the two figures may differ.
    """

    statement: str
    paper: str
    ours: str
    verdict: Verdict
    reason: str

    @property
    def row(self) -> tuple[str, ...]:
        """Return the values in the order of COLUMNS."""
        return tuple(getattr(self, column) for column in COLUMNS)


def one_row(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Any, ...]:
    """Run a query that gives one row and return it; an empty tuple if there is no row."""
    row = connection.execute(query, list(parameters)).fetchone()
    return row or ()


def series(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Numbers, ...]:
    """Run a query of days and values, and return its columns as arrays; days are counted since 1970-01-01."""
    rows = connection.execute(query, list(parameters)).fetchall()
    days = np.array([np.datetime64(day).astype(int) for day, *_ in rows], dtype=float)
    n_values = len(connection.description or ()) - 1
    return days, *(np.array([row[place + 1] for row in rows], dtype=float) for place in range(n_values))


def percent(ratio: float, digits: int = 2) -> str:
    """Write a ratio as percent with `digits` decimals."""
    return f"{100 * ratio:.{digits}f} %"


def change(log_change: float, digits: int = 0) -> str:
    """Write the change of a natural logarithm as percent with its sign, as in `+25 %`."""
    return f"{100 * (np.exp(log_change) - 1):+.{digits}f} %"


def interval(successes: int, trials: int) -> str:
    """Write the 95 % Wilson interval of the share `successes` / `trials` as text."""
    low, high = wilson_intervals(np.array([float(successes)]), np.array([float(trials)]))
    return f"95 % interval {percent(low[0])} to {percent(high[0])}"
