"""Follow one node's mempool by its ZMQ `sequence` topic: a state machine without sockets or clocks.

Events, RPC answers and the passing of time go in. A list of what happened and what is needed comes out. Each
`now_us` is of the monotonic clock, so that nobody who sets the wall clock changes a wait. The rules are
Bitcoin Core's own (`interface_zmq.py`, test_mempool_sync; `doc/zmq.md`):

- Subscribe first and hold events back. Take `getrawmempool` with its mempool sequence number S. Apply the
  events below S, correct our set by the snapshot, then go on from S.
- A and R carry consecutive numbers. A block uses up one number, without a message, for each of its
  transactions that was in the mempool. The removals of what conflicts with a block, and the additions of a
  reorganisation, come before the block's C. The numbers that they skip are a debt, which the next blocks must
  pay exactly.
- Anything else is a loss: we are out of step until the next snapshot.

Every event comes out again, in order, whether we are in step or not.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from collector.errors import DecodeError

CATCH_UP_US: Final = 500_000  # how long events older than a snapshot may still be on their way
DEBT_LIMIT_US: Final = 5_000_000  # a block's C follows its evictions within milliseconds
BLOCK_BODY_BYTES: Final = 33
TX_BODY_BYTES: Final = 41
MAX_MEMPOOL_SEQUENCE: Final = (1 << 63) - 1  # what the column holds; the message has room for more


class Event(NamedTuple):
    """One message of the `sequence` topic."""

    event: str  # A, R, C or D
    hash: bytes  # txid (A, R) or block hash (C, D), internal byte order
    mempool_sequence: int | None  # A and R only
    sequence: int  # the topic's counter
    received_us: int


class TxEntered(NamedTuple):
    """A transaction entered the mempool; `event` is None when only a snapshot shows it."""

    txid: bytes
    kind: str  # pushed, pulled or at_start
    event: Event | None
    at_us: int  # wall clock: time of the event, or a time between the events before and after the snapshot


class TxLeft(NamedTuple):
    """A transaction left the mempool."""

    txid: bytes
    cause: str  # removed (R), mined (C) or resync (it is not in the snapshot)
    event: Event | None
    block_hash: bytes | None = None
    at_us: int = 0  # wall clock, when only a snapshot shows it; else the event has the time


class WantSnapshot(NamedTuple):
    """A request for getrawmempool with mempool_sequence; `snapshot` takes the answer and this number."""

    request: int


class WantBlock(NamedTuple):
    """A request for the txids of a block; `block` takes the answer."""

    block_hash: bytes


class InStep(NamedTuple):
    """Our copy of the mempool equals the node's from here on."""

    mempool_sequence: int
    at_us: int  # wall clock


class OutOfStep(NamedTuple):
    """Our copy may differ from the node's mempool from here on; a snapshot is requested."""

    reason: str  # a value of schema.END_REASONS
    detail: str


Output = Event | TxEntered | TxLeft | WantSnapshot | WantBlock | InStep | OutOfStep


class MempoolSnapshot(NamedTuple):
    """The txids in the mempool as of a mempool sequence number, and when the answer came."""

    mempool_sequence: int  # the number that comes next
    txids: frozenset[bytes]
    taken_us: int  # on the monotonic clock
    taken_wall_us: int


def parse_event(body: bytes, sequence: int, received_us: int) -> Event:
    """Decode a message of the `sequence` topic; raise DecodeError when it is wrong.

    It has 32 bytes of hash in display order and one letter. A and R are followed by the mempool sequence
    number, 8 bytes little-endian.
    """
    letter = body[32:33]
    if len(body) == TX_BODY_BYTES and letter in (b"A", b"R"):
        number: int | None = int.from_bytes(body[33:], "little")
        if number is not None and number > MAX_MEMPOOL_SEQUENCE:
            raise DecodeError(f"a mempool sequence of {number}: above {MAX_MEMPOOL_SEQUENCE}")
    elif len(body) == BLOCK_BODY_BYTES and letter in (b"C", b"D"):
        number = None
    else:
        raise DecodeError(f"a sequence message of {len(body)} bytes with label {letter!r} has no known form")
    return Event(letter.decode(), body[31::-1], number, sequence, received_us)


class MempoolSync:
    """Our copy of the txids in one node's mempool, and whether it is in step with the node."""

    def __init__(self) -> None:
        self.txids: set[bytes] = set()
        self.in_step = False
        self._ever_in_step = False
        self._waiting: deque[Event] = deque()
        self._blocks: dict[bytes, Collection[bytes]] = {}
        self._blocks_wanted: set[bytes] = set()
        self._snapshot: MempoolSnapshot | None = None
        self._request = 0
        self._n_before_request = 0  # waiting events that came before the snapshot was requested
        self._floor = 0  # the last snapshot contains the events with numbers below this
        # Events below the floor that come after the snapshot: who follows the events believes them, so these
        # are the differences between what the events say and `txids`.
        self._late_in: set[bytes] = set()
        self._late_out: set[bytes] = set()
        self._expected = 0  # the next mempool sequence number
        self._debt = 0  # numbers that were skipped and that the next blocks must explain
        self._debt_since_us = 0
        self._reorganising = False
        self._settling = False  # a C was the last thing seen
        self._last_seen = -1  # the latest number that reached us
        self._heard_us = 0  # when the last event came
        self._now_us = 0

    def start(self) -> list[Output]:
        """Request the first snapshot. The subscription must be in place."""
        return [self._want_snapshot()]

    def event(self, event: Event, now_us: int) -> list[Output]:
        """Take the next event of the topic."""
        if event.mempool_sequence is not None:
            self._last_seen = event.mempool_sequence
        self._now_us = self._heard_us = now_us
        self._waiting.append(event)
        return self._advance()

    def snapshot(self, request: int, snapshot: MempoolSnapshot) -> list[Output]:
        """Take the answer to WantSnapshot `request`; ignore it when messages were lost since then."""
        if request == self._request and not self.in_step:
            self._snapshot = snapshot
        return self._advance()

    def block(self, block_hash: bytes, txids: Collection[bytes]) -> list[Output]:
        """Take the txids of a block, the answer to WantBlock; the coinbase may be among them or not."""
        if block_hash in self._blocks_wanted:
            self._blocks[block_hash] = txids
        return self._advance()

    def lose_step(self, reason: str, detail: str) -> list[Output]:
        """Go out of step, because messages were or may have been lost just before the next event."""
        lost: list[Output] = [OutOfStep(reason, detail)] if self.in_step else []
        self.in_step = False
        self._snapshot = None
        # The next snapshot must correct what was given out.
        self.txids = (self.txids | self._late_in) - self._late_out
        self._late_in, self._late_out = set(), set()
        return [*lost, self._want_snapshot()]

    def tick(self, now_us: int) -> list[Output]:
        """Let time pass: apply a snapshot that waited long enough, or notice a debt that no block paid."""
        self._now_us = now_us
        if self._snapshot is not None:
            return self._advance()
        is_unpaid = self.in_step and self._debt and not self._waiting  # the block may be among what waits
        if is_unpaid and now_us - self._debt_since_us > DEBT_LIMIT_US:
            return self._out_of_step(f"{self._debt} mempool sequence numbers are missing and no block came")
        return []

    def flush(self, txids_of: Callable[[bytes], Collection[bytes]]) -> list[Output]:
        """Give out the events that are held back, without checking them, and be out of step.

        No more answers will come. `txids_of` returns the txids of a block as far as they are known.
        """
        out: list[Output] = []
        while self._waiting:
            event = self._waiting.popleft()
            if event.event == "C":
                self._blocks[event.hash] = txids_of(event.hash)
            self._apply(event, out)
        self.in_step = False
        self._snapshot = None
        self._n_before_request = 0
        return out

    @property
    def n_waiting(self) -> int:
        """Events that are held back until a snapshot or a block comes."""
        return len(self._waiting)

    def _advance(self) -> list[Output]:
        """Apply the snapshot if it is ready, then every event that waits for nothing more."""
        out: list[Output] = []
        if not self.in_step:
            if self._snapshot is None or not self._caught_up(self._snapshot):
                return out
            if any(event.event == "C" and event.hash not in self._blocks for event in self._waiting):
                return [*self._want_blocks()]
            self._apply_snapshot(self._snapshot, out)
        while self.in_step and self._waiting:
            head = self._waiting[0]
            if head.event == "C" and head.hash not in self._blocks:
                return [*out, *self._want_blocks()]
            self._waiting.popleft()
            self._apply_checked(head, out)
        return out

    def _caught_up(self, snapshot: MempoolSnapshot) -> bool:
        """Return whether every event below the snapshot has come, or the topic was silent for long enough."""
        has_come = self._last_seen >= snapshot.mempool_sequence - 1
        return has_come or self._now_us - max(snapshot.taken_us, self._heard_us) >= CATCH_UP_US

    def _want_blocks(self) -> list[WantBlock]:
        """Request the blocks that waiting events name, each once."""
        hashes = dict.fromkeys(event.hash for event in self._waiting if event.event == "C")
        new = [hash_ for hash_ in hashes if hash_ not in self._blocks and hash_ not in self._blocks_wanted]
        self._blocks_wanted.update(new)
        return [WantBlock(hash_) for hash_ in new]

    def _apply_snapshot(self, snapshot: MempoolSnapshot, out: list[Output]) -> None:
        """Apply the events that are older than the snapshot, correct our set by it, and be in step."""
        n_older = self._n_before_request
        for position, event in enumerate(self._waiting, start=1):
            if event.mempool_sequence is not None and event.mempool_sequence < snapshot.mempool_sequence:
                n_older = max(n_older, position)
        # A C after the last older event may be older or newer than the snapshot. It is applied after the
        # snapshot: if it is older, none of its transactions is left in the set and it does nothing.
        at_us = snapshot.taken_wall_us
        for _ in range(n_older):
            event = self._waiting.popleft()
            self._apply(event, out)
            at_us = max(at_us, event.received_us + 1)
        if self._waiting:  # what the snapshot shows happened before them
            at_us = min(at_us, self._waiting[0].received_us)
        for event in self._waiting:
            if event.event == "C":
                mined = [
                    txid
                    for txid in self._blocks[event.hash]
                    if txid in self.txids and txid not in snapshot.txids
                ]
                out += [TxLeft(txid, "mined", event, event.hash) for txid in mined]
                self.txids.difference_update(mined)
        gone = sorted(self.txids - snapshot.txids)
        out += [TxLeft(txid, "resync", None, at_us=at_us) for txid in gone]
        kind = "pulled" if self._ever_in_step else "at_start"
        out += [TxEntered(txid, kind, None, at_us) for txid in sorted(snapshot.txids - self.txids)]
        out.append(InStep(snapshot.mempool_sequence, at_us))
        self.txids = set(snapshot.txids)
        self.in_step = self._ever_in_step = True
        self._expected = self._floor = snapshot.mempool_sequence
        self._debt = 0
        self._reorganising = self._settling = False
        self._snapshot = None

    def _apply_checked(self, event: Event, out: list[Output]) -> None:
        """Apply an event while in step; go out of step when its number is not the one that must come."""
        number = event.mempool_sequence
        if number is not None and number < self._floor:
            self._apply_late(event, out)
            return
        if self._settling and event.event != "C":
            self._settling = self._reorganising = False
            if self._debt:
                out += self._out_of_step(f"blocks explain all but {self._debt} mempool sequence numbers")
                self._waiting.appendleft(event)
                return
        if number is not None:
            wrong = self._check_number(event.event, number)
            if wrong:
                out += self._out_of_step(wrong)
                self._waiting.appendleft(event)
                return
        n_mined = self._apply(event, out)
        if event.event == "C":
            self._settling = True
            self._expected += max(n_mined - self._debt, 0)
            self._debt = max(self._debt - n_mined, 0)
        elif event.event == "D":
            self._reorganising = True

    def _check_number(self, letter: str, number: int) -> str:
        """Return what is wrong with a number, or "", and count the numbers that a block must explain."""
        jump = number - self._expected
        if jump < 0:
            return f"the mempool sequence went back from {self._expected} to {number}"
        if jump and not self._debt:
            self._debt_since_us = self._now_us
        self._debt += jump
        self._expected = number + 1
        if self._debt and letter == "A" and not self._reorganising:
            return f"the mempool sequence jumped to {number}: {self._debt} numbers are missing"
        return ""

    def _apply(self, event: Event, out: list[Output]) -> int:
        """Change our set as the event says; return how many transactions a block took out of it."""
        out.append(event)
        if event.event == "A":
            if event.hash not in self.txids:
                self.txids.add(event.hash)
                out.append(TxEntered(event.hash, "pushed", event, event.received_us))
        elif event.event == "R":
            self.txids.discard(event.hash)
            out.append(TxLeft(event.hash, "removed", event))
        elif event.event == "C":
            mined = [txid for txid in self._blocks[event.hash] if txid in self.txids]
            late = [txid for txid in self._blocks[event.hash] if txid in self._late_in]
            self.txids.difference_update(mined)
            self._late_in.difference_update(late)
            if not any(later.hash == event.hash and later.event == "C" for later in self._waiting):
                del self._blocks[event.hash]
                self._blocks_wanted.discard(event.hash)
            out += [TxLeft(txid, "mined", event, event.hash) for txid in mined + late]
            return len(mined)
        return 0

    def _apply_late(self, event: Event, out: list[Output]) -> None:
        """Report an event that the last snapshot already contains, without changing our set.

        Who follows the events believes it until a later event says otherwise, so the difference is kept.
        """
        out.append(event)
        if event.event == "A":
            self._late_out.discard(event.hash)
            if event.hash not in self.txids and event.hash not in self._late_in:
                self._late_in.add(event.hash)
                out.append(TxEntered(event.hash, "pushed", event, event.received_us))
        elif event.hash not in self.txids:
            self._late_in.discard(event.hash)
            out.append(TxLeft(event.hash, "removed", event))
        else:
            self._late_out.add(event.hash)

    def _out_of_step(self, detail: str) -> list[Output]:
        """Go out of step because the numbers do not fit."""
        return self.lose_step("resync", detail)

    def _want_snapshot(self) -> WantSnapshot:
        """Request a snapshot; an answer to an earlier request is ignored from now on."""
        self._request += 1
        self._n_before_request = len(self._waiting)
        return WantSnapshot(self._request)
