"""Test which block intervals the curves and deciles of waiting put together in a batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from analysis.catalog import load_catalog
from analysis.database import connect
from analysis.incremental import set_parameters

N_WAITS = 45  # more than there are batches


def curves(wait_nos: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return confirmation_curves of one cell per block interval; later ones in the list waited longer."""
    catalog = load_catalog()
    model = catalog.by_name["confirmation_curves"]
    cells = [(1, wait_no, "mined", float(1 + number**2), 3) for number, wait_no in enumerate(wait_nos)]
    with connect() as connection:
        connection.execute(
            "CREATE TABLE confirmation_cells"
            " (decile BIGINT, wait_no BIGINT, outcome VARCHAR, delay_s DOUBLE, n_spells BIGINT)"
        )
        connection.executemany("INSERT INTO confirmation_cells VALUES (?, ?, ?, ?, ?)", cells)
        connection.execute(catalog.macros)
        set_parameters(connection, model)
        return connection.execute(model.sql).fetchall()


def test_spells_behind_the_last_block_are_in_the_last_batch() -> None:
    """What entered behind a node's last block (0) is the newest interval, and not the oldest."""
    before = list(range(1, N_WAITS))

    assert curves([*before, 0]) == curves([*before, N_WAITS])
    assert curves([*before, 0]) != curves([*before, -1])


def accepted(mined: Sequence[int]) -> tuple[float, float]:
    """Return the interval of accepted_ratio where so many of 100 were mined in each block interval."""
    catalog = load_catalog()
    model = catalog.by_name["confirmation_decile"]
    cells = [
        (1, wait_no, outcome, number)
        for wait_no, n_mined in enumerate(mined, 1)
        for outcome, number in (("mined", n_mined), ("expired", 100 - n_mined))
    ]
    with connect() as connection:
        connection.execute(
            "CREATE TABLE confirmation_cells"
            " (decile BIGINT, wait_no BIGINT, outcome VARCHAR, n_spells BIGINT)"
        )
        connection.executemany("INSERT INTO confirmation_cells VALUES (?, ?, ?, ?)", cells)
        connection.execute(
            "CREATE TABLE confirmation_feerates AS"
            " SELECT 1 AS decile, 1.0 AS low_sat_vb, 1.0 AS median_sat_vb, 1.0 AS high_sat_vb"
        )
        connection.execute(
            "CREATE TABLE confirmation_curves AS SELECT 1 AS decile, {half_mined_s: 1.0} AS curves"
        )
        connection.execute(catalog.macros)
        set_parameters(connection, model)
        (low, high) = connection.execute(
            f"SELECT accepted_low_ratio, accepted_high_ratio FROM ({model.sql})"  # noqa: S608 - our own SQL
        ).fetchall()[0]
    return low, high


def test_neighbouring_intervals_that_are_alike_do_not_narrow_the_interval() -> None:
    """Sixty intervals in pairs that are alike tell as much as thirty: batches of two have the same bounds."""
    draw = np.random.default_rng(1).integers(60, 100, 30).tolist()

    assert accepted(np.repeat(draw, 2).tolist()) == pytest.approx(accepted(draw))
