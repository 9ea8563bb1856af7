"""Test MempoolSync alone, case by case; `test_sync_against_node` tests random stories."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import DecodeError
from collector.mempool.sync import (
    CATCH_UP_US,
    DEBT_LIMIT_US,
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
    parse_event,
)
from tests.collector.mempool.node_model import Node, name

SECOND_US = 1_000_000


def snapshot(number: int, *txids: bytes) -> MempoolSnapshot:
    """Return a snapshot that was taken at time 0."""
    return MempoolSnapshot(number, frozenset(txids), 0, 0)


class Follower:
    """Gives a MempoolSync what a modelled node publishes, and answers its requests later."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.sync = MempoolSync()
        self.out: list[Output] = []
        self.wants: list[WantSnapshot | WantBlock] = []
        self.delivered = 0
        self.n_lost = 0

    def take(self, outputs: list[Output]) -> None:
        """Sort what the MempoolSync returned into outputs and requests."""
        self.out += [each for each in outputs if not isinstance(each, WantSnapshot | WantBlock)]
        self.wants += [each for each in outputs if isinstance(each, WantSnapshot | WantBlock)]

    def deliver(self, count: int) -> None:
        """Deliver the next published events to the MempoolSync."""
        for event in self.node.published[self.delivered : self.delivered + count]:
            self.delivered += 1
            if self.n_lost:
                self.take(self.sync.lose_step("gap", f"{self.n_lost} lost"))
            self.n_lost = 0
            self.take(self.sync.event(event, event.sequence * 1000))

    def lose(self, count: int) -> None:
        """Skip the next published events; the next delivery reports the gap."""
        lost = min(count, len(self.node.published) - self.delivered)
        self.delivered += lost
        self.n_lost += lost

    def answer(self) -> None:
        """Answer the oldest request with the node's present state."""
        if self.wants:
            want = self.wants.pop(0)
            if isinstance(want, WantSnapshot):
                now_us = len(self.node.published) * 1000
                self.take(
                    self.sync.snapshot(
                        want.request,
                        MempoolSnapshot(self.node.number, frozenset(self.node.mempool), now_us, now_us),
                    )
                )
            else:
                self.take(self.sync.block(want.block_hash, self.node.blocks[want.block_hash]))

    def settle(self) -> None:
        """Deliver every event and answer every request."""
        for _ in range(6):
            self.deliver(len(self.node.published))
            while self.wants:
                self.answer()
            self.take(self.sync.tick(len(self.node.published) * 1000 + CATCH_UP_US + 1))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**16), st.lists(st.sampled_from([0, 0, 2, 4, 5, 6]), min_size=5, max_size=40), st.data()
)
def test_a_silent_loss_is_noticed_by_the_numbers(seed: int, actions: list[int], data: st.DataObject) -> None:
    """An A or R that is lost without a gap in the topic's counter is noticed at the next A, at the latest."""
    node = Node(seed)
    follower = Follower(node)
    follower.take(follower.sync.start())
    follower.settle()
    for action in actions:
        node.do(action)
    candidates = [at for at, event in enumerate(node.published) if event.event in "AR"]
    if not candidates:
        return
    victim = data.draw(st.sampled_from(candidates))
    del node.published[victim]
    node.add()
    node.mine()
    node.add()
    follower.deliver(len(node.published))
    while isinstance(follower.wants[0] if follower.wants else None, WantBlock):
        follower.answer()
    assert any(isinstance(each, OutOfStep) for each in follower.out)
    follower.settle()
    assert follower.sync.txids == set(node.mempool)


def test_kinds_tell_how_an_entry_was_learnt() -> None:
    """A transaction of the first snapshot is at_start, one of an A pushed, one of a later snapshot pulled."""
    node = Node(1)
    node.add()
    node.published.clear()
    follower = Follower(node)
    follower.take(follower.sync.start())
    node.add()
    follower.settle()
    node.add()
    follower.lose(1)
    node.add()
    follower.settle()
    kinds = {each.txid: each.kind for each in follower.out if isinstance(each, TxEntered)}
    assert kinds == {name(1): "at_start", name(2): "pushed", name(3): "pulled", name(4): "pushed"}


def test_a_backlog_is_not_taken_for_silence() -> None:
    """When older events come late, the snapshot also waits for those that follow them."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, snapshot(10, name(1), name(9)))
    late_us = 3 * CATCH_UP_US
    first = Event("A", name(1), 8, 0, 1)
    last = Event("A", name(9), 9, 1, 2)
    assert sync.event(first, late_us) == []
    assert sync.tick(late_us + CATCH_UP_US - 1) == []
    out = sync.event(last, late_us + CATCH_UP_US)
    assert [each for each in out if isinstance(each, Event | InStep)] == [first, last, InStep(10, 3)]


def test_an_event_below_the_snapshot_that_comes_late_changes_nothing() -> None:
    """An event older than an applied snapshot becomes a row and does not change our copy."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, snapshot(10, name(1), name(2)))
    assert sync.tick(CATCH_UP_US - 1) == []
    assert InStep(10, 0) in sync.tick(CATCH_UP_US)
    late = Event("A", name(2), 9, 0, 1)
    assert sync.event(late, 1) == [late]
    gone = Event("R", name(3), 8, 1, 2)
    assert sync.event(gone, 2) == [gone, TxLeft(name(3), "removed", gone)]
    assert sync.in_step
    assert sync.txids == {name(1), name(2)}


def test_a_stale_snapshot_is_not_used() -> None:
    """A snapshot that was requested before a loss is ignored."""
    sync = MempoolSync()
    sync.start()
    sync.lose_step("gap", "again")
    sync.snapshot(1, snapshot(5, name(1)))
    assert sync.tick(SECOND_US) == []
    sync.snapshot(2, snapshot(6, name(2)))
    sync.tick(SECOND_US)
    assert sync.txids == {name(2)}


def test_a_debt_that_no_block_pays_is_a_loss() -> None:
    """Numbers that are missing before an R count as a loss when no block comes in time."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, snapshot(5, name(1), name(2)))
    sync.tick(SECOND_US)
    sync.event(Event("R", name(1), 6, 0, 7), SECOND_US)
    assert sync.tick(SECOND_US + DEBT_LIMIT_US) == []
    assert [type(each) for each in sync.tick(SECOND_US + DEBT_LIMIT_US + 1)] == [OutOfStep, WantSnapshot]


def test_a_number_that_goes_back_is_a_loss() -> None:
    """A number that came before counts as a loss: the node counts anew, or an event came twice."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, snapshot(5))
    sync.tick(SECOND_US)
    sync.event(Event("A", name(1), 5, 0, 1), 1)
    out = sync.event(Event("A", name(2), 5, 1, 2), 2)
    assert [each.reason for each in out if isinstance(each, OutOfStep)] == ["resync"]


def test_what_a_snapshot_shows_comes_after_a_block_before_its_request() -> None:
    """A transaction of a snapshot did not enter before a block that came before the snapshot was asked for.

    The events that wait while a jump is found count as older than the request, down to the last of them.
    """
    sync = MempoolSync()
    sync.start()
    sync.event(Event("A", name(1), 9, 0, 1), 1)
    sync.snapshot(1, snapshot(10, name(1)))
    first, second = name(101), name(102)
    assert sync.event(Event("C", first, None, 1, SECOND_US), SECOND_US) == [WantBlock(first)]
    sync.event(Event("A", name(2), 20, 2, 2 * SECOND_US), 2 * SECOND_US)
    assert sync.event(Event("C", second, None, 3, 3 * SECOND_US), 3 * SECOND_US) == [WantBlock(second)]
    out = sync.block(first, [name(1)])
    assert out[-1] == WantSnapshot(2)
    taken_us = 9 * SECOND_US
    shown = MempoolSnapshot(21, frozenset([name(3)]), taken_us, taken_us)
    assert sync.snapshot(2, shown) == []
    out = sync.block(second, [name(2)])
    assert TxEntered(name(3), "pulled", None, taken_us) in out
    assert InStep(21, taken_us) in out


def test_a_snapshot_is_not_dated_by_a_clock_that_was_set_back() -> None:
    """An event waits with the stamp of the clock before, hours ahead; the snapshot has the time of now."""
    sync = MempoolSync()
    sync.start()
    ahead_us = 7200 * SECOND_US
    sync.event(Event("A", name(1), 9, 0, ahead_us), 1)
    out = sync.snapshot(1, snapshot(10, name(1), name(2)))
    assert TxEntered(name(2), "at_start", None, 0) in out
    assert InStep(10, 0) in out


def test_flush_gives_out_what_waits() -> None:
    """A flush returns events that wait for a snapshot, and the transactions of known blocks as mined."""
    sync = MempoolSync()
    sync.start()
    events = [Event("A", name(1), 1, 0, 1), Event("A", name(2), 2, 1, 2), Event("C", name(9), None, 2, 3)]
    for event in events:
        assert sync.event(event, event.received_us) == []
    out = sync.flush(lambda _: [name(2)])
    assert [each for each in out if isinstance(each, Event)] == events
    assert TxLeft(name(2), "mined", events[2], name(9)) in out
    assert sync.n_waiting == 0


def test_a_snapshot_that_waits_is_dropped_by_a_flush() -> None:
    """After a flush, a waiting snapshot is not applied, however much time passes."""
    sync = MempoolSync()
    sync.start()
    sync.event(Event("A", name(1), 1, 0, 1), 1)
    sync.lose_step("gap", "again")
    sync.snapshot(2, snapshot(5, name(1), name(2)))
    sync.flush(lambda _: [])
    assert sync.tick(2 * CATCH_UP_US) == []


def test_a_block_that_is_asked_for_may_pay_a_debt_late() -> None:
    """While a C waits for its block's txids, the missing numbers that it explains are no loss."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, snapshot(5, name(1), name(2)))
    sync.tick(SECOND_US)
    sync.event(Event("R", name(1), 6, 0, 7), SECOND_US)
    sync.event(Event("C", name(9), None, 1, 8), SECOND_US)
    assert sync.tick(SECOND_US + 2 * DEBT_LIMIT_US) == []
    out = sync.block(name(9), [name(2)])
    assert [type(each) for each in out] == [Event, TxLeft]
    assert sync.tick(SECOND_US + 3 * DEBT_LIMIT_US) == []


def test_parses_what_the_node_sends() -> None:
    """Hashes come in display order and are kept in internal order; numbers are little-endian."""
    shown = bytes(range(32))
    event = parse_event(shown + b"A" + (258).to_bytes(8, "little"), 7, 1000)
    assert event == Event("A", shown[::-1], 258, 7, 1000)
    assert parse_event(shown + b"D", 8, 1001) == Event("D", shown[::-1], None, 8, 1001)


@given(st.binary(max_size=60))
def test_refuses_what_is_no_event(body: bytes) -> None:
    """Any bytes give either an event that encodes to them, or a DecodeError."""
    try:
        event = parse_event(body, 0, 0)
    except DecodeError:
        return
    number = event.mempool_sequence
    tail = b"" if number is None else number.to_bytes(8, "little")
    assert event.hash[::-1] + event.event.encode() + tail == body


@pytest.mark.parametrize("letter", [b"A", b"R"])
def test_a_transaction_without_a_number_is_refused(letter: bytes) -> None:
    """An A or R without a mempool sequence number raises DecodeError."""
    with pytest.raises(DecodeError, match="33 bytes"):
        parse_event(bytes(32) + letter, 0, 0)
