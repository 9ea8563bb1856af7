"""A statement of a paper with our figure beside it, and how figures are written."""

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
    """One statement of the paper, its figure, ours on the authors' data, and why the two may differ."""

    statement: str
    paper: str
    ours: str
    verdict: Verdict
    reason: str

    @property
    def row(self) -> tuple[str, ...]:
        """Values in the order of COLUMNS."""
        return tuple(getattr(self, column) for column in COLUMNS)


def one_row(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Any, ...]:
    """Give the only row of a query."""
    row = connection.execute(query, list(parameters)).fetchone()
    return row or ()


def series(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Numbers, ...]:
    """Give the columns of a query: days since 1970-01-01, then values."""
    rows = connection.execute(query, list(parameters)).fetchall()
    days = np.array([np.datetime64(day).astype(int) for day, *_ in rows], dtype=float)
    n_values = len(connection.description or ()) - 1
    return days, *(np.array([row[place + 1] for row in rows], dtype=float) for place in range(n_values))


def percent(ratio: float, digits: int = 2) -> str:
    """Write a ratio as per cent."""
    return f"{100 * ratio:.{digits}f} %"


def change(log_change: float, digits: int = 0) -> str:
    """Write the change of a logarithm as per cent, with its sign."""
    return f"{100 * (np.exp(log_change) - 1):+.{digits}f} %"


def interval(successes: int, trials: int) -> str:
    """Write Wilson's interval of a share as text."""
    low, high = wilson_intervals(np.array([float(successes)]), np.array([float(trials)]))
    return f"95 % interval {percent(low[0])} to {percent(high[0])}"
