"""Test which transactions inclusion_sample keeps: one in a power of two, the same at every node."""

import pytest

from analysis.catalog import load_catalog
from analysis.database import connect
from analysis.incremental import create_model
from tests.analysis.shared_build import SharedBuild
from tests.analysis.world import label_of


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


def test_a_thin_sample_has_the_same_transactions_at_every_node(shared: SharedBuild) -> None:
    """Of one in four, `1..` is kept and `t..` is not, by the first byte, whichever node is first at a block.

    Each transaction enters at m right after n, so n has every other entry. n is first at a1, m at a2.
    """
    txids = ("1a", "ta", "1b", "tb")
    entries = [
        {"node": node, "txid": txid, "entered_at": 10 * place + late, "fee_sat": 100 + place}
        for place, txid in enumerate(txids, 1)
        for late, node in enumerate("nm")
    ]
    connected = [("n", "a1", 100), ("m", "a1", 101), ("m", "a2", 200), ("n", "a2", 201)]
    world = {
        "nodes": [{"node": node, "started_at": 0} for node in "nm"],
        "coverage": [{"node": node, "from_at": 0, "to_at": 900} for node in "nm"],
        "blocks": [
            {"block_hash": "a1", "height": 1},
            {"block_hash": "a2", "height": 2, "prev_hash": "a1"},
        ],
        "mempool_txs": entries,
        "mempool_events": [
            {"node": node, "event": "C", "hash": block, "received_at": at} for node, block, at in connected
        ],
        "transactions": [
            {"block_hash": block, "txid": txid} for block, txid in (("a1", "ta"), ("a1", "1a"), ("a2", "1b"))
        ],
    }
    with shared.built(world, ["inclusion_sample"]) as connection:
        connection.execute("UPDATE inclusion_thinning SET sample_every = 4")
        connection.execute("DROP TABLE inclusion_sample")
        create_model(connection, load_catalog().by_name["inclusion_sample"])
        found = connection.sql(
            "SELECT sample.node, block_hash, txid, is_taken, n_pairs FROM inclusion_sample AS sample "
            "INNER JOIN mempool_residence USING (stay_no) ORDER BY cut_no, block_hash, txid"
        ).fetchall()

    pairs = [(node, label_of(block), label_of(txid), *rest) for node, block, txid, *rest in found]
    assert pairs == [
        ("n", "a1", "1a", True, 2),
        ("n", "a1", "1b", False, 2),
        ("m", "a2", "1b", True, 1),
    ]
