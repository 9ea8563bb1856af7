"""Test which block intervals the curves of waiting put together in a batch."""

from collections.abc import Sequence
from typing import Any

from analysis.catalog import load_catalog
from analysis.database import connect
from analysis.incremental import set_parameters

N_WAITS = 45  # more than there are batches


def curves(wait_nos: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return confirmation_curves of one cell per block interval; later ones in the list waited longer."""
    model = load_catalog().by_name["confirmation_curves"]
    cells = [(1, wait_no, "mined", float(1 + number**2), 3) for number, wait_no in enumerate(wait_nos)]
    with connect() as connection:
        connection.execute(
            "CREATE TABLE confirmation_cells"
            " (decile BIGINT, wait_no BIGINT, outcome VARCHAR, delay_s DOUBLE, n_spells BIGINT)"
        )
        connection.executemany("INSERT INTO confirmation_cells VALUES (?, ?, ?, ?, ?)", cells)
        set_parameters(connection, model)
        return connection.execute(model.sql).fetchall()


def test_spells_behind_the_last_block_are_in_the_last_batch() -> None:
    """What entered behind a node's last block (0) is the newest interval, and not the oldest."""
    before = list(range(1, N_WAITS))

    assert curves([*before, 0]) == curves([*before, N_WAITS])
    assert curves([*before, 0]) != curves([*before, -1])
