"""Intervals of counts and the exact test give published numbers, and nothing where nothing is defined."""

import numpy as np
import pytest

from analysis import rates
from analysis.engine import connect


def test_poisson_interval_of_published_examples() -> None:
    """Garwood, 1936, table: 10 events give 4.80 to 18.39, none gives 0 to 3.69."""
    low, high = rates.poisson_intervals(np.array([10.0, 0.0]))

    assert list(zip(low.round(2), high.round(2), strict=True)) == [(4.80, 18.39), (0.0, 3.69)]


def test_fisher_test_of_the_lady_tasting_tea() -> None:
    """Fisher, 1935: 3 of 4 cups right gives p = 34 / 70; the interval is that of R's fisher.test."""
    result = rates.fisher_test(3, 1, 1, 3)

    assert result is not None
    assert result.p_value == pytest.approx(34 / 70)
    assert result[:2] == pytest.approx((6.408309, 0.2117329), rel=1e-4)
    assert result.odds_high == pytest.approx(621.93, rel=0.01)  # R stops its search early


def test_functions_in_sql_are_null_where_there_is_nothing_to_say() -> None:
    """A missing count, an empty margin and an unbounded odds ratio are null."""
    with connect() as connection:
        rows = connection.execute(
            "SELECT poisson_interval(k).low, poisson_interval(k).high, fisher_test(k, 3, 0, 3).p_value,"
            " fisher_test(2, 0, 0, 2).odds_high FROM (VALUES (NULL), (0)) AS t(k)"
        ).fetchall()

    assert rows[0] == (None, None, None, None)
    assert rows[1] == (0, pytest.approx(3.6889, abs=1e-4), None, None)
