"""Test that a session bounds its memory and its journal, and makes each row once whenever a kill comes."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import wall_us
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, REJECTS
from collector.errors import CollectorError
from collector.journal.journal import Journal
from collector.mempool.bodies import WaitingBodies
from collector.monitor.metrics import Metrics
from collector.receive.records import Message, Notice
from collector.receive.ring import Ring
from collector.service.session import Limits, Outcome, Session, Unfinished
from tests.collector.service.planted import (
    MEMPOOL_ENTRY,
    MEMPOOL_INFO,
    NOT_FOUND,
    TIP,
    PlantedNode,
    PlantedSource,
    facts,
    in_thread,
)

ORIGIN = ("alpha", "s")
REJECT_ROWS = ("pool_collector_rows_total", {"table": "rejects"})
DEADLINE_S = 30.0


def wait_until(is_so: Callable[[], Any]) -> None:
    """Wait until `is_so()` is true; fail after DEADLINE_S seconds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def entered(number: int, padding: int = 0) -> Message:
    """Return the message that a transaction entered the mempool; with padding, its body cannot be decoded."""
    txid = number.to_bytes(32, "big")
    body = txid + b"A" + number.to_bytes(8, "little") + bytes(padding)
    return Message("alpha", "s", "sequence", number, number * 1000, body)


class Collecting:
    """Runs sessions against a planted node and source, with a dataset and metrics of its own."""

    def __init__(
        self, folder: Path, node: PlantedNode, limits: Limits | None = None, **settings: Any
    ) -> None:
        self.journal_folder = folder / "journal"
        self.dataset = Dataset.open(folder / "dataset", "regtest", create=True)
        self.metrics = Metrics(["alpha"])
        self.source = PlantedSource()
        self._node = node
        self._limits = limits
        often = {"watchdog_interval_s": 0.01, "seal_interval_s": 3600} | settings
        self._settings = Settings(chain="regtest", dataset=folder / "dataset", **often)

    def session(self, journal: Journal) -> Session:
        """Return a session that uses this journal."""
        return Session(
            ORIGIN,
            self._node.client(),
            inbox=self.source.inbox,
            settings=self._settings,
            dataset=self.dataset,
            journal=journal,
            stored=StoredBlocks((), None),
            bodies=WaitingBodies(self.journal_folder),
            metrics=self.metrics,
            limits=self._limits,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a session in a thread during the `with` block, and stop it at the end."""
        stop = threading.Event()
        with Journal(self.journal_folder) as journal:
            journal.recover(self.dataset)
            session = self.session(journal)
            with in_thread(lambda: session.run(facts(), self.source, stop)):
                try:
                    wait_until(lambda: self.source.ring)
                    yield
                finally:
                    stop.set()

    def put(self, *items: Message | Notice) -> None:
        """Deliver these messages or notices to the session."""
        for item in items:
            self.source.inbox.put(item)

    def sample(self, name: str) -> float:
        """Return the value of one of the node's metrics."""
        return self.metrics.registry.get_sample_value(f"pool_collector_{name}", {"node": "alpha"}) or 0.0

    def wait_turns(self, n_turns: int = 3) -> None:
        """Wait until the session's thread has finished `n_turns` more turns."""
        for _ in range(n_turns):
            before_s = self.metrics.states()["alpha"].turn_s
            wait_until(lambda before_s=before_s: self.metrics.states()["alpha"].turn_s > before_s)


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a node that does not find its tip's block and is otherwise away until a test plants answers."""
    made = PlantedNode()
    made.errors["getblock"] = NOT_FOUND  # else the first batch waits for the tip's row
    yield made
    made.close()


@pytest.mark.parametrize("limits", [Limits(n_messages=4), Limits(message_bytes=4 * 41)])
def test_messages_wait_in_the_ring_while_too_many_rows_are_incomplete(
    tmp_path: Path, node: PlantedNode, limits: Limits
) -> None:
    """A session takes no more messages when too many, or too large ones, wait for their rows.

    Meanwhile the watchdog does not look at the node, since messages in the ring would count as missing.
    """
    node.results = {
        "getblockchaininfo": {
            "bestblockhash": TIP,
            "blocks": 100,
            "headers": 100,
            "initialblockdownload": False,
        },
        "getmempoolinfo": MEMPOOL_INFO,
        "getzmqnotifications": [{"type": f"pub{topic}"} for topic in PlantedSource.topics],
    }
    collecting = Collecting(tmp_path, node, limits)
    with collecting.running():
        collecting.put(*(entered(number) for number in range(4)))
        wait_until(lambda: collecting.sample("waiting_messages") == 4)
        assert not collecting.source.is_paused
        collecting.put(entered(4))
        wait_until(lambda: collecting.source.is_paused)
        collecting.wait_turns()
        n_looks = node.n_asked["getzmqnotifications"]
        assert n_looks
        collecting.wait_turns()
        assert node.n_asked["getzmqnotifications"] == n_looks
        # With a snapshot and the fees of what entered the rows are complete.
        txids = [bytes(entered(number).body[:32]).hex() for number in range(5)]
        node.results |= {"uptime": 1, "getrawmempool": {"txids": txids, "mempool_sequence": 5}}
        node.results["getmempoolentry"] = MEMPOOL_ENTRY
        node.errors["getrawtransaction"] = NOT_FOUND
        wait_until(lambda: not collecting.source.is_paused)
        wait_until(lambda: node.n_asked["getzmqnotifications"] > n_looks)


def test_a_journal_that_has_grown_is_sealed_before_the_timer(tmp_path: Path, node: PlantedNode) -> None:
    """A journal that has grown is sealed early; rows that must stay in it do not cause another seal."""
    collecting = Collecting(tmp_path, node, Limits(seal_bytes=10_000))
    with collecting.running():
        collecting.put(*(entered(number, padding=9) for number in range(100)))  # no events: rejects
        wait_until(lambda: collecting.dataset.read(REJECTS).num_rows == 100)
        collecting.wait_turns()
        n_seals = collecting.sample("seal_seconds_count")
        collecting.put(*(entered(number) for number in range(100, 300)))  # nothing completes these: they stay
        wait_until(lambda: collecting.sample("waiting_messages") == 200)
        wait_until(lambda: collecting.sample("seal_seconds_count") > n_seals)
        collecting.wait_turns()  # the 200 may come in two turns
        carried_bytes = sum(path.stat().st_size for path in collecting.journal_folder.glob("*.journal"))
        assert carried_bytes > 10_000
        n_seals = collecting.sample("seal_seconds_count")
        collecting.wait_turns()
        assert collecting.sample("seal_seconds_count") == n_seals


def test_notices_alone_free_their_room_in_the_ring(tmp_path: Path, node: PlantedNode) -> None:
    """A topic of which only malformed messages come does not fill the ring, which would then take nothing."""
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        ring = collecting.source.ring
        assert ring is not None
        putting = Ring.open(ring.path)
        for number in range(3):
            for notice in (
                Notice("malformed", None, number + 1, "x", bytes(9)),
                Notice("gap", "rawtx", 1, ""),
            ):
                assert putting.put_notice(notice)
            collecting.put(*ring.take(2))
            wait_until(lambda: putting.n_waiting == 0)
        assert putting.put("sequence", 0, 7, entered(0, padding=9).body)
        putting.close()
        collecting.put(*ring.take(1))
        wait_until(lambda: ring.n_released == 7)
        collecting.put(Notice("node_restart", "sequence", 1, "the counter began anew"))
    assert collecting.dataset.read(REJECTS).num_rows == 4


def kill_between_two_malformed(collecting: Collecting) -> None:
    """Put two malformed messages into the ring, deliver only the first, and end the session as by a kill."""
    with collecting.running():
        assert collecting.source.ring is not None
        putting = Ring.open(collecting.source.ring.path)
        for body in (b"first", b"second"):
            putting.put_notice(Notice("malformed", None, time.time_ns(), "1 frames", body))
        putting.close()
        collecting.put(*collecting.source.ring.take(1))
        wait_until(lambda: collecting.metrics.registry.get_sample_value(*REJECT_ROWS) == 1)
        collecting.put(Notice("failed", None, 0, "killed"))


def test_bytes_that_are_no_message_have_their_row_once(tmp_path: Path, node: PlantedNode) -> None:
    """Each of two malformed messages gets one reject, though a kill came after the row of the first."""
    collecting = Collecting(tmp_path, node)
    with pytest.raises(CollectorError, match="killed"):
        kill_between_two_malformed(collecting)
    with Journal(collecting.journal_folder) as journal:
        journal.recover(collecting.dataset)
        again = Collecting(tmp_path, node).session(journal)
        left = Unfinished(deque(), {}, None, journal.states.get("coverage/s"))
        assert again.recover(left, threading.Event()) is Outcome.COMPLETE
        rows = collecting.dataset.read(REJECTS).to_pylist()
    assert [(row["topic"], row["body"]) for row in rows] == [("zmq", b"first"), ("zmq", b"second")]


def test_a_session_that_the_node_ended_is_not_in_step(tmp_path: Path, node: PlantedNode) -> None:
    """From the node's restart to the next session nothing is received: the metrics do not say in step."""
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 1}}
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        wait_until(lambda: collecting.sample("in_step") == 1)
        collecting.put(Notice("node_restart", "sequence", 1, "the counter began anew"))
        wait_until(lambda: collecting.source.is_drained)  # the session has ended
    assert collecting.sample("in_step") == 0


@pytest.mark.parametrize(("limits", "is_held"), [(None, True), (Limits(n_messages=0), False)])
def test_an_event_waits_for_what_is_in_the_ring(
    tmp_path: Path,
    node: PlantedNode,
    limits: Limits | None,
    is_held: bool,  # noqa: FBT001 - a parameter
) -> None:
    """An event is held while what was received beside it is unread, unless too many rows wait to read it."""
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 1}}
    collecting = Collecting(tmp_path, node, limits)

    def n_mempool() -> int:
        return collecting.metrics.states()["alpha"].n_mempool

    with collecting.running():
        wait_until(lambda: collecting.sample("in_step") == 1)
        ring = collecting.source.ring
        assert ring is not None
        putting = Ring.open(ring.path)
        assert putting.put("sequence", 1, 5000, entered(1).body)
        assert putting.put("rawtx", 0, 5000, b"no transaction")
        putting.close()
        collecting.put(*ring.take(1))
        wait_until(lambda: collecting.sample("waiting_messages") == 1)
        if is_held:
            collecting.wait_turns(5)
            assert n_mempool() == 0
            collecting.put(*ring.take(1))
        wait_until(lambda: n_mempool() == 1)


def test_a_loss_in_the_last_moment_ends_the_coverage(tmp_path: Path, node: PlantedNode) -> None:
    """A connection that is lost right before the session ends still leaves rows of the intervals it ended."""
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 1}}
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        wait_until(lambda: collecting.sample("in_step") == 1)
        reasons = ("reconnect", "node_restart")
        collecting.put(*(Notice(reason, "sequence", at_ns, "") for at_ns, reason in enumerate(reasons, 1)))
    rows = collecting.dataset.read(COVERAGE).to_pylist()
    ends = {row["topic"]: row["end_reason"] for row in rows}
    assert (ends["sequence"], ends["mempool"]) == ("reconnect", "reconnect")


def test_nothing_is_covered_before_its_time(tmp_path: Path, node: PlantedNode) -> None:
    """A message has the stamp of a clock that was set back since: coverage ends with the clock of now."""
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 1}}
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        wait_until(lambda: collecting.sample("in_step") == 1)
        collecting.put(entered(1)._replace(received_ns=time.time_ns() + 7200 * 10**9))
        collecting.wait_turns()
    ends_us = [row["to_at"].timestamp() * 1e6 for row in collecting.dataset.read(COVERAGE).to_pylist()]
    assert max(ends_us) <= wall_us()


def test_a_node_whose_clock_was_set_back_is_followed(tmp_path: Path, node: PlantedNode) -> None:
    """Bitcoin Core up to 30 then says an uptime below 0, until its clock is where it was at its start."""
    node.results |= {"uptime": -3300, "getrawmempool": {"txids": [], "mempool_sequence": 1}}
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        wait_until(lambda: collecting.sample("in_step") == 1)


def test_a_recovery_that_fails_leaves_no_thread(tmp_path: Path, node: PlantedNode) -> None:
    """The threads that send requests end with the recovery, or each attempt would leave some."""
    collecting = Collecting(tmp_path, node)
    with Journal(collecting.journal_folder) as journal:
        journal.recover(collecting.dataset)
        session = collecting.session(journal)
        with pytest.raises(json.JSONDecodeError):
            session.recover(Unfinished(deque(), {}, coverage=b"cut off"), threading.Event())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rpc-alpha")]


def test_a_recovery_says_that_it_goes_on(
    tmp_path: Path, node: PlantedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a long recovery counts as a turn, so that the service is not taken for dead."""
    monkeypatch.setattr("collector.service.session.GATHER_ITEMS", 1)
    collecting = Collecting(tmp_path, node)
    left = deque(entered(number, padding=9) for number in range(100))  # no events: rejects
    collecting.metrics.away("alpha")
    turns_s = set()

    def note_turn(name: str) -> None:
        turn(name)
        turns_s.add(collecting.metrics.states()[name].turn_s)

    turn = collecting.metrics.turned
    monkeypatch.setattr(collecting.metrics, "turned", note_turn)
    with Journal(collecting.journal_folder) as journal:
        journal.recover(collecting.dataset)
        journal.append_messages(left)
        session = collecting.session(journal)
        node.results["getbestblockhash"] = TIP
        assert session.recover(Unfinished(left, {}), threading.Event()) is Outcome.COMPLETE
    assert len(turns_s) >= 100
