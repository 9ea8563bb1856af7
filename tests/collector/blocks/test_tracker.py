"""Test that BlockTracker makes rows of a real node's blocks, also when the node has lost a part of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from collector.blocks.fetcher import ask_block
from collector.blocks.recent import KEEP_PARSED_US, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import AnswerUse, BlockAnswer, BlockTracker
from collector.clock import monotonic_us
from collector.dataset.schema import hash_bytes
from collector.journal.batches import Batch
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.wallet import pay
from tests.collector.blocks.noted_requests import NotedRequests

pytestmark = pytest.mark.bitcoind


@pytest.fixture(scope="module")
def node() -> Iterator[RegtestNode]:
    """Start a regtest node."""
    with RegtestNode(find_bitcoind()) as started:
        yield started


def columns_of(batch: Batch) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that were added to a batch as Arrow batches, by table."""
    return {table: rows.to_pylist() for table, rows in batch.arrow_batches}


def tracker(stored: StoredBlocks, requests: NotedRequests) -> BlockTracker:
    """Return a tracker of a made-up session."""
    return BlockTracker(("alpha", "s"), "regtest", stored=stored, recent=RecentBlocks(), requests=requests)


def rows_of(block_hash: bytes, answer: BlockAnswer) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that a tracker makes of an answer about a block."""
    stored = StoredBlocks((), answer.height)
    blocks = tracker(stored, NotedRequests())
    batch = Batch()
    blocks.want(block_hash)
    assert blocks.take_answer(block_hash, answer, 1, 1, batch) is AnswerUse.RESOLVED
    assert len(blocks) == 0
    return columns_of(batch)


def test_a_block_without_undo_data_is_stored_without_fees(node: RegtestNode) -> None:
    """When the node refuses the spent outputs or leaves them out, the rest of the block is stored."""
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
    for answer in (refused, whole._replace(amounts=None)):
        rows = rows_of(block_hash, answer)
        assert (rows["blocks"][0]["verdict"], rows["blocks"][0]["fees_sat"]) == ("valid", None)
        assert rows["transactions"][1]["txid"] == payment.transaction.txid
        assert rows["transactions"][1]["fee_sat"] is None


def test_transactions_that_are_stored_are_not_stored_again(node: RegtestNode) -> None:
    """Where a file of `blocks` was lost, the row of the block alone comes back, if all of them are there."""
    name = node.client().call("generatetodescriptor", 1, "raw(51)")[0]
    block_hash = hash_bytes(name)
    answer = ask_block(node.client(), block_hash, raw=True)
    for n_stored, tables in ((1, {"blocks"}), (2, {"blocks", "transactions"})):
        stored = StoredBlocks((), answer.height, orphaned={block_hash: n_stored})
        blocks, batch = tracker(stored, NotedRequests()), Batch()
        blocks.want(block_hash)
        assert blocks.take_answer(block_hash, answer, 1, 1, batch) is AnswerUse.RESOLVED
        assert {"blocks", "transactions"} & columns_of(batch).keys() == tables


def tracker_above(height: int) -> tuple[BlockTracker, list[bytes], Batch]:
    """Return a tracker whose dataset begins above a height, the blocks that it asks for, and a batch."""
    requests = NotedRequests()
    return tracker(StoredBlocks((), height + 1), requests), requests.asked, Batch()


def test_a_received_body_that_the_node_forgot_is_stored(node: RegtestNode) -> None:
    """A published block that the node lost in a kill is stored, with the height in its coinbase (BIP 34)."""
    rpc = node.client()
    name = rpc.call("generatetodescriptor", 1, "raw(51)")[0]
    height = rpc.call("getblockcount")
    blocks, asked, batch = tracker_above(height - 1)
    block = blocks.take_raw(bytes.fromhex(rpc.call("getblock", name, 0)))
    blocks.add_event(block.block_hash, "seen", 1, "pushed", batch)
    assert asked == [hash_bytes(name)]
    blocks.give_up(block.block_hash)
    blocks.take_if_behind(is_behind=False)
    (row,) = columns_of(batch)["blocks"]
    assert (row["block_hash"], row["height"], row["height_source"]) == (hash_bytes(name), height, "bip34")
    assert (row["verdict"], row["source"]) == ("valid", "zmq")
    assert [arrival["height"] for arrival in batch.rows["block_arrivals"]] == [height]
    assert (batch.n_pending_rows, len(blocks)) == (0, 0)


def test_bodies_of_blocks_are_kept_for_minutes_unless_their_rows_wait(node: RegtestNode) -> None:
    """Small blocks do not pile up in memory for hours; the only body of one without rows stays."""
    rpc = node.client()
    names = rpc.call("generatetodescriptor", 2, "raw(51)")
    blocks, asked, batch = tracker_above(rpc.call("getblockcount"))
    described, open_ = [
        blocks.take_raw(bytes.fromhex(rpc.call("getblock", name, 0))).block_hash for name in names
    ]
    for block_hash in (described, open_):
        blocks.add_event(block_hash, "seen", 1, "pushed", batch)
    assert asked == [described, open_]
    blocks.take_answer(described, ask_block(rpc, described, raw=False), 1, 1, batch)
    now_us = monotonic_us()
    blocks.tick(now_us)
    assert None not in (blocks.block(described), blocks.block(open_))
    blocks.tick(now_us + KEEP_PARSED_US + 1)
    assert blocks.block(described) is None
    assert blocks.block(open_) is not None
    blocks.take_answer(open_, ask_block(rpc, open_, raw=False), 1, 1, batch)
    blocks.tick(now_us + KEEP_PARSED_US + 1)
    assert blocks.block(open_) is None
    stored = [rows.to_pylist()[0]["block_hash"] for table, rows in batch.arrow_batches if table == "blocks"]
    assert stored == [described, open_]


def test_the_tip_at_the_start_is_stored_when_it_was_also_seen_to_come(node: RegtestNode) -> None:
    """A tip below the wanted heights is stored when messages announce it, in the batch of these messages."""
    rpc = node.client()
    name = rpc.call("generatetodescriptor", 1, "raw(51)")[0]
    answer = ask_block(rpc, hash_bytes(name), raw=True)
    blocks, asked, batch = tracker_above(answer.height)
    blocks.add_event(hash_bytes(name), "connected", 1, "at_start", batch)
    blocks.take_answer(hash_bytes(name), answer, 2, 2, batch)
    assert not batch.arrow_batches
    blocks.add_event(hash_bytes(name), "connected", 1, "pushed", batch)
    assert asked == [hash_bytes(name)] * 2
    blocks.take_if_behind(is_behind=False)
    assert batch.n_pending_rows == 1
    blocks.take_answer(hash_bytes(name), answer, 3, 3, batch)
    assert [row["block_hash"] for row in columns_of(batch)["blocks"]] == [hash_bytes(name)]
    assert (batch.n_pending_rows, len(blocks)) == (0, 0)


def test_what_a_session_was_still_fetching_is_left_to_the_next(node: RegtestNode) -> None:
    """When a session ends while it fetches blocks below the tip, the next session goes on from there."""
    rpc = node.client()
    first = rpc.call("getblockcount") + 1
    names = rpc.call("generatetodescriptor", 4, "raw(51)")
    requests = NotedRequests()
    asked = requests.asked
    stored = StoredBlocks((), first)

    def answer_last(blocks: BlockTracker) -> None:
        blocks.take_answer(asked[-1], ask_block(rpc, asked[-1], raw=True), 1, 1, Batch())
        blocks.tick(1, at_once=True)

    interrupted = tracker(stored, requests)
    interrupted.add_event(hash_bytes(names[-1]), "connected", 1, "at_start", Batch())
    answer_last(interrupted)
    assert asked == [hash_bytes(name) for name in (names[3], names[2])]
    interrupted.flush()
    assert set(stored.missing) == {hash_bytes(names[2])}
    following = tracker(stored, requests)
    following.fetch_missing(stored.missing, 1)
    following.tick(1, at_once=True)
    for _ in range(3):
        answer_last(following)
    assert not stored.missing
    assert len(following) == 0
    assert all(hash_bytes(name) in stored for name in names)
