"""Defines a checked statement of a paper, and writes the figures in it as text."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO, get_args

import duckdb
import numpy as np

from analysis.row_output import inert
from analysis.stats.growth import GrowthFit
from analysis.stats.intervals import wilson_intervals
from analysis.stats.sql_functions import Numbers

Verdict = Literal["replicated", "differs", "cannot be replicated"]

COLUMNS: Final = ("statement", "paper", "ours", "verdict", "reason")
SIGNIFICANCE: Final = 0.05
MOST_WIDTH: Final = 100


@dataclass(frozen=True, kw_only=True)
class CheckedStatement:
    """Holds a statement of a paper, its figure, our figure from the authors' data, and a verdict.

    The verdict is a word such as `replicated`. `reason` says why the two figures may differ.
    """

    statement: str
    paper: str
    ours: str
    verdict: Verdict
    reason: str

    @property
    def row(self) -> tuple[str, ...]:
        """Return the fields of the statement as a tuple of texts, in the order of COLUMNS."""
        return tuple(getattr(self, column) for column in COLUMNS)


def write_statements(found: Sequence[CheckedStatement], out: TextIO, width: int) -> None:
    """Write each checked statement to `out` as a paragraph, then how many statements had each verdict.

    A line has at most `width` characters, and never more than 100, because longer ones are hard to read.
    """
    names = {"paper": "the paper", "ours": "the data", "reason": "why"}
    indent = max(map(len, names.values())) + 4
    for checked in found:
        out.write(_wrapped(f"{checked.verdict.upper()}: {checked.statement}", width, "", "  "))
        for column, name in names.items():
            first = f"  {name}".ljust(indent)
            out.write(_wrapped(getattr(checked, column), width, first, " " * indent))
        out.write("\n")
    counts = Counter(checked.verdict for checked in found)
    verdicts = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in get_args(Verdict))
    out.write(_wrapped(f"{len(found)} statements; {verdicts}", width, "", "  "))


def _wrapped(text: str, width: int, first: str, rest: str) -> str:
    """Return a text broken into lines of at most `width` characters, and at most MOST_WIDTH.

    The first line begins with `first`, the others with `rest`. Each ends with a newline. Control characters
    are made harmless.
    """
    lines = textwrap.wrap(
        inert(text),
        min(width, MOST_WIDTH),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def one_row(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Any, ...]:
    """Run a SQL query and return its first row; an empty tuple if there is no row."""
    row = connection.execute(query, list(parameters)).fetchone()
    return row or ()


def series(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Numbers, ...]:
    """Run a SQL query of days and values; return its columns as arrays, days as numbers since 1970-01-01."""
    rows = connection.execute(query, list(parameters)).fetchall()
    days = np.array([np.datetime64(day).astype(int) for day, *_ in rows], dtype=float)
    n_values = len(connection.description or ()) - 1
    return days, *(np.array([row[place + 1] for row in rows], dtype=float) for place in range(n_values))


def percent(ratio: float, digits: int = 2) -> str:
    """Return a ratio as text in percent with `digits` decimals: 0.5 becomes `50.00 %`."""
    return f"{100 * ratio:.{digits}f} %"


def change(log_change: float, digits: int = 0) -> str:
    """Return a difference of natural logarithms as text in percent with its sign, such as `+25 %`."""
    return f"{100 * (np.exp(log_change) - 1):+.{digits}f} %"


def interval(successes: int, trials: int) -> str:
    """Return a text with the 95 % Wilson interval of the share `successes` / `trials`, in percent."""
    low, high = wilson_intervals(np.array([float(successes)]), np.array([float(trials)]))
    return f"95 % interval {percent(low[0])} to {percent(high[0])}"


def rate_per_day(fit: GrowthFit) -> str:
    """Return a text with the growth rate per day of a fit and its 95 % interval."""
    low, high = fit.lambda_low_per_day, fit.lambda_high_per_day
    return f"{fit.lambda_per_day:.5f} per day (95 % interval {low:.5f} to {high:.5f})"
