"""What bounds a session: how much may wait in memory, and how large its journal grows."""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import REJECTS
from collector.errors import NodeUnavailable, RpcError
from collector.journal.journal import Journal
from collector.mempool.entries import GIVE_UP_US, EntryAnswer, PendingEntry
from collector.monitor.metrics import Metrics
from collector.node.rpc import RpcClient
from collector.receive.records import Message, Notice
from collector.receive.ring import Ring
from collector.receive.source import MessageSource
from collector.service.pipeline import HOLD_US
from collector.service.session import Session
from tests.collector.journal.journal_files import segments

ORIGIN = ("alpha", "s")


def new_session(folder: Path, journal: Journal) -> Session:
    """Make a session whose node does not answer; a source stands by, and receives nothing."""
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    journal.recover(dataset)
    made = Session(
        ORIGIN,
        RpcClient("http://127.0.0.1:1", cookie_file=folder / "none"),
        inbox=inbox,
        settings=Settings(chain="regtest", dataset=folder / "dataset", watchdog_interval_s=3600),
        dataset=dataset,
        journal=journal,
        stored=StoredBlocks((), None),
        metrics=Metrics(["alpha"]),
    )
    made._source = MessageSource("alpha", "s", {}, inbox=inbox)
    return made


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Make a session with a journal of its own."""
    with Journal(tmp_path / "journal") as journal:
        made = new_session(tmp_path, journal)
        yield made
        made._lanes.stop()


def entered(number: int, padding: int = 0) -> Message:
    """Make a message that says that a transaction entered the mempool; padded, one that means nothing."""
    txid = number.to_bytes(32, "big")
    body = txid + b"A" + number.to_bytes(8, "little") + bytes(padding)
    return Message("alpha", "s", "sequence", number, number * 1000, body)


@pytest.mark.parametrize(("name", "most"), [("MOST_MESSAGES", 4), ("MOST_BYTES", 4 * 41)])
def test_what_is_received_waits_in_the_ring_once_enough_is_incomplete(
    session: Session, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """By number or by bytes; and meanwhile the node is not judged by what we have not taken."""
    monkeypatch.setattr(f"collector.service.session.{name}", most)
    assert session._source is not None
    session._turn([entered(number) for number in range(4)])
    assert not session._source.is_paused
    session._turn([entered(4)])
    assert session._source.is_paused
    session._observation._watchdog._due_s = 0.0  # it is time for a look
    session._turn([])
    assert session._lanes.status.n_open == 0
    monkeypatch.setattr(f"collector.service.session.{name}", 100 * most)
    session._turn([])
    assert not session._source.is_paused
    session._turn([])
    assert session._lanes.status.n_open == 1


def test_a_journal_that_has_grown_is_sealed_before_it_is_time(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what a seal reads has a bound; what must stay in the journal does not make it seal again."""
    monkeypatch.setattr("collector.service.session.SEAL_BYTES", 10_000)
    session._turn([entered(number, padding=9) for number in range(100)])  # no events of any kind
    time.sleep(2 * HOLD_US / 1e6)
    session._turn([])
    session._turn([])
    assert session._dataset.read(REJECTS).num_rows == 100
    session._turn([entered(number) for number in range(100, 300)])  # nothing completes them: they stay
    folder = session._dataset.root.parent / "journal"
    assert session._carried_bytes > 10_000
    left = segments(folder)
    session._turn([])
    assert segments(folder) == left


def test_what_is_gone_is_not_given_up_before_the_tip_is_known(session: Session) -> None:
    """A block that nobody saw come may have it; while the node is asked for its tip that is not known."""
    pipeline, txid = session._pipeline, bytes(31) + b"\x01"
    pipeline.take_told("told/s/1", b"[]", [PendingEntry(txid, "at_start", 1, None, None, None)])
    pipeline.tick(monotonic_us())
    pipeline._fees._on_entries([EntryAnswer(txid, RpcError("getmempoolentry", -5, "not in mempool"), None)])
    pipeline.blocks.fetch_missing()
    later_us = monotonic_us() + 2 * GIVE_UP_US
    pipeline.tick(later_us)
    assert pipeline.n_open == 1
    pipeline.blocks._no_tip(NodeUnavailable("stopped"))
    pipeline.tick(later_us)
    assert pipeline.n_open == 0


def test_what_is_no_message_has_its_row_once_whenever_the_kill_comes(tmp_path: Path) -> None:
    """One of two was made a row of before the kill, with no message behind it; the other is in the ring."""
    folder = tmp_path / "journal"
    with Journal(folder) as journal:
        killed = new_session(tmp_path, journal)
        ring = journal.make_ring(*ORIGIN, ("sequence",))
        putting = Ring.open(ring.path)
        for body in (b"first", b"second"):
            putting.put_notice(Notice("malformed", None, time.time_ns(), "1 frames", body))
        putting.close()
        killed._turn(list(ring.take(1)))
        killed._lanes.stop()
    with Journal(folder) as journal:
        again = new_session(tmp_path, journal)
        assert again.recover(deque(), {}, threading.Event())
        assert journal.states == {}
        rows = again._dataset.read(REJECTS).to_pylist()
    assert [(row["topic"], row["body"]) for row in rows] == [("zmq", b"first"), ("zmq", b"second")]
