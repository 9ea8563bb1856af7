"""Follow one node's mempool by its ZMQ `sequence` topic: a state machine without sockets or clocks.

Events, RPC answers and the passing of time go in; what happened and what is needed comes out, as a list.
Each `now_us` is of the monotonic clock: no wait hangs on a wall clock that someone sets. The rules are
Bitcoin Core's own (`interface_zmq.py`, test_mempool_sync; `doc/zmq.md`):

- subscribe first, keep events back, take `getrawmempool` with its mempool sequence number S, apply the events
  below S, correct our set by the snapshot, then go on from S;
- A and R carry consecutive numbers; a block uses up one number, unsaid, for each of its transactions that was
  in the mempool. Evictions of what conflicts with a block, and the additions of a reorganisation, come before
  its C: the numbers they skip are a debt that the next blocks must pay exactly;
- anything else is a loss: we are out of step until the next snapshot.

Every event comes out again, in order, whether we are in step or not.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from collector.errors import DecodeError

CATCH_UP_US: Final = 500_000  # how long events older than a snapshot may still be under way
DEBT_LIMIT_US: Final = 5_000_000  # a block's C follows its evictions within milliseconds
BLOCK_BODY_BYTES: Final = 33
TX_BODY_BYTES: Final = 41


class Event(NamedTuple):
    """One message of the `sequence` topic."""

    event: str  # A, R, C or D
    hash: bytes  # txid (A, R) or block hash (C, D), internal byte order
    mempool_sequence: int | None  # A and R only
    sequence: int  # the topic's counter
    received_us: int


class TxEntered(NamedTuple):
    """A transaction is in the mempool; `event` is None when a snapshot told us."""

    txid: bytes
    kind: str  # pushed, pulled or at_start
    event: Event | None
    at_us: int  # wall clock: of the event, or between those before and behind the snapshot


class TxLeft(NamedTuple):
    """A transaction is no longer in the mempool."""

    txid: bytes
    cause: str  # removed (R), mined (C) or resync (it is not in the snapshot)
    event: Event | None
    block_hash: bytes | None = None
    at_us: int = 0  # wall clock, where a snapshot told us; else the event has it


class WantSnapshot(NamedTuple):
    """Take getrawmempool with mempool_sequence and answer with `snapshot`, giving the same number."""

    request: int


class WantBlock(NamedTuple):
    """Find the txids of this block and answer with `block`."""

    block_hash: bytes


class InStep(NamedTuple):
    """From here on our copy of the mempool is the node's."""

    mempool_sequence: int
    at_us: int  # wall clock


class OutOfStep(NamedTuple):
    """Our copy can no longer be trusted; a snapshot is asked for."""

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
    """Decode a body of the `sequence` topic; raises DecodeError.

    32 bytes of hash in display order, one letter; for A and R the mempool sequence, 8 bytes little-endian.
    """
    letter = body[32:33]
    if len(body) == TX_BODY_BYTES and letter in (b"A", b"R"):
        number: int | None = int.from_bytes(body[33:], "little")
    elif len(body) == BLOCK_BODY_BYTES and letter in (b"C", b"D"):
        number = None
    else:
        raise DecodeError(f"a sequence message of {len(body)} bytes with label {letter!r} is none we know")
    return Event(letter.decode(), body[31::-1], number, sequence, received_us)


class MempoolSync:
    """The set of txids in one node's mempool, and whether it is to be trusted."""

    def __init__(self) -> None:
        self.txids: set[bytes] = set()
        self.in_step = False
        self._ever_in_step = False
        self._waiting: deque[Event] = deque()
        self._blocks: dict[bytes, Collection[bytes]] = {}
        self._blocks_wanted: set[bytes] = set()
        self._snapshot: MempoolSnapshot | None = None
        self._request = 0
        self._n_before_request = 0  # so many of the waiting events came before the snapshot was asked for
        self._floor = 0  # numbers below are part of the last snapshot
        self._late_in: set[bytes] = set()  # as events below it had it, which came behind it; else as `txids`
        self._late_out: set[bytes] = set()
        self._expected = 0
        self._debt = 0
        self._debt_since_us = 0
        self._reorganising = False
        self._settling = False  # a C was the last thing seen
        self._last_seen = -1  # newest number that reached us
        self._heard_us = 0  # when the last event was taken
        self._now_us = 0

    def start(self) -> list[Output]:
        """Ask for the first snapshot. The subscription must be in place."""
        return [self._want_snapshot()]

    def event(self, event: Event, now_us: int) -> list[Output]:
        """Take one event, in the order of its topic."""
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
        """Take the answer to WantBlock, coinbase included or not."""
        if block_hash in self._blocks_wanted:
            self._blocks[block_hash] = txids
        return self._advance()

    def lose_step(self, reason: str, detail: str) -> list[Output]:
        """Note that messages were or may have been lost just before the next event."""
        lost: list[Output] = [OutOfStep(reason, detail)] if self.in_step else []
        self.in_step = False
        self._snapshot = None
        # What was given out is what the next snapshot must correct.
        self.txids = (self.txids | self._late_in) - self._late_out
        self._late_in, self._late_out = set(), set()
        return [*lost, self._want_snapshot()]

    def tick(self, now_us: int) -> list[Output]:
        """Let time pass."""
        self._now_us = now_us
        if self._snapshot is not None:
            return self._advance()
        is_unpaid = self.in_step and self._debt and not self._waiting  # what waits may be the block
        if is_unpaid and now_us - self._debt_since_us > DEBT_LIMIT_US:
            return self._out_of_step(f"{self._debt} mempool sequence numbers are missing and no block came")
        return []

    def flush(self, txids_of: Callable[[bytes], Collection[bytes]]) -> list[Output]:
        """Give out what is kept back, unverified: no more answers will come. We are out of step after it.

        `txids_of` returns what is known of a block's transactions.
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
        """Events kept back until a snapshot or a block is there."""
        return len(self._waiting)

    def _advance(self) -> list[Output]:
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
        """Whether every event below the snapshot has reached us, or had its time to: it is silent."""
        has_come = self._last_seen >= snapshot.mempool_sequence - 1
        return has_come or self._now_us - max(snapshot.taken_us, self._heard_us) >= CATCH_UP_US

    def _want_blocks(self) -> list[WantBlock]:
        """Ask for the blocks that wait, each once."""
        hashes = dict.fromkeys(event.hash for event in self._waiting if event.event == "C")
        new = [hash_ for hash_ in hashes if hash_ not in self._blocks and hash_ not in self._blocks_wanted]
        self._blocks_wanted.update(new)
        return [WantBlock(hash_) for hash_ in new]

    def _apply_snapshot(self, snapshot: MempoolSnapshot, out: list[Output]) -> None:
        """Apply what is older than the snapshot, correct our set by it, and be in step."""
        n_older = self._n_before_request
        for position, event in enumerate(self._waiting, start=1):
            if event.mempool_sequence is not None and event.mempool_sequence < snapshot.mempool_sequence:
                n_older = max(n_older, position)
        # A C behind the last older event may be older or newer than the snapshot. It is applied after it: if
        # it was older, none of its transactions is left in the set and it does nothing.
        at_us = snapshot.taken_wall_us
        for _ in range(n_older):
            event = self._waiting.popleft()
            self._apply(event, out)
            at_us = max(at_us, event.received_us + 1)
        if self._waiting:  # what the snapshot tells was before them
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
        """Apply an event in step, and see whether its number is the one that must come."""
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
        """Say what is wrong with a number, or nothing; keep account of what a block must explain."""
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
        """Change the set as the event says; return how many transactions a block took from it."""
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
        """Report an event that the last snapshot already contains, without changing the set.

        Who follows the events believes it, until the late ones behind it say otherwise.
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
        return self.lose_step("resync", detail)

    def _want_snapshot(self) -> WantSnapshot:
        self._request += 1
        self._n_before_request = len(self._waiting)
        return WantSnapshot(self._request)
