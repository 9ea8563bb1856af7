"""Measure how much of a block stands in a given order.

As SQL function:

    falling_order(values, low_quantile)    how far a list is in falling order

A chain is a part of the list, in the order of the list, in which each value is below the one before it. Its
length says how many values agree on the order, however the others are mixed in: a pool that puts a fifth of
its block out of order still has a chain of four fifths. Two values that are equal never stand in one chain,
so a block in which all pay the same tells nothing. A list in random order of n different values has a chain
of about 2 sqrt(n), and rarely a longer one.

Sources: C. Schensted, 1961, doi:10.4153/CJM-1961-015-3 (the chain); J. Baik, P. Deift and K. Johansson, 1999,
doi:10.1090/S0894-0347-99-00307-0 (its length by chance).
"""

from bisect import bisect_left
from typing import Final

import numpy as np
import pyarrow as pa

from analysis.stats.sql_functions import Numbers, SqlFunction, numbers_of

ORDER: Final = pa.struct(
    [
        ("n_values", pa.int64()),
        ("n_in_order", pa.int64()),
        ("low_value", pa.float64()),
        ("place_error", pa.float64()),
    ]
)
ORDER_SQL: Final = "STRUCT(n_values BIGINT, n_in_order BIGINT, low_value DOUBLE, place_error DOUBLE)"


def falling_chain(values: Numbers) -> Numbers:
    """Return the longest falling subsequence of `values`; of several, the one whose values are highest.

    It keeps, for each length, the highest value in which a subsequence of this length can end (patience
    sorting), and goes back from the end of the longest. The values must be finite.
    """
    ends: list[float] = []  # negated, so that they rise
    end_places: list[int] = []
    before: list[int] = []
    for place, negated in enumerate((-values).tolist()):
        length = bisect_left(ends, negated)
        before.append(end_places[length - 1] if length else -1)
        if length == len(ends):
            ends.append(negated)
            end_places.append(place)
        else:
            ends[length] = negated
            end_places[length] = place
    places: list[int] = []
    place = end_places[-1] if end_places else -1
    while place >= 0:
        places.append(place)
        place = before[place]
    return values[places[::-1]]


def place_error(values: Numbers) -> float:
    """Return the mean distance of each value from its place in falling order, divided by the list's length.

    Equal values share the mean of their places. It is 0 for a sorted list, 1/3 for one in random order, 1/2
    for a reversed one. This is the position prediction error of arXiv:2110.11740.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only a build needs it

    places = np.arange(1, len(values) + 1)
    return float(np.abs(stats.rankdata(-values) - places).mean() / len(values))


def _falling_order_column(lists: pa.ChunkedArray, low_quantile: pa.ChunkedArray) -> pa.Array:
    """Return a struct per list on how much of it stands in falling order.

    It has the number of distinct values, the length of the longest falling chain, a low quantile of the
    values in that chain (`low_quantile`, given per row), and the place error. An empty list gives 0, 0 and
    nulls.
    """
    rows: list[tuple[int, int, float | None, float | None]] = []
    for cell, quantile in zip(lists, low_quantile, strict=True):
        values = numbers_of(cell)
        if len(values):
            chain = falling_chain(values)
            low = float(np.quantile(chain, quantile.as_py()))
            rows.append((len(np.unique(values)), len(chain), low, place_error(values)))
        else:
            rows.append((0, 0, None, None))
    return pa.array([dict(zip(ORDER.names, row, strict=True)) for row in rows], ORDER)


FUNCTIONS: Final = (SqlFunction("falling_order", _falling_order_column, ["DOUBLE[]", "DOUBLE"], ORDER_SQL),)
