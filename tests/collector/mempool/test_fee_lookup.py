"""Rows of entries, from the desk that asks for their fees to the batches that wait for them."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import BlockTracker
from collector.clock import monotonic_us
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.mempool.contents import MempoolContents
from collector.mempool.entries import GIVE_UP_BLOCK_US, PendingEntry
from collector.mempool.fee_lookup import MOST_ASKED, MOST_NEW, PATIENCE_US, FeeLookup
from collector.node.request_threads import RequestThread
from collector.node.rpc import RpcClient
from tests.collector.blocks.noted_requests import NotedRequests

ORIGIN = ("alpha", "s")
TXID = b"\x11" * 32
BLOCK = b"\x22" * 32


class Desk:
    """A fee desk beside blocks that note what they are asked."""

    def __init__(self, folder: Path) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.lane = RequestThread(
            "test", RpcClient("http://127.0.0.1:1", cookie_file=folder / "none"), self.inbox
        )
        self.journal = Journal(folder / "journal")
        self.batches = Batches(self.journal)
        recent = RecentBlocks()
        self.fees = FeeLookup(
            ORIGIN,
            MempoolContents(),
            recent,
            requests=self.lane,
            batches=self.batches,
            n_per_request=10,
            interval_s=0.0,
        )
        self.requests = NotedRequests()
        self.blocks = BlockTracker(
            ORIGIN, "regtest", stored=StoredBlocks((), None), recent=recent, requests=self.requests
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Make a desk whose node is never asked."""
    made = Desk(tmp_path)
    yield made
    made.lane.stop()
    made.journal.close()


def test_a_block_that_is_known_no_longer_is_asked_for_again(desk: Desk) -> None:
    """An entry that waits for a block's fees does not wait for ever: the block is wanted, once."""
    owner = desk.batches.current
    desk.fees.add_from_block(PendingEntry(TXID, "in_block", 1, None, None, None), owner, BLOCK)
    for _ in range(3):
        desk.fees.tick(monotonic_us(), desk.blocks)
    assert desk.requests.asked == [BLOCK]
    assert desk.batches.waiting_s > 0
    desk.fees.block_resolved(BLOCK, RecentBlock(1, bytes(32), 0, {TXID: 77}, {}))
    assert [row["fee_sat"] for row in owner.rows["mempool_txs"]] == [77]
    assert (owner.n_pending_rows, desk.batches.waiting_s) == (0, 0.0)


def test_a_block_that_never_comes_holds_no_batch_for_ever(desk: Desk) -> None:
    """After a time the row is given out without a fee."""
    owner = desk.batches.current
    desk.fees.add_from_block(PendingEntry(TXID, "in_block", 1, None, None, None), owner, BLOCK)
    now_us = monotonic_us()
    desk.fees.tick(now_us + GIVE_UP_BLOCK_US // 2, desk.blocks)
    assert owner.n_pending_rows == 1
    desk.fees.tick(now_us + 2 * GIVE_UP_BLOCK_US, desk.blocks)
    assert owner.n_pending_rows == 0
    assert "fee_sat" not in owner.rows["mempool_txs"][0]


def test_a_desk_is_behind_while_more_wait_than_are_asked_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above a number of new entries, and no longer than an answer may take: a node that hangs holds none."""
    for number in range(MOST_NEW + 21):
        entry = PendingEntry(number.to_bytes(32, "little"), "pushed", 1, None, None, None)
        desk.fees.add(entry, desk.batches.current)
    assert not desk.fees.is_behind  # nothing was asked yet
    desk.fees.tick(monotonic_us(), desk.blocks)  # asks for 20
    assert desk.fees.is_behind
    later_us = monotonic_us() + PATIENCE_US
    monkeypatch.setattr("collector.mempool.fee_lookup.monotonic_us", lambda: later_us)
    assert not desk.fees.is_behind


def test_two_questions_at_most_are_on_their_way(desk: Desk) -> None:
    """While the node answers one the next is there; the rest waits, and is asked for in full batches."""
    for number in range(25):
        entry = PendingEntry(number.to_bytes(32, "little"), "pushed", 1, None, None, None)
        desk.fees.add(entry, desk.batches.current)
    for _ in range(3):
        desk.fees.tick(monotonic_us(), desk.blocks)
    assert desk.lane.n_open == MOST_ASKED
    assert len(desk.fees) == 25
    desk.lane.end()
    while desk.lane.n_open:
        desk.inbox.get(timeout=10).deliver()  # nobody answers: the questions go back
    desk.fees.tick(monotonic_us(), desk.blocks)
    assert desk.lane.n_open == MOST_ASKED
