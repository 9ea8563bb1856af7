"""Test what the pipeline waits for: the node's answers, and a transaction that comes later than its event."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.codec.transaction import outpoint
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.journal.batches import Batches
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.mempool.bodies import KeptBodies, WaitingBodies
from collector.mempool.entries import GIVE_UP_US, PendingEntry, entries_to_state
from collector.node.request_threads import NodeRequests
from collector.receive.records import Message
from collector.regtest.transaction import RegtestTransaction as Made
from collector.regtest.transaction import TxInput, TxOutput
from collector.service.pipeline import Pipeline
from tests.collector.service.planted import NOT_FOUND, PlantedNode, facts

ORIGIN = ("alpha", "s")
DEADLINE_S = 30.0
SOUND, LATER = (Made((TxInput(bytes(32), index),), (TxOutput(1, b"\x51"),)) for index in range(2))


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


@contextmanager
def running(tmp_path: Path, requests: NodeRequests) -> Iterator[tuple[Pipeline, Batches]]:
    """Give a pipeline that asks the node by `requests`, and its batches; its journal is closed afterwards."""
    with Journal(tmp_path / "journal") as journal:
        journal.recover(Dataset.open(tmp_path / "dataset", "regtest", create=True))
        batches = Batches(journal)
        yield (
            Pipeline(
                ORIGIN,
                Settings(chain="regtest", dataset=tmp_path / "dataset"),
                requests=requests,
                batches=batches,
                bodies=KeptBodies(ORIGIN, "none", WaitingBodies(tmp_path), batches),
                stored=StoredBlocks((), None),
                ledger=CoverageLedger(*ORIGIN),
            ),
            batches,
        )


def message(topic: str, body: bytes, received_s: float, counter: int = 0) -> Message:
    """Return a message that was received at `received_s`."""
    return Message(*ORIGIN, topic, counter, round(received_s * 1e9), body)


def entry_event(number: int, txid: bytes, received_s: float) -> Message:
    """Return the message that a transaction entered the mempool, with this mempool sequence number."""
    return message("sequence", txid[::-1] + b"A" + number.to_bytes(8, "little"), received_s, number)


def follow(pipeline: Pipeline, node: PlantedNode, inbox: "queue.SimpleQueue[Any]") -> None:
    """Bring the pipeline in step with the node's empty mempool, before mempool sequence number 0."""
    node.results["getrawmempool"] = {"txids": [], "mempool_sequence": 0}
    node.results["uptime"] = 1000
    pipeline.start(facts(), 1)
    deliver_until(inbox, lambda: pipeline.in_step)


def test_an_entry_is_not_given_up_before_the_tip_is_known(tmp_path: Path, node: PlantedNode) -> None:
    """A row stays open while the node's tip is unknown: a block not announced may hold the transaction."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    with running(tmp_path, requests) as (pipeline, _):
        entry = PendingEntry(bytes(31) + b"\x01", "at_start", 1, None, None, None)
        pipeline.take_listed("told/s/1", entries_to_state([entry]))
        pipeline.tick(monotonic_us())
        deliver_until(inbox, lambda: not requests.mempool.n_open)
        pipeline.fill_blocks()
        later_us = monotonic_us() + 2 * GIVE_UP_US
        pipeline.tick(later_us)
        assert pipeline.n_open == 1
        requests.stop()  # what the node did not answer ends without an answer
        deliver_until(inbox, lambda: not requests.n_open)
        pipeline.tick(later_us)
        assert pipeline.n_open == 0


def test_a_transaction_is_kept_while_its_event_waits(tmp_path: Path, node: PlantedNode) -> None:
    """An event that waits a minute for a snapshot finds its transaction; nothing else is kept so long."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    with running(tmp_path, requests) as (pipeline, batches):
        pipeline.start(facts(), 1)
        messages = [
            message("rawtx", SOUND.raw, 1),
            message("rawtx", LATER.raw, 1),
            entry_event(0, SOUND.txid, 1.01),
        ]
        for taken in (messages, [message("rawtx", b"", 61)]):
            pipeline.take(taken, batches.begin(taken))
        pipeline.tick(monotonic_us() + 60_000_000)
        assert pipeline.n_undecided == 1
        pipeline.release()  # as if the snapshot did not come any more
        assert pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}
        pipeline.tick(monotonic_us())
        of_later = [entry_event(1, LATER.txid, 62)]
        pipeline.take(of_later, batches.begin(of_later))
        pipeline.release()
        assert pipeline.contents.outpoints(LATER.txid) is None
        requests.stop()


def test_an_event_waits_for_what_was_received_beside_it(tmp_path: Path, node: PlantedNode) -> None:
    """An event finds a transaction that was received a moment later, however long it takes to be read."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    with running(tmp_path, requests) as (pipeline, batches):
        follow(pipeline, node, inbox)
        first = [entry_event(0, SOUND.txid, 1), entry_event(1, LATER.txid, 1.04)]
        pipeline.take(first, batches.begin(first))
        slow_us = monotonic_us() + 60_000_000
        pipeline.tick(slow_us, has_unread=True)
        assert pipeline.n_mempool == 0
        second = [message("rawtx", SOUND.raw, 1.045), message("rawtx", LATER.raw, 1.06)]
        pipeline.take(second, batches.begin(second))
        pipeline.tick(slow_us, has_unread=True)
        assert pipeline.n_mempool == 1  # what was received beside it has been read, though more is unread
        assert pipeline.contents.outpoints(SOUND.txid) == {outpoint(bytes(32), 0)}
        pipeline.tick(slow_us)
        assert pipeline.contents.outpoints(LATER.txid) == {outpoint(bytes(32), 1)}
        requests.stop()
