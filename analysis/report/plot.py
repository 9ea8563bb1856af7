"""Describes a chart over time or numbers as data, so that a page can draw it anew while its reader zooms.

The drawing of the report is still; the pages of `pool-analysis serve` hold these numbers beside it, and their
script draws them.
"""

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

Unit = Literal["time", "number", "usd", "hashrate", "duration", "percent"]
Form = Literal["line", "step", "points", "rings", "area"]
_DIGITS: Final = 10  # enough for a second since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Holds one series of a chart: its points in order of x, each as (x, y, lower end, upper end).

    A y of None is a gap. The ends are those of a 95 % interval; an `area` is filled between them. `dashes`
    are the lengths of dashes and gaps in pixels, empty for a solid line.
    """

    label: str
    colour: str
    form: Form
    points: Sequence[tuple[float, float | None, float | None, float | None]]
    dashes: Sequence[int] = ()
    is_hatched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Describes a marked moment, or with `to_x` a span: its label, and what it was in `words`."""

    x: float
    label: str
    words: str
    to_x: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Holds the numbers of one chart. A time is in seconds since 1970.

    `label` is read to those who cannot see the drawing. `words` are (from x, to x, text): the text says the
    values at an x between the two. `frames` are (from x, to x) of periods that the data only have a part of.
    Without a `y_domain` the axis fits the values that are shown, and begins at zero unless it is logarithmic.
    """

    label: str
    x_unit: Unit
    y_unit: Unit
    series: Sequence[Series]
    words: Sequence[tuple[float, float, str]]
    x_title: str = ""
    y_title: str = ""
    is_x_log: bool = False
    is_y_log: bool = False
    y_domain: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()
    frames: Sequence[tuple[float, float]] = ()

    def as_json(self) -> str:
        """Return the plot as JSON text, with numbers of ten digits."""
        return json.dumps(_rounded(asdict(self)), separators=(",", ":"), allow_nan=False)


def number(x: float | dt.date) -> float:
    """Return an x of a chart as a number: a day or a time as seconds since 1970, a number unchanged."""
    if isinstance(x, dt.datetime):
        return x.timestamp()
    if isinstance(x, dt.date):
        return dt.datetime(x.year, x.month, x.day, tzinfo=dt.UTC).timestamp()
    return float(x)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.{_DIGITS}g}")
    return value
