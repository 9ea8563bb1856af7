"""Test what the pipeline waits for: the node's answers, and a transaction that comes later than its event."""

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.codec.transaction import outpoint
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS, MEMPOOL_TXS, Table
from collector.journal.batches import Batches
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.mempool.bodies import KeptBodies, WaitingBodies
from collector.mempool.entries import GIVE_UP_US, PendingEntry
from collector.mempool.fee_lookup import entries_to_state
from collector.node.request_threads import NodeRequests
from collector.receive.records import Message, Notice
from collector.regtest.block_assembly import Candidate
from collector.regtest.mining import MiningTemplate, build_block
from collector.regtest.transaction import RegtestTransaction as Made
from collector.regtest.transaction import TxInput, TxOutput
from collector.service.pipeline import Pipeline
from tests.collector.service.planted import NOT_FOUND, PlantedNode, facts

ORIGIN = ("alpha", "s")
DEADLINE_S = 30.0
SOUND, LATER = (Made((TxInput(bytes(32), index),), (TxOutput(1, b"\x51"),)) for index in range(2))
REPLACING = Made((TxInput(bytes(32), 0),), (TxOutput(2, b"\x51"),))  # spends what SOUND spends
A_WHILE_US = 60_000  # longer than an event is held
A_MINUTE_US = 60_000_000


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a node with an empty mempool that does not answer when it is asked for its tip."""
    made = PlantedNode()
    made.errors = {"getmempoolentry": NOT_FOUND, "getrawtransaction": NOT_FOUND}
    yield made
    made.close()


def deliver_until(inbox: "queue.SimpleQueue[Any]", is_so: Callable[[], bool]) -> None:
    """Deliver the node's answers from `inbox` until `is_so()` is true."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        inbox.get(timeout=deadline_s - time.monotonic()).deliver()


class Running:
    """Runs a pipeline without a session: the test gives it messages and decides what time it is."""

    def __init__(self, folder: Path, node: PlantedNode) -> None:
        self.node = node
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.requests = NodeRequests("alpha", node.client(), self.inbox)
        self.dataset = Dataset.open(folder / "dataset", "regtest", create=True)
        self.journal = Journal(folder / "journal")
        self.journal.recover(self.dataset)
        self.batches = Batches(self.journal)
        self.pipeline = Pipeline(
            ORIGIN,
            Settings(chain="regtest", dataset=folder / "dataset"),
            requests=self.requests,
            batches=self.batches,
            bodies=KeptBodies(ORIGIN, "none", WaitingBodies(folder), self.batches),
            stored=StoredBlocks((), None),
            ledger=CoverageLedger(*ORIGIN),
        )

    def follow(self, *txids: bytes, number: int = 0) -> None:
        """Bring the pipeline in step with a node whose mempool has `txids` before this sequence number."""
        listed = [txid[::-1].hex() for txid in txids]
        self.node.results |= {"getrawmempool": {"txids": listed, "mempool_sequence": number}, "uptime": 1000}
        self.pipeline.start(facts(), 1)
        deliver_until(self.inbox, lambda: self.pipeline.in_step)

    def take(self, *messages: Message) -> None:
        """Give these messages to the pipeline, as one turn of a session does."""
        self.pipeline.take(messages, self.batches.begin(messages))

    def tick(self, later_us: int = A_WHILE_US, *, has_unread: bool = False) -> None:
        """Have the pipeline do what is due so much later than now."""
        self.pipeline.tick(monotonic_us() + later_us, has_unread=has_unread)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Complete every row with what is known, and return those of a table."""
        self.pipeline.finish()
        self.batches.commit()
        self.journal.seal(self.dataset)
        return self.dataset.read(table).to_pylist()

    def removals(self) -> list[tuple[str, bytes | None]]:
        """Return reason and replacing txid of each removal."""
        rows = [row for row in self.rows(MEMPOOL_EVENTS) if row["event"] == "R"]
        return [(row["removal_reason"], row["replaced_by"]) for row in rows]


@pytest.fixture
def running(tmp_path: Path, node: PlantedNode) -> Iterator[Running]:
    """Give a pipeline that asks the planted node; end its threads, and close its journal, afterwards."""
    made = Running(tmp_path, node)
    yield made
    made.requests.stop()
    made.journal.close()


def message(topic: str, body: bytes, received_s: float, counter: int = 0) -> Message:
    """Return a message that was received at `received_s`."""
    return Message(*ORIGIN, topic, counter, round(received_s * 1e9), body)


def mempool_event(letter: str, number: int, txid: bytes, received_s: float) -> Message:
    """Return the message that a transaction entered (A) or left (R), with this mempool sequence number."""
    body = txid[::-1] + letter.encode() + number.to_bytes(8, "little")
    return message("sequence", body, received_s, number)


def test_an_entry_is_not_given_up_before_the_tip_is_known(running: Running) -> None:
    """A row stays open while the node's tip is unknown: a block not announced may hold the transaction."""
    pipeline, requests = running.pipeline, running.requests
    entry = PendingEntry(bytes(31) + b"\x01", "at_start", 1, None, None, None)
    pipeline.take_listed("told/s/1", entries_to_state([entry]))
    pipeline.tick(monotonic_us())
    deliver_until(running.inbox, lambda: not requests.mempool.n_open)
    pipeline.fill_blocks()
    later_us = monotonic_us() + 2 * GIVE_UP_US
    pipeline.tick(later_us)
    assert pipeline.n_open == 1
    requests.stop()  # what the node did not answer ends without an answer
    deliver_until(running.inbox, lambda: not requests.n_open)
    pipeline.tick(later_us)
    assert pipeline.n_open == 0


# --- the bytes of a transaction, which another topic brings


def test_a_transaction_is_kept_while_its_event_waits(running: Running) -> None:
    """An event that waits a minute for a snapshot finds its transaction; nothing else is kept so long."""
    pipeline = running.pipeline
    pipeline.start(facts(), 1)
    event = mempool_event("A", 0, SOUND.txid, 1.01)
    running.take(message("rawtx", SOUND.raw, 1), message("rawtx", LATER.raw, 1), event)
    running.take(message("rawtx", b"", 61))
    running.tick(A_MINUTE_US)
    assert pipeline.n_undecided == 1
    pipeline.release()  # as if the snapshot did not come any more
    assert pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}
    running.tick()
    running.take(mempool_event("A", 1, LATER.txid, 62))
    pipeline.release()
    assert pipeline.contents.outpoints(LATER.txid) is None


def test_an_event_waits_for_what_was_received_beside_it(running: Running) -> None:
    """An event finds a transaction that was received a moment later, however long it takes to be read."""
    running.follow()
    contents = running.pipeline.contents
    running.take(mempool_event("A", 0, SOUND.txid, 1), mempool_event("A", 1, LATER.txid, 1.04))
    running.tick(A_MINUTE_US, has_unread=True)
    assert len(contents) == 0
    running.take(message("rawtx", SOUND.raw, 1.045), message("rawtx", LATER.raw, 1.06))
    running.tick(A_MINUTE_US, has_unread=True)
    assert len(contents) == 1  # what was received beside it has been read, though more is unread
    assert contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}
    running.tick(A_MINUTE_US)
    assert contents.outpoints(LATER.txid) == {outpoint(bytes(32), 1)}


def test_a_transaction_is_kept_while_its_event_is_held(running: Running) -> None:
    """What came long after it is read in the same turn; the event finds its transaction all the same."""
    running.follow()
    running.take(message("rawtx", SOUND.raw, 1))
    running.take(mempool_event("A", 0, SOUND.txid, 1), message("rawblock", b"", 20))
    running.tick(0)
    running.tick()
    assert running.pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}


@pytest.mark.parametrize("stepped_s", [1000, -1000])
def test_a_clock_that_is_set_costs_no_bytes(running: Running, stepped_s: int) -> None:
    """What waits is behind a notice with the stamp of another clock; it is kept, and it is applied."""
    running.follow()
    before_s, after_s = 5000, 5000 + stepped_s
    received_s = min(before_s, after_s)  # a clock set ahead was noticed before these messages were taken
    running.take(mempool_event("A", 0, LATER.txid, before_s))
    running.tick()
    if stepped_s < 0:
        running.take(mempool_event("R", 1, LATER.txid, before_s))
    running.pipeline.notice(Notice("clock_step", "sequence", after_s * 10**9, ""))
    running.take(message("rawtx", SOUND.raw, received_s), mempool_event("A", 2, SOUND.txid, received_s))
    running.tick(0, has_unread=True)
    for later_s in range(1, 4):
        running.take(message("rawblock", b"", after_s + later_s))
        running.tick(later_s * 1_000_000, has_unread=True)
    assert running.pipeline.n_undecided == 1  # passed on: it waits for the snapshot after the notice
    running.pipeline.release()
    assert running.pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}


def test_an_event_of_the_clock_before_costs_no_bytes(running: Running) -> None:
    """An event waits for a snapshot with the stamp of a clock that was then set back by an hour."""
    running.pipeline.start(facts(), 1)
    running.take(mempool_event("A", 0, LATER.txid, 5000))
    running.tick()
    running.take(message("rawtx", SOUND.raw, 1400), mempool_event("A", 1, SOUND.txid, 1400))
    running.tick()
    running.take(message("rawblock", b"", 1500))
    running.tick()
    running.pipeline.release()
    assert running.pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}


def test_bytes_that_are_unread_are_waited_for(running: Running) -> None:
    """A transaction that was removed gets its size from bytes received soon after, and read much later."""
    running.node.errors["getblock"] = NOT_FOUND
    running.follow()
    running.take(mempool_event("A", 0, SOUND.txid, 1), message("rawblock", b"", 1.1))
    running.tick(has_unread=True)
    running.take(mempool_event("R", 1, SOUND.txid, 1.2), message("rawblock", b"", 1.3))
    running.tick(has_unread=True)
    deliver_until(running.inbox, lambda: not running.requests.mempool.n_open)
    running.tick(A_MINUTE_US, has_unread=True)
    running.take(message("rawtx", SOUND.raw, 1.4))
    (row,) = running.rows(MEMPOOL_TXS)
    assert row["vsize_vb"] is not None


def test_bytes_that_are_late_explain_a_removal(running: Running) -> None:
    """A transaction whose bytes came after its event, and long before its removal, has a reason."""
    running.follow()
    running.take(mempool_event("A", 0, SOUND.txid, 1))
    running.tick()
    running.take(message("rawtx", SOUND.raw, 1.2))
    running.take(message("rawblock", b"", 15))
    running.tick()
    removal, entry = mempool_event("R", 1, SOUND.txid, 20), mempool_event("A", 2, REPLACING.txid, 20)
    running.take(message("rawtx", REPLACING.raw, 20), removal, entry)
    running.tick()
    assert running.removals() == [("replaced", REPLACING.txid)]


# --- what a later event explains, or a snapshot shows


@pytest.mark.parametrize("is_read", [True, False])
def test_a_removal_waits_for_the_events_after_it(running: Running, is_read: bool) -> None:  # noqa: FBT001 - a parameter
    """Its second does not run out while the replacing transaction is held, or not even read."""
    running.follow()
    running.take(message("rawtx", SOUND.raw, 1), mempool_event("A", 0, SOUND.txid, 1))
    running.tick()
    removal, entry = mempool_event("R", 1, SOUND.txid, 2), mempool_event("A", 2, REPLACING.txid, 2.061)
    running.take(removal, message("rawtx", REPLACING.raw, 2.06))
    running.tick(has_unread=True)
    assert running.pipeline.n_mempool == 0
    if is_read:  # and held, though the turn takes long
        running.take(entry)
        running.pipeline.tick(monotonic_us() + A_MINUTE_US, hold_us=2 * A_MINUTE_US)
    else:
        running.tick(A_MINUTE_US, has_unread=True)
        running.take(entry)
    running.pipeline.release()
    assert running.removals() == [("replaced", REPLACING.txid)]


@pytest.mark.parametrize(("received_s", "n_ended"), [(2.9, 0), (3.1, 1)])
def test_a_removal_that_nothing_explains_ends_while_events_come(
    running: Running, received_s: float, n_ended: int
) -> None:
    """Its second is over when all events of that second are applied, though later ones are held."""
    running.follow()
    running.take(message("rawtx", SOUND.raw, 1), mempool_event("A", 0, SOUND.txid, 1))
    running.tick()
    running.take(mempool_event("R", 1, SOUND.txid, 2))
    running.tick()
    running.take(mempool_event("R", 2, LATER.txid, received_s))
    n_open = running.pipeline.n_open
    running.pipeline.tick(monotonic_us() + A_MINUTE_US, hold_us=2 * A_MINUTE_US)
    assert running.pipeline.n_open == n_open - n_ended


@pytest.mark.parametrize(("received_s", "in_step"), [(7.9, True), (8.1, False)])
def test_missing_numbers_wait_for_the_block_that_is_held(
    running: Running,
    received_s: float,
    in_step: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Nothing was lost if a block received within five seconds explains them, however late it is read."""
    running.follow()
    running.take(mempool_event("R", 1, SOUND.txid, 3), message("rawtx", LATER.raw, 3.1))
    running.tick(has_unread=True)
    running.take(message("sequence", bytes(32) + b"C", received_s, 3))
    running.pipeline.tick(monotonic_us() + A_MINUTE_US, hold_us=2 * A_MINUTE_US)
    assert running.pipeline.in_step is in_step


@pytest.mark.parametrize("is_read", [True, False])
def test_a_snapshot_waits_for_the_events_before_it(running: Running, is_read: bool) -> None:  # noqa: FBT001 - a parameter
    """A transaction whose event is held, or not even read, was seen to enter, though a snapshot lists it."""
    event = mempool_event("A", 0, SOUND.txid, 1.001)
    running.take(message("rawtx", SOUND.raw, 1), *([event] if is_read else []))
    running.tick(has_unread=True)
    running.node.results["getrawmempool"] = {"txids": [SOUND.txid[::-1].hex()], "mempool_sequence": 1}
    running.node.results["uptime"] = 1000
    running.pipeline.start(facts(), 1)
    deliver_until(running.inbox, lambda: not running.requests.mempool.n_open)
    running.tick(700_000, has_unread=True)
    if not is_read:
        running.take(event)
    running.tick(700_000)
    assert running.pipeline.in_step
    assert [row["first_seen_kind"] for row in running.rows(MEMPOOL_TXS)] == ["pushed"]


def test_a_block_that_is_connected_again_shows_nothing_new(running: Running) -> None:
    """A transaction was seen before its block, which gave way to a rival; its return makes it no new one.

    The node does not take such a transaction back where its mempool refuses it.
    """
    running.follow()
    easy = MiningTemplate(
        height=101,
        prev_hash=bytes(32),
        version=4,
        bits=bytes.fromhex("ffff7f20"),
        target=0x7FFFFF << 232,
        time=1,
        min_time=1,
        subsidy_sat=50,
    )
    taken = Candidate(
        txid=SOUND.txid_hex,
        raw=SOUND.raw,
        fee_sat=0,
        vsize_vb=SOUND.vsize_vb,
        weight_wu=SOUND.weight_wu,
        parents=frozenset(),
        arrival=0,
        is_planted=False,
    )
    rivals = [
        build_block(easy, candidates, tag=b"", payout_script=b"\x51", extranonce=0)
        for candidates in ([taken], [])
    ]
    running.take(message("rawtx", SOUND.raw, 1), mempool_event("A", 0, SOUND.txid, 1))
    for counter, (letter, at) in enumerate((("C", 0), ("D", 0), ("C", 1), ("D", 1), ("C", 0)), start=1):
        body = bytes.fromhex(rivals[at].hash) + letter.encode()
        running.take(message("rawblock", rivals[at].raw, 1 + counter, counter))
        running.take(message("sequence", body, 1 + counter, counter))
        running.tick()
    assert [row["first_seen_kind"] for row in running.rows(MEMPOOL_TXS)] == ["pushed"]
