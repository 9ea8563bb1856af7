"""Test the fit of an order: the longest falling chain, and the error of places."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.database import connect
from analysis.stats.block_order import falling_chain, place_error

LISTS = st.lists(st.integers(0, 9).map(float), max_size=9)


def longest(values: list[float]) -> list[float]:
    """Try every part of a list; return the longest that falls, the one with the highest end of several."""
    parts = (part for n in range(len(values) + 1) for part in itertools.combinations(values, n))
    falling = [part for part in parts if all(a > b for a, b in itertools.pairwise(part))]
    return list(max(falling, key=lambda part: (len(part), part[-1] if part else 0)))


@given(LISTS)
def test_the_chain_is_the_longest_of_all_parts(values: list[float]) -> None:
    """The chain falls, is a part of the list in its order, and none is longer or ends higher."""
    chain = falling_chain(np.array(values)).tolist()

    best = longest(values)
    assert (len(chain), chain[-1:]) == (len(best), best[-1:])
    assert all(a > b for a, b in itertools.pairwise(chain))
    rest = iter(values)
    assert all(value in rest for value in chain)


def test_what_stands_out_of_order_shortens_the_chain_by_itself_alone() -> None:
    """Three cheap ones before twenty in order leave a chain of twenty."""
    values = np.array([1, 3, 2, *range(40, 20, -1)], dtype=float)

    assert falling_chain(values).tolist() == list(range(40, 20, -1))


@pytest.mark.parametrize(
    ("values", "error"), [((5, 3, 1), 0), ((1, 3, 5), 4 / 9), ((7, 7), 0.25), ((2, 2, 9), 4 / 9)]
)
def test_place_errors(values: tuple[float, ...], error: float) -> None:
    """Equal values share the mean of their places."""
    assert place_error(np.array(values, dtype=float)) == pytest.approx(error)


def test_in_sql_a_list_without_values_has_no_order() -> None:
    """Nulls in a list are left out; an empty or absent list gives counts of 0 and nulls."""
    query = (
        "SELECT unnest(falling_order(list, 0.5)) FROM (VALUES ([9.0, NULL, 8, 8]), ([]), (NULL)) AS t (list)"
    )
    with connect() as connection:
        rows = connection.execute(query).fetchall()

    assert rows == [(2, 2, 8.5, pytest.approx(1 / 9)), (0, 0, None, None), (0, 0, None, None)]
