"""Follow one node's mempool by its ZMQ `sequence` topic, and keep our copy of it.

`MempoolSync` knows which txids are in the mempool. It is a state machine without sockets or clocks. Its
methods take events, RPC answers and the present time, and return a list of what happened and what is
needed. Each `now_us` is of the monotonic clock, so that setting the wall clock changes no wait. An event is
one of the node's letters: A a transaction was added, R one was removed, C a block was connected, D one was
disconnected. The rules are Bitcoin Core's own (`interface_zmq.py`, test_mempool_sync; `doc/zmq.md`):

- Subscribe first and hold events back. Take `getrawmempool` with its mempool sequence number S. Apply the
  events below S, replace our set of txids by the snapshot's, then go on from S.
- A and R carry consecutive numbers. A block uses up one number, without a message, for each of its
  transactions that was in the mempool. The removals of what conflicts with a block, and the additions of a
  reorganisation, come before the block's C. The numbers that they skip are a debt: the next blocks must have
  taken exactly so many transactions out of the mempool.
- Any other jump of the number means that messages were lost: our copy is out of step with the node's mempool
  until the next snapshot.

Every event comes out again, in order, whether our copy is in step or not.

`MempoolContents` keeps what each transaction spends, its fee, its size, and the values and types of its
outputs. This is enough to explain removals and to compute fees. A transaction that left is kept for half a
minute more, because the fees of its children may need the values of its outputs.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from collector.codec.format import OUTPOINT_BYTES, TXID_BYTES, VALUE_BYTES
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.transaction import Transaction
from collector.dataset.rows import HistogramItem
from collector.dataset.schema import OUTPUT_TYPES
from collector.errors import DecodeError

KEEP_DEPARTED_US: Final = 30_000_000
MOST_DEPARTED: Final = 50_000  # as many as in several blocks; bounds the memory when even more leave
FEERATE_BOUNDS: Final = (
    *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0, 40.0, 50.0),
    *(60.0, 70.0, 80.0, 100.0, 120.0, 140.0, 170.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0),
    *(1000.0, 1200.0, 1400.0, 1700.0, 2000.0, 5000.0, 10000.0),
)
CATCH_UP_US: Final = 500_000  # after so long without an event, nothing older than a snapshot comes
DEBT_LIMIT_US: Final = 5_000_000  # a block's C follows its evictions within milliseconds
BLOCK_BODY_BYTES: Final = 33
TX_BODY_BYTES: Final = 41
TYPE_NUMBERS: Final = {name: number for number, name in enumerate(OUTPUT_TYPES)}
MAX_MEMPOOL_SEQUENCE: Final = (1 << 63) - 1  # the most that the column can hold; a message can have more

# A record begins with the fee (-1 while unknown), the virtual size and the number of bytes of outpoints. The
# outpoints that the transaction spends follow, then the values of its outputs, then their types. A Python
# object with the same content would take twice the memory.
_head = Struct("<qII")
_UNKNOWN: Final = _head.pack(-1, 0, 0)


class SpentOutput(NamedTuple):
    """Holds value and type of an output; the type is a position in OUTPUT_TYPES, or UNKNOWN_TYPE."""

    value_sat: int
    type_number: int


class MempoolContents:
    """Holds the transactions in one node's mempool by txid, and a histogram of their feerates.

    Each transaction is packed into one `bytes` object, so that 200,000 of them fit in memory.
    """

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._departed: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()  # when it left, and its record
        self._bins = [[0, 0, 0] for _ in FEERATE_BOUNDS]

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._records

    def enter(self, txid: bytes, body: Transaction | None) -> None:
        """Add a transaction to these mempool contents by its txid.

        `body` is the decoded transaction, or None while we lack its bytes.
        """
        self._records.setdefault(txid, _UNKNOWN)
        if body is not None:
            self.learn_body(txid, body)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Store the outpoints that a transaction spends, and the values and types of its outputs.

        Does nothing when the transaction is not in the mempool, or when they are stored already.
        """
        record = self._records.get(txid)
        if record is not None and len(record) == _head.size:
            fee_sat, vsize_vb, _ = _head.unpack(record)
            head = _head.pack(fee_sat, vsize_vb, len(body.spent))
            self._records[txid] = b"".join((head, body.spent, body.values_sat, type_numbers(body)))

    def learn_fee(self, txid: bytes, fee_sat: int, vsize_vb: int) -> None:
        """Store a transaction's fee and virtual size, and count it in the histogram of feerates.

        Does nothing when the transaction is not in the mempool, or when its fee is stored already.
        """
        record = self._records.get(txid)
        if record is None:
            return
        known_fee_sat, _, spent_bytes = _head.unpack_from(record)
        if known_fee_sat < 0:
            self._records[txid] = _head.pack(fee_sat, vsize_vb, spent_bytes) + record[_head.size :]
            self._add_to_bin(fee_sat, vsize_vb, 1)

    def leave(self, txid: bytes, at_us: int) -> None:
        """Move a transaction from the mempool to those that left lately; do nothing when it is not there.

        `at_us` is the present time in microseconds on the monotonic clock; `forget` needs it.
        """
        record = self._records.pop(txid, None)
        if record is None:
            return
        fee_sat, vsize_vb, _ = _head.unpack_from(record)
        if fee_sat >= 0:
            self._add_to_bin(fee_sat, vsize_vb, -1)
        self._departed[txid] = at_us, record
        self._departed.move_to_end(txid)
        if len(self._departed) > MOST_DEPARTED:
            self._departed.popitem(last=False)

    def forget(self, now_us: int) -> None:
        """Drop the transactions that left more than half a minute before `now_us` (monotonic clock)."""
        while self._departed and now_us - next(iter(self._departed.values()))[0] > KEEP_DEPARTED_US:
            self._departed.popitem(last=False)

    def outpoints(self, txid: bytes) -> frozenset[bytes] | None:
        """Return the outpoints that a transaction in the mempool spends; None when we do not know them.

        They are also known for a transaction that left in the last half minute.
        """
        record = self._record(txid)
        if record is None or len(record) == _head.size:
            return None
        end = _head.size + _head.unpack_from(record)[2]
        return frozenset(record[at : at + OUTPOINT_BYTES] for at in range(_head.size, end, OUTPOINT_BYTES))

    def output(self, txid: bytes, index: int) -> SpentOutput | None:
        """Return one output of a mempool transaction; None when we do not know it.

        It is also known for a transaction that left in the last half minute.
        """
        record = self._record(txid)
        if record is None:
            return None
        begin = _head.size + _head.unpack_from(record)[2]
        n_outputs = (len(record) - begin) // (VALUE_BYTES + 1)
        if index >= n_outputs:
            return None
        at = begin + index * VALUE_BYTES
        value_sat = int.from_bytes(record[at : at + VALUE_BYTES], "little")
        return SpentOutput(value_sat, record[begin + n_outputs * VALUE_BYTES + index])

    def _record(self, txid: bytes) -> bytes | None:
        """Return the packed bytes of a transaction in the mempool or of one that left lately, else None."""
        record = self._records.get(txid)
        if record is None:
            departed = self._departed.get(txid)
            return None if departed is None else departed[1]
        return record

    def parents(self, body: Transaction) -> list[bytes]:
        """Return the txids of those parents of a transaction that are in the mempool, each once."""
        records = self._records
        parents = (spent[:TXID_BYTES] for spent in body.outpoints)
        return list(dict.fromkeys(parent for parent in parents if parent in records))

    def histogram(self) -> list[HistogramItem]:
        """Return the mempool's feerate histogram without empty bins, as `mempool_stats` stores it."""
        return [
            {"from_feerate_sat_vb": bound, "n_tx": n_tx, "vsize_vb": vsize_vb, "fees_sat": fees_sat}
            for bound, (n_tx, vsize_vb, fees_sat) in zip(FEERATE_BOUNDS, self._bins, strict=True)
            if n_tx
        ]

    def _add_to_bin(self, fee_sat: int, vsize_vb: int, sign: int) -> None:
        """Count a transaction in the histogram bin of its feerate.

        A `sign` of -1 takes it out of the bin again.
        """
        bin_ = self._bins[bisect_right(FEERATE_BOUNDS, fee_sat / max(vsize_vb, 1)) - 1]
        bin_[0] += sign
        bin_[1] += sign * vsize_vb
        bin_[2] += sign * fee_sat


def type_numbers(body: Transaction) -> bytes:
    """Return the type of each output of a transaction, one byte each.

    The types of a transaction that was decoded as a part of its block are unknown.
    """
    if body.traits is None:
        return bytes([UNKNOWN_TYPE]) * body.n_outputs
    return bytes([TYPE_NUMBERS[name] for name in body.traits["output_types"]])


class Event(NamedTuple):
    """Holds one decoded message of the `sequence` topic: its letter (A, R, C or D), hash and numbers."""

    event: str  # A, R, C or D
    hash: bytes  # txid (A, R) or block hash (C, D), internal byte order
    mempool_sequence: int | None  # A and R only
    sequence: int  # the topic's counter
    received_us: int


class TxEntered(NamedTuple):
    """Says that a transaction entered the mempool; `event` is None when only a snapshot shows it."""

    txid: bytes
    kind: str  # pushed, pulled or at_start
    event: Event | None
    at_us: int  # wall clock: time of the event, or a time between the events before and after the snapshot


class TxLeft(NamedTuple):
    """Says that a transaction left the mempool, and why."""

    txid: bytes
    cause: str  # removed (R), mined (C) or resync (it is not in the snapshot)
    event: Event | None
    block_hash: bytes | None = None
    at_us: int = 0  # wall clock; set only without an event, which else has the time


class WantSnapshot(NamedTuple):
    """Asks the caller for a snapshot (getrawmempool with mempool_sequence).

    The caller gives the answer to `MempoolSync.snapshot`, together with the number `request`.
    """

    request: int


class WantBlock(NamedTuple):
    """Asks the caller for the txids of a block; the caller gives them to `MempoolSync.block`."""

    block_hash: bytes


class InStep(NamedTuple):
    """Says that our copy of the mempool equals the node's from a mempool sequence number on."""

    mempool_sequence: int
    at_us: int  # wall clock


class OutOfStep(NamedTuple):
    """Says that our copy may differ from the node's mempool from now on; a WantSnapshot follows."""

    reason: str  # a value of schema.END_REASONS
    detail: str


Output = Event | TxEntered | TxLeft | WantSnapshot | WantBlock | InStep | OutOfStep


class MempoolSnapshot(NamedTuple):
    """Holds the txids in the mempool as of a mempool sequence number, and when the answer came."""

    mempool_sequence: int  # the number that comes next
    txids: frozenset[bytes]
    taken_us: int  # on the monotonic clock
    taken_wall_us: int


def parse_event(body: bytes, sequence: int, received_us: int) -> Event:
    """Decode a message of the `sequence` topic; raise DecodeError when it has no form that we know.

    `body` has 32 bytes of hash in display order and one letter. After A and R, the mempool sequence number
    follows, 8 bytes little-endian. `sequence` is the topic's counter, `received_us` the wall clock.
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
    """Keeps our copy of the txids in one node's mempool, and whether it is in step with (equals) the node's.

    Its methods return in order what happened (events, entries, exits) and what to ask the node for.
    """

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
        # Events below the floor that come after the snapshot do not change `txids`, but become rows. So these
        # are the differences between `txids` and the mempool as a reader of the rows sees it.
        self._late_in: set[bytes] = set()
        self._late_out: set[bytes] = set()
        self._expected = 0  # the next mempool sequence number
        self._debt = 0  # numbers that were skipped and that the next blocks must explain
        self._debt_since_us = self._debt_received_us = 0  # monotonic and wall clock
        self._reorganising = False
        self._settling = False  # a C was the last thing seen
        self._last_seen = -1  # the latest number that reached us
        self._heard_us = 0  # when the last event came
        self._now_us = 0

    def start(self) -> list[Output]:
        """Return the request for the first mempool snapshot; the node must have our subscription by then."""
        return [self._want_snapshot()]

    def event(self, event: Event, now_us: int) -> list[Output]:
        """Take the next event of the `sequence` topic; return the changes and requests that follow, in order.

        An event is held back while it waits for a snapshot or for a block's txids.
        """
        if event.mempool_sequence is not None:
            self._last_seen = event.mempool_sequence
        self._now_us = self._heard_us = now_us
        self._waiting.append(event)
        return self._advance()

    def snapshot(self, request: int, snapshot: MempoolSnapshot) -> list[Output]:
        """Take the snapshot of WantSnapshot number `request`; return the changes and requests that follow.

        The answer is ignored when messages were lost since the request: a newer request is open then.
        """
        if request == self._request and not self.in_step:
            self._snapshot = snapshot
        return self._advance()

    def block(self, block_hash: bytes, txids: Collection[bytes]) -> list[Output]:
        """Take a block's txids, the answer to WantBlock; return the mempool changes and requests that follow.

        The txids may include the coinbase or not.
        """
        if block_hash in self._blocks_wanted:
            self._blocks[block_hash] = txids
        return self._advance()

    def lose_step(self, reason: str, detail: str) -> list[Output]:
        """Stop trusting our copy of the mempool and ask for a new snapshot.

        Messages were, or may be, lost before the next event. `reason` is a value of schema.END_REASONS.
        Returns an OutOfStep, if the copy was in step, and the request for a snapshot.
        """
        lost: list[Output] = [OutOfStep(reason, detail)] if self.in_step else []
        self.in_step = False
        self._snapshot = None
        # Readers of the rows have these differences, so the next snapshot must correct them.
        self.txids = (self.txids | self._late_in) - self._late_out
        self._late_in, self._late_out = set(), set()
        return [*lost, self._want_snapshot()]

    def tick(self, now_us: int, given_until_us: int | None = None) -> list[Output]:
        """Apply a snapshot that waited long enough, or notice numbers that no block explained in time.

        Missing numbers mean that messages were lost; a new snapshot is then requested. Where received events
        have not been given yet, `given_until_us` says until when (wall clock) all have been given. Returns
        the mempool changes and requests that follow.
        """
        self._now_us = now_us
        if self._snapshot is not None:
            return self._advance()
        # The block that explains missing numbers may be among the waiting events.
        is_unpaid = self.in_step and self._debt and not self._waiting
        is_given = given_until_us is None or given_until_us - self._debt_received_us > DEBT_LIMIT_US
        if is_unpaid and is_given and now_us - self._debt_since_us > DEBT_LIMIT_US:
            return self._out_of_step(f"{self._debt} mempool sequence numbers are missing and no block came")
        return []

    def flush(self, txids_of: Callable[[bytes], Collection[bytes]]) -> list[Output]:
        """Return the held-back mempool events without checking their numbers, and stop trusting our copy.

        It is called when no more answers will come. `txids_of` returns the txids of a block, or none when
        they are unknown.
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
        """Return how many events are held back until a snapshot or a block comes."""
        return len(self._waiting)

    @property
    def waiting_since_us(self) -> int | None:
        """Return the earlier stamp (wall clock) of the first and last event held back; None without one."""
        return min(self._waiting[at].received_us for at in (0, -1)) if self._waiting else None

    def _advance(self) -> list[Output]:
        """Apply the mempool snapshot if it is ready, then every event that waits for nothing more.

        Returns what happened to our copy of the mempool, and what to ask the node for.
        """
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
        """Return whether all events older than the mempool snapshot have come, or no event came for long.

        A block takes numbers for what it takes out, and its C comes after the last number that it took.
        """
        if self._now_us - max(snapshot.taken_us, self._heard_us) >= CATCH_UP_US:
            return True
        if self._last_seen < snapshot.mempool_sequence - 1:
            return False
        expected, lacks_block = None, False
        for event in islice(self._waiting, self._n_before_request, None):
            if event.mempool_sequence is not None:
                lacks_block |= expected is not None and event.mempool_sequence > expected
                expected = event.mempool_sequence + 1
            lacks_block &= event.event != "C"
        return not lacks_block or self._now_us - snapshot.taken_us > DEBT_LIMIT_US

    def _want_blocks(self) -> list[WantBlock]:
        """Return a request for each block that a waiting event (C) names, unless it was requested before."""
        hashes = dict.fromkeys(event.hash for event in self._waiting if event.event == "C")
        new = [hash_ for hash_ in hashes if hash_ not in self._blocks and hash_ not in self._blocks_wanted]
        self._blocks_wanted.update(new)
        return [WantBlock(hash_) for hash_ in new]

    def _apply_snapshot(self, snapshot: MempoolSnapshot, out: list[Output]) -> None:
        """Apply the events older than the snapshot, then make our copy equal to the snapshot: we are in step.

        Appends to `out` the events, each transaction by which our copy differed, and InStep.
        """
        n_older = self._n_before_request
        for position, event in enumerate(self._waiting, start=1):
            if event.mempool_sequence is not None and event.mempool_sequence < snapshot.mempool_sequence:
                n_older = max(n_older, position)
        # A C after the last older event may be older or newer than the snapshot. It is applied after the
        # snapshot: if it is older, none of its transactions is left in the set and it does nothing.
        at_us, latest_us = snapshot.taken_wall_us, snapshot.taken_wall_us + DEBT_LIMIT_US  # of one clock
        for _ in range(n_older):
            event = self._waiting.popleft()
            self._apply(event, out)
            at_us = max(at_us, event.received_us + 1) if event.received_us <= latest_us else at_us
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
        """Apply an event while our copy equals the node's mempool; append what happened to `out`.

        When its number is not the expected one, let it wait again, and ask for a new snapshot.
        """
        number = event.mempool_sequence
        if number is not None and number < self._floor:
            self._apply_late(event, out)
            return
        if self._settling and event.event != "C":
            self._settling = self._reorganising = False
            if self._debt:
                self._waiting.appendleft(event)
                out += self._out_of_step(f"blocks explain all but {self._debt} mempool sequence numbers")
                return
        if number is not None:
            wrong = self._check_number(event, number)
            if wrong:
                self._waiting.appendleft(event)
                out += self._out_of_step(wrong)
                return
        n_mined = self._apply(event, out)
        if event.event == "C":
            self._settling = True
            self._expected += max(n_mined - self._debt, 0)
            self._debt = max(self._debt - n_mined, 0)
        elif event.event == "D":
            self._reorganising = True

    def _check_number(self, event: Event, number: int) -> str:
        """Return what is wrong with the mempool sequence number of an A or R, or "" if nothing is.

        Skipped numbers are added to those that the next blocks must explain.
        """
        jump = number - self._expected
        if jump < 0:
            return f"the mempool sequence went back from {self._expected} to {number}"
        if jump and not self._debt:
            self._debt_since_us, self._debt_received_us = self._now_us, event.received_us
        self._debt += jump
        self._expected = number + 1
        if self._debt and event.event == "A" and not self._reorganising:
            return f"the mempool sequence jumped to {number}: {self._debt} numbers are missing"
        return ""

    def _apply(self, event: Event, out: list[Output]) -> int:
        """Apply an event to our copy of the mempool; append what happened to `out`.

        Returns how many transactions a connected block (C) took out; 0 for other events.
        """
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
        """Report an event that the last snapshot already contains, without changing our copy.

        A reader of the events believes this event until a later one says otherwise. So the difference between
        that reader's mempool and our copy is kept.
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
        """Stop trusting our copy of the mempool and ask for a new snapshot: the sequence numbers show a loss.

        `detail` says what is wrong with them. Returns an OutOfStep and the request for the snapshot.
        """
        return self.lose_step("resync", detail)

    def _want_snapshot(self) -> WantSnapshot:
        """Return a request for a mempool snapshot; answers to earlier requests are ignored from now on."""
        self._request += 1
        self._n_before_request = len(self._waiting)
        return WantSnapshot(self._request)
