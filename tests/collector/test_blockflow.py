"""Blocks of a real node on their way to rows, also when the node has lost a part of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from collector.batches import Batch
from collector.blockflow import BlockAnswer, BlockFlow
from collector.questions import ask_block
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.wallet import pay
from collector.schema import hash_bytes
from collector.stored import StoredBlocks

pytestmark = pytest.mark.bitcoind


@pytest.fixture(scope="module")
def node() -> Iterator[RegtestNode]:
    """Start a node of our own."""
    with RegtestNode(find_bitcoind()) as started:
        yield started


def rows_of(block_hash: bytes, answer: BlockAnswer) -> dict[str, list[dict[str, Any]]]:
    """Fetch a block with this answer."""
    stored = StoredBlocks((), answer.verbose["height"])
    blocks = BlockFlow(("alpha", "s"), "regtest", stored, lambda *_: None, lambda: None)
    batch = Batch(0)
    blocks.want(block_hash)
    assert blocks.answered(block_hash, answer, 1, 1, batch)
    assert len(blocks) == 0
    return batch.rows


def test_a_block_without_undo_data_is_stored_without_fees(node: RegtestNode) -> None:
    """Whether the node refuses the spent outputs or leaves them out, all else of the block is there."""
    rpc = node.client()
    payment = pay([make_wallet(node, 1, seed=1).take()], [], feerate_sat_vb=5)
    rpc.call("sendrawtransaction", payment.transaction.raw.hex())
    name = rpc.call("generatetodescriptor", 1, "raw(51)")[0]
    block_hash = hash_bytes(name)
    whole = ask_block(rpc, block_hash, raw=True)
    assert rows_of(block_hash, whole)["transactions"][1]["fee_sat"] == payment.fee_sat
    for undo in node.datadir.rglob("rev*.dat"):
        undo.unlink()
    refused = ask_block(rpc, block_hash, raw=True)
    for spent in whole.verbose["tx"][1]["vin"]:
        del spent["prevout"]
    for answer in (refused, whole):
        rows = rows_of(block_hash, answer)
        assert (rows["blocks"][0]["verdict"], rows["blocks"][0]["fees_sat"]) == ("valid", None)
        assert rows["transactions"][1]["txid"] == payment.transaction.txid
        assert rows["transactions"][1]["fee_sat"] is None
