"""Test MempoolSync, Removals and CoverageLedger together against a model of the node, in any order of events.

`Watcher` does what a session does with the `sequence` topic, without sockets. Messages and answers come late,
messages are lost, the connection breaks, the node restarts. `check` asserts what must be true after all that.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.journal.coverage_ledger import CoverageLedger
from collector.mempool.events import Removals, Settled
from collector.mempool.sync import (
    CATCH_UP_US,
    Event,
    InStep,
    MempoolSnapshot,
    MempoolSync,
    OutOfStep,
    Output,
    TxEntered,
    TxLeft,
    WantBlock,
    WantSnapshot,
)
from tests.collector.mempool.node_model import Node

STEP_US = 1000  # between two arrivals


@dataclass
class Record:
    """Holds the rows and reasons that one session made."""

    run: int  # of the node
    pushed: list[Event] = field(default_factory=list)
    pulled: list[tuple[int, str, bytes]] = field(default_factory=list)  # time, letter, txid
    at_start: list[tuple[int, bytes]] = field(default_factory=list)  # time, txid
    entered_pushed: list[tuple[int, bytes]] = field(default_factory=list)
    reasons: dict[int, tuple[str, bytes | None]] = field(default_factory=dict)
    coverage: list[dict[str, object]] = field(default_factory=list)
    mined: dict[bytes, list[bytes]] = field(default_factory=dict)


class Taken(NamedTuple):
    """Holds a snapshot that the node took and that has not arrived."""

    request: int
    number: int
    txids: frozenset[bytes]


class Watcher:
    """Follows a node as the collector does, with one session per run of the node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.now_us = 0
        self.records: list[Record] = []
        self.begin()

    def begin(self) -> None:
        """Begin a session: subscribe to what is published from now on."""
        self.record = Record(self.node.run)
        self.records.append(self.record)
        self.sync = MempoolSync()
        self.removals = Removals()
        self.ledger = CoverageLedger("n", f"s{len(self.records)}")
        self.wants: list[WantSnapshot | WantBlock | Taken] = []
        self.at = len(self.node.published)
        self.expected: int | None = None
        self.inside: set[bytes] = set()  # by what entered and left
        self.ledger.open("sequence", self.tick())
        self.take(self.sync.start())

    def end(self, reason: str) -> None:
        """End the session and begin the next."""
        self.take(self.sync.flush(lambda hash_: self.node.blocks[hash_]))
        self.settled(self.removals.flush())
        self.record.coverage += self.ledger.close_all(reason)
        self.begin()

    def tick(self) -> int:
        """Advance the clock, so that every message and answer has a time of its own, and return the time."""
        self.now_us += STEP_US
        return self.now_us

    # --- steps

    def do(self, what: int) -> None:
        """Let the node do the action with this number."""
        self.node.do(what)

    def deliver(self, count: int) -> None:
        """Deliver the next published messages, or end the session when the node has restarted."""
        if self.record.run != self.node.run:
            self.end("node_restart")
            return
        for published in self.node.published[self.at : self.at + count]:
            event = published._replace(received_us=self.tick())
            if self.expected not in (None, event.sequence):
                self.record.coverage += self.ledger.close("sequence", "gap")
                self.take(self.sync.lose_step("gap", "a jump of the counter"))
            self.at = self.expected = event.sequence + 1
            self.ledger.count("sequence", event.sequence, event.received_us)
            self.take(self.sync.event(event, event.received_us))

    def lose(self, count: int) -> None:
        """Skip the next messages; the counter of the message after them shows the loss."""
        self.at = min(self.at + count, len(self.node.published))

    def cut(self, count: int) -> None:
        """Break the connection, lose what is published meanwhile, and connect again."""
        self.record.coverage += self.ledger.close("sequence", "reconnect")
        self.take(self.sync.lose_step("reconnect", "lost"))
        self.lose(count)
        self.expected = None
        self.ledger.open("sequence", self.tick())
        self.take(self.sync.lose_step("reconnect", "back"))

    def restart(self, with_mempool: int) -> None:
        """Restart the node."""
        self.node.restart(with_mempool=bool(with_mempool))

    def answer(self, which: int) -> None:
        """Answer one open request; a snapshot is taken at one step and arrives at a later one."""
        if self.record.run != self.node.run:
            self.end("node_restart")
        elif self.wants:
            want = self.wants.pop(which % len(self.wants))
            if isinstance(want, WantSnapshot):
                self.wants.append(Taken(want.request, self.node.number, frozenset(self.node.mempool)))
            elif isinstance(want, Taken):
                now_us = self.tick()
                self.take(
                    self.sync.snapshot(want.request, MempoolSnapshot(want.number, want.txids, now_us, now_us))
                )
            else:
                self.take(self.sync.block(want.block_hash, self.node.blocks[want.block_hash]))

    def wait(self, _: int) -> None:
        """Let so much time pass that a snapshot no longer waits for older events."""
        self.now_us += CATCH_UP_US + 1
        self.take(self.sync.tick(self.now_us))

    def settle(self) -> None:
        """Deliver every message and answer every request."""
        for _ in range(8):
            self.deliver(len(self.node.published))
            while self.wants:
                self.answer(0)
            self.wait(1)

    # --- what the MempoolSync returns

    def take(self, outputs: list[Output]) -> None:
        """Act on what the MempoolSync returned, as a session does."""
        for output in outputs:
            self.move(output)
            match output:
                case Event():
                    self.record.pushed.append(output)
                    self.settled(self.explain(output))
                case TxEntered(event=None):
                    if output.kind == "at_start":
                        self.record.at_start.append((output.at_us, output.txid))
                    else:
                        assert output.kind == "pulled"
                        self.record.pulled.append((output.at_us, "A", output.txid))
                case TxEntered():
                    assert (output.kind, output.at_us) == ("pushed", output.event.received_us)
                    self.record.entered_pushed.append((output.event.sequence, output.txid))
                case TxLeft(cause="resync"):
                    self.record.pulled.append((output.at_us, "R", output.txid))
                case WantSnapshot() | WantBlock():
                    self.wants.append(output)
                case InStep():
                    self.ledger.open("mempool", output.at_us)
                case OutOfStep():
                    self.record.coverage += self.ledger.close("mempool", output.reason)

    def move(self, output: Output) -> None:
        """Track which transactions entered and left; assert that none enters twice."""
        if isinstance(output, TxEntered):
            assert output.txid not in self.inside
            self.inside.add(output.txid)
        elif isinstance(output, TxLeft):
            self.inside.discard(output.txid)

    def explain(self, event: Event) -> list[Settled]:
        """Give an event to Removals; return the removals that it explains."""
        spent = self.node.spends.get(event.hash, frozenset())
        if event.event == "R":
            return self.removals.removed(event, spent, event.received_us)
        if event.event == "A":
            return self.removals.added(event, spent)
        if event.event == "D":
            return self.removals.disconnected(event, event.received_us)
        self.record.mined[event.hash] = self.node.blocks[event.hash]
        return self.removals.connected(
            lambda: [coin for txid in self.node.blocks[event.hash] for coin in self.node.spends[txid]]
        )

    def settled(self, settled: list[Settled]) -> None:
        """Record the reasons of removals; assert that each removal gets only one."""
        for event, reason, replaced_by in settled:
            assert event.sequence not in self.record.reasons
            self.record.reasons[event.sequence] = (reason, replaced_by)


def replayed(record: Record) -> set[bytes]:
    """Replay the rows of a session by their times; return the txids that are in the mempool at its end."""
    inside: set[bytes] = set()
    rows = [(event.received_us, event.sequence, event.event, event.hash) for event in record.pushed]
    rows += [(at_us, -1, letter, txid) for at_us, letter, txid in record.pulled]
    rows += [(at_us, -1, "A", txid) for at_us, txid in record.at_start]
    for _, _, letter, hash_ in sorted(rows):
        if letter == "A":
            inside.add(hash_)
        elif letter == "R":
            inside.discard(hash_)
        elif letter == "C":
            inside.difference_update(record.mined[hash_])
    return inside


def check(watcher: Watcher) -> None:
    """Assert what must be true of the sessions' rows and coverage, whatever happened."""
    node, record = watcher.node, watcher.record
    assert watcher.sync.in_step
    assert watcher.sync.txids == watcher.inside == set(node.mempool)
    assert replayed(record) == set(node.mempool)
    watcher.settled(watcher.removals.flush())
    record.coverage += watcher.ledger.close_all("shutdown")
    for each in watcher.records:
        counters = [event.sequence for event in each.pushed]
        assert counters == sorted(set(counters))  # no event twice, none out of order
        claimed = {
            counter
            for row in each.coverage
            if row["topic"] == "sequence" and row["n_messages"]
            for counter in range(row["first_sequence"], row["last_sequence"] + 1)  # type: ignore[call-overload]
        }
        assert claimed == set(counters)  # every event is a row, or in a hole
        added = {event.sequence for event in each.pushed if event.event == "A"}
        assert {counter for counter, _ in each.entered_pushed} <= added  # nothing pulled counts as pushed
        assert set(each.reasons) == {event.sequence for event in each.pushed if event.event == "R"}
    published = [event[:4] for event in node.published]
    assert [event for event in record.pushed if event[:4] != published[event.sequence]] == []


STEP = {
    "do": st.tuples(st.just("do"), st.integers(0, 9)),
    "deliver": st.tuples(st.just("deliver"), st.integers(1, 8)),
    "answer": st.tuples(st.just("answer"), st.integers(0, 3)),
    "lose": st.tuples(st.just("lose"), st.integers(1, 3)),
    "cut": st.tuples(st.just("cut"), st.integers(0, 3)),
    "wait": st.tuples(st.just("wait"), st.just(1)),
    "restart": st.tuples(st.just("restart"), st.integers(0, 1)),
}
Steps = list[tuple[str, int]]


def steps(*kinds: str) -> st.SearchStrategy[Steps]:
    """Draw a list of steps; actions of the node are the most frequent."""
    return st.lists(st.one_of(*[STEP["do"]] * 2, *(STEP[kind] for kind in kinds)), max_size=60)


def play(seed: int, n_before: int, story: Steps) -> Watcher:
    """Run a node and its watcher through a story, then deliver everything; return the watcher."""
    node = Node(seed)
    for _ in range(n_before):
        node.do(node.draw.randrange(10))
    watcher = Watcher(node)
    for what, number in story:
        getattr(watcher, what)(number)
    watcher.settle()
    node.add()  # the first message after a loss shows it
    watcher.settle()
    return watcher


@settings(max_examples=250, deadline=None)
@example(1, 2, [("do", 0), ("do", 0), ("do", 8), ("answer", 0), ("answer", 0)])  # the C is the last to come
@given(st.integers(0, 2**16), st.integers(0, 12), steps("deliver", "answer"))
def test_nothing_lost_every_reason_is_the_nodes(seed: int, n_before: int, story: Steps) -> None:
    """Without a loss, every reason equals the node's, and one coverage interval spans everything."""
    watcher = play(seed, n_before, story)
    record = watcher.record
    check(watcher)
    assert record.reasons == {
        counter: why
        for counter, why in watcher.node.reasons.items()
        if counter in {event.sequence for event in record.pushed}
    }
    assert record.pulled == []
    assert [(row["topic"], row["end_reason"]) for row in record.coverage] == [
        ("sequence", "shutdown"),
        ("mempool", "shutdown"),
    ]


ALL = ("deliver", "answer", "wait", "lose", "cut", "restart")
# A late A adds a transaction that the snapshot did not have, and the late R that removes it is lost.
LATE = (
    "do7 lose3 wait1 do2 lose3 do6 lose2 deliver3 do0 do8 answer2 answer2 do4 wait1 deliver1 do5 answer2 do3"
)
LATE += " lose3 do2 lose2 do1 do7 do6 lose1 deliver7"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**16), st.integers(0, 12), steps(*ALL))
@example(29144, 2, [(each[:-1], int(each[-1])) for each in LATE.split()])
def test_whatever_is_lost_is_named_and_made_good(seed: int, n_before: int, story: Steps) -> None:
    """After gaps, cuts and restarts the rows replay to the node's mempool, and coverage names the gaps."""
    check(play(seed, n_before, story))
