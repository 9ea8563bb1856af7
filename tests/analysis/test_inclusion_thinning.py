"""Test when inclusion_sample leaves out stays: by powers of two, at exact bounds."""

import pytest

from analysis.catalog import load_catalog
from analysis.database import connect


@pytest.mark.parametrize(
    ("waiting", "sample_every"),
    [([], 1), ([400], 1), ([400, 1], 2), ([400, 400], 2), ([801], 4), ([400 << 20], 1 << 20)],
)
def test_the_least_power_of_two_that_keeps_at_most_max_pairs(waiting: list[int], sample_every: int) -> None:
    """With at most 400 pairs; a block at another node than the first counts nothing."""
    with connect() as connection:
        connection.execute("CREATE TABLE block_mempool (node_no BIGINT, n_mempool BIGINT)")
        for n_mempool in waiting:
            connection.execute("INSERT INTO block_mempool VALUES (1, ?), (2, 10000)", [n_mempool])
        connection.execute("SET VARIABLE max_pairs = 400")

        found = connection.sql(load_catalog().by_name["inclusion_thinning"].sql).fetchall()

    assert found == [(sample_every,)]
