"""Test FeeLookup: it requests fees, and puts complete rows of `mempool_txs` into the batches that wait."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import BlockTracker
from collector.clock import monotonic_us
from collector.codec.block import parse_block
from collector.codec.transaction import FEW, decode_transaction
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.mempool.bodies import KeptBodies, WaitingBodies
from collector.mempool.entries import GIVE_UP_BLOCK_US, GIVE_UP_US, PendingEntry
from collector.mempool.fee_lookup import MOST_ASKED, MOST_NEW, PATIENCE_US, FeeLookup
from collector.mempool.sync import MempoolContents, TxLeft
from collector.node.request_threads import RequestThread
from collector.node.rpc import RpcClient
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput
from tests.collector.blocks.noted_requests import NotedRequests
from tests.collector.codec.made_blocks import solved_block
from tests.collector.codec.plain_traits import with_plain_traits
from tests.collector.service.planted import MEMPOOL_ENTRY, NOT_FOUND, PlantedNode

ORIGIN = ("alpha", "s")
TXID = b"\x11" * 32
BLOCK = b"\x22" * 32
ENVELOPE = bytes.fromhex("0063036f726468")  # OP_0 OP_IF "ord" OP_ENDIF
CONTROL_BLOCK = b"\xc0" + bytes(32)


class Rig:
    """Holds a FeeLookup with its batches, a request thread and a BlockTracker whose requests are recorded."""

    def __init__(self, folder: Path, client: RpcClient | None = None) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client = client or RpcClient("http://127.0.0.1:1", cookie_file=folder / "none")
        self.thread = RequestThread("test", client, self.inbox)
        self.journal = Journal(folder / "journal")
        self.batches = Batches(self.journal)
        recent = RecentBlocks()
        self.fees = FeeLookup(
            ORIGIN,
            MempoolContents(),
            recent,
            requests=self.thread,
            batches=self.batches,
            bodies=KeptBodies(ORIGIN, "none", WaitingBodies(folder), self.batches),
            n_per_request=10,
            interval_s=0.0,
        )
        self.requests = NotedRequests()
        self.blocks = BlockTracker(
            ORIGIN, "regtest", stored=StoredBlocks((), None), recent=recent, requests=self.requests
        )


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Make a FeeLookup whose node cannot be reached."""
    made = Rig(tmp_path)
    yield made
    made.thread.stop()
    made.journal.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlantedNode]:
    """Start a node that answers `uptime`; what else it does not answer is given up at the first failure."""
    monkeypatch.setattr("collector.mempool.fee_lookup.UNANSWERED_S", 0.0)
    planted = PlantedNode()
    planted.results = {"uptime": 1}
    yield planted
    planted.close()


@pytest.fixture
def asking_rig(tmp_path: Path, node: PlantedNode) -> Iterator[Rig]:
    """Make a FeeLookup that asks this node."""
    made = Rig(tmp_path, node.client())
    yield made
    made.thread.stop()
    made.journal.close()


def test_a_block_that_was_dropped_is_requested_again(rig: Rig) -> None:
    """When a row needs the fees of a block that is no longer a recent one, the block is requested once."""
    owner = rig.batches.current
    rig.fees.add_from_block(PendingEntry(TXID, "in_block", 1, None, None, None), owner, BLOCK)
    for _ in range(3):
        rig.fees.tick(monotonic_us(), rig.blocks)
    assert rig.requests.asked == [BLOCK]
    assert rig.batches.waiting_s > 0
    rig.fees.block_resolved(BLOCK, RecentBlock(1, bytes(32), 0, {TXID: 77}, {}))
    assert [row["fee_sat"] for row in owner.rows["mempool_txs"]] == [77]
    assert (owner.n_pending_rows, rig.batches.waiting_s) == (0, 0.0)


def test_a_batch_does_not_wait_for_ever_for_a_block(rig: Rig) -> None:
    """A row that waits for a block is completed without a fee after a time limit."""
    owner = rig.batches.current
    rig.fees.add_from_block(PendingEntry(TXID, "in_block", 1, None, None, None), owner, BLOCK)
    now_us = monotonic_us()
    rig.fees.tick(now_us + GIVE_UP_BLOCK_US // 2, rig.blocks)
    assert owner.n_pending_rows == 1
    rig.fees.tick(now_us + 2 * GIVE_UP_BLOCK_US, rig.blocks)
    assert owner.n_pending_rows == 0
    assert "fee_sat" not in owner.rows["mempool_txs"][0]


def test_a_lookup_is_behind_while_many_transactions_are_not_requested(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is behind above a number of unrequested transactions, but not while the node is slow to answer."""
    for number in range(MOST_NEW + 21):
        entry = PendingEntry(number.to_bytes(32, "little"), "pushed", 1, None, None, None)
        rig.fees.add(entry, rig.batches.current)
    assert not rig.fees.is_behind  # nothing was requested yet
    rig.fees.tick(monotonic_us(), rig.blocks)  # requests 20
    assert rig.fees.is_behind
    later_us = monotonic_us() + PATIENCE_US
    monkeypatch.setattr("collector.mempool.fee_lookup.monotonic_us", lambda: later_us)
    assert not rig.fees.is_behind


def test_at_most_two_requests_are_open(rig: Rig) -> None:
    """With two requests open, other transactions wait; a request that a stop cuts off is put back."""
    for number in range(25):
        entry = PendingEntry(number.to_bytes(32, "little"), "pushed", 1, None, None, None)
        rig.fees.add(entry, rig.batches.current)
    for _ in range(3):
        rig.fees.tick(monotonic_us(), rig.blocks)
    assert rig.thread.n_open == MOST_ASKED
    assert len(rig.fees) == 25
    rig.thread.end()
    while rig.thread.n_open:
        rig.inbox.get(timeout=10).deliver()  # nobody answers: the requests are put back
    rig.fees.tick(monotonic_us(), rig.blocks)
    assert rig.thread.n_open == MOST_ASKED


def test_a_request_that_the_node_never_answers_is_given_up(asking_rig: Rig, node: PlantedNode) -> None:
    """One transaction for which the node fails costs its own fee, and no other row waits for it."""
    rig = asking_rig
    txids = [bytes([number]) * 32 for number in range(1, 8)]
    node.results |= {f"getmempoolentry {txid.hex()}": MEMPOOL_ENTRY for txid in txids[:-1]}
    node.results["getrawtransaction"] = "00"
    for txid in txids:
        rig.fees.add(PendingEntry(txid, "pushed", 1, None, None, None), rig.batches.current)
    rig.fees.tick(monotonic_us(), rig.blocks)
    while rig.thread.n_open:
        rig.inbox.get(timeout=10).deliver()
    rig.fees.tick(monotonic_us() + 2 * GIVE_UP_US, rig.blocks)
    fees_sat = {row["txid"]: row.get("fee_sat") for row in rig.batches.current.rows["mempool_txs"]}
    assert fees_sat == dict.fromkeys(txids[:-1], 1000) | {txids[-1]: None}
    assert (len(rig.fees), rig.batches.current.n_pending_rows) == (0, 0)


def test_outputs_that_the_node_never_gives_are_given_up(asking_rig: Rig, node: PlantedNode) -> None:
    """A transaction that left, and whose spent outputs the node fails to tell, gets a row without a fee."""
    rig = asking_rig
    node.errors = {"getmempoolentry": NOT_FOUND}
    body = decode_transaction(RegtestTransaction((TxInput(TXID, 0, b"", ()),), (TxOutput(1, b"\x51"),)).raw)
    rig.fees.add(PendingEntry(body.txid, "pushed", 1, None, body, None), rig.batches.current)
    rig.fees.tick(monotonic_us(), rig.blocks)
    while rig.thread.n_open:
        rig.inbox.get(timeout=10).deliver()
    rig.fees.note_left(TxLeft(body.txid, "removed", None, None))
    rig.fees.tick(monotonic_us(), rig.blocks)
    rig.inbox.get(timeout=10).deliver()
    rig.fees.tick(monotonic_us() + 2 * GIVE_UP_US, rig.blocks)
    assert "fee_sat" not in rig.batches.current.rows["mempool_txs"][0]
    assert rig.batches.current.n_pending_rows == 0


def test_transactions_of_a_block_get_their_traits(rig: Rig) -> None:
    """A transaction that came in its block alone has the traits of its bytes in its row, as any other has."""
    made = [
        RegtestTransaction(
            (TxInput(bytes([number] * 32), 0, b"", (ENVELOPE, CONTROL_BLOCK)),),
            (TxOutput(number, b"\x51"), TxOutput(0, b"\x6a" + bytes(number))),
        )
        for number in range(FEW + 2)
    ]
    transactions = parse_block(solved_block(made, height=7)).block.transactions[1:]
    assert all(each.traits is None for each in transactions)
    owner = rig.batches.current
    for each in transactions:
        rig.fees.add_from_block(PendingEntry(each.txid, "in_block", 1, None, each, None), owner, BLOCK)
    fees_sat = dict.fromkeys([each.txid for each in transactions], 5)
    rig.fees.block_resolved(BLOCK, RecentBlock(1, bytes(32), 0, fees_sat, {}))
    rows = {row["txid"]: row for row in owner.rows["mempool_txs"]}
    assert len(rows) == len(transactions)
    for each in transactions:
        traits = with_plain_traits(each).traits
        assert traits is not None
        assert traits["n_envelopes"] == 1
        assert traits.items() <= rows[each.txid].items()
