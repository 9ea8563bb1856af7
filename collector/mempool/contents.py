"""Keep our copy of a node's mempool: what each transaction spends, its output values, its fee and its size.

This is enough to explain removals and to compute fees. Each transaction is packed into one `bytes` object, so
that 200,000 of them fit in memory. A transaction that left is kept for half a minute more, because the fees
of its children may need the values of its outputs.

`RecentTransactions` keeps what `rawtx` messages brought for some seconds, until an event needs it. The node
publishes `rawtx` when a transaction enters the mempool, and again when a block that contains it is connected
or disconnected. A transaction whose bytes were seen lately is not decoded again.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import Final

from collector.codec.decode import OUTPOINT_BYTES, TXID_BYTES, VALUE_BYTES, Transaction
from collector.codec.decode_many import decode_transactions
from collector.dataset.rows import HistogramItem
from collector.errors import DecodeError

KEEP_DEPARTED_US: Final = 30_000_000
MOST_DEPARTED: Final = 50_000  # as many as in several blocks; bounds the memory when even more leave
FEERATE_BOUNDS: Final = (
    *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0, 40.0, 50.0),
    *(60.0, 70.0, 80.0, 100.0, 120.0, 140.0, 170.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0),
    *(1000.0, 1200.0, 1400.0, 1700.0, 2000.0, 5000.0, 10000.0),
)


# A record begins with the fee (-1 while unknown), the virtual size and the number of bytes of outpoints. The
# outpoints that the transaction spends and the values of its outputs follow. A Python object with the same
# content would take twice the memory.
_head = Struct("<qII")
_UNKNOWN: Final = _head.pack(-1, 0, 0)


class MempoolContents:
    """Holds the transactions in one node's mempool by txid, and a histogram of their feerates."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes] = {}
        self._departed: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()  # when it left, and its record
        self._bins = [[0, 0, 0] for _ in FEERATE_BOUNDS]

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._records

    def enter(self, txid: bytes, body: Transaction | None) -> None:
        """Add a transaction by its txid.

        `body` is the decoded transaction, or None while we lack its bytes.
        """
        self._records.setdefault(txid, _UNKNOWN)
        if body is not None:
            self.learn_body(txid, body)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Store the outpoints that a transaction spends and the values of its outputs.

        Does nothing when the transaction is not in the mempool, or when both are stored already.
        """
        record = self._records.get(txid)
        if record is not None and len(record) == _head.size:
            fee_sat, vsize_vb, _ = _head.unpack(record)
            head = _head.pack(fee_sat, vsize_vb, len(body.spent))
            self._records[txid] = b"".join((head, body.spent, body.values_sat))

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
        """Move a transaction from the mempool to those that left lately.

        Do nothing when it is not in the mempool. `at_us` is the present time in microseconds on the monotonic
        clock; `forget` needs it.
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
        """Return the outpoints that a transaction spends, also when it left lately.

        None when we do not know them.
        """
        record = self._record(txid)
        if len(record) == _head.size:
            return None
        end = _head.size + _head.unpack_from(record)[2]
        return frozenset(record[at : at + OUTPOINT_BYTES] for at in range(_head.size, end, OUTPOINT_BYTES))

    def value_sat(self, txid: bytes, index: int) -> int | None:
        """Return the value of one output of a transaction, also when it left lately.

        None when we do not know it.
        """
        record = self._record(txid)
        at = _head.size + _head.unpack_from(record)[2] + index * VALUE_BYTES
        value = record[at : at + VALUE_BYTES]
        return int.from_bytes(value, "little") if value else None

    def _record(self, txid: bytes) -> bytes:
        """Return the packed bytes of a transaction in the mempool or of one that left lately.

        For any other txid it returns a record without fee, outpoints and values.
        """
        record = self._records.get(txid)
        return self._departed.get(txid, (0, _UNKNOWN))[1] if record is None else record

    def parents(self, body: Transaction) -> list[bytes]:
        """Return the txids of those parents of a transaction that are in the mempool, each once."""
        records = self._records
        parents = (spent[:TXID_BYTES] for spent in body.outpoints)
        return list(dict.fromkeys(parent for parent in parents if parent in records))

    def histogram(self) -> list[HistogramItem]:
        """Return the feerate bins that are not empty, as values of the column `mempool_stats.histogram`."""
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


KEEP_US: Final = 10_000_000  # after so long no event needs a transaction: it was published with its block
MOST_KEPT: Final = 50_000  # we ask the node by RPC for a transaction that was dropped too early
MOST_SEEN: Final = 200_000  # how many digests each of the two generations holds


class RecentTransactions:
    """Decodes the transactions of `rawtx` messages, and keeps them by txid for about ten seconds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Transaction, int]] = OrderedDict()
        # Digests of the bytes that were seen, in two generations: when the newer is full, the older goes.
        # A digest is Python's keyed 64-bit hash. If two collide, we ask the node by RPC for the transaction.
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def decode_new(self, raws: Sequence[bytes], received_us: int) -> list[Transaction | DecodeError | None]:
        """Decode and keep the transactions among `raws` whose bytes have not been seen lately.

        Returns one result for each element of `raws`: the transaction, or the error of decoding it, or None
        when the same bytes were seen before. `received_us` is the time of receipt on the monotonic clock.
        """
        digests = [hash(raw) for raw in raws]
        first: dict[int, int] = {}
        for at, digest in enumerate(digests):
            if digest not in self._newer and digest not in self._older:
                first.setdefault(digest, at)
        decoded = decode_transactions([raws[at] for at in first.values()])
        found: list[Transaction | DecodeError | None] = [None] * len(raws)
        faulty: dict[int, DecodeError] = {}
        for (digest, at), body in zip(first.items(), decoded, strict=True):
            if isinstance(body, DecodeError):
                faulty[digest] = body
                continue
            found[at] = body
            self._newer.add(digest)
            self._kept[body.txid] = body, received_us
        if faulty:  # faulty bytes are reported each time they come
            found = [faulty.get(digest, body) for digest, body in zip(digests, found, strict=True)]
        if len(self._newer) > MOST_SEEN:
            self._older, self._newer = self._newer, set()
        return found

    def get(self, txid: bytes) -> Transaction | None:
        """Return the transaction with this txid, or None when it is not kept or no longer kept."""
        found = self._kept.get(txid)
        return None if found is None else found[0]

    def pop(self, txid: bytes) -> Transaction | None:
        """Remove the transaction with this txid and return it; return None when it is not kept."""
        found = self._kept.pop(txid, None)
        return None if found is None else found[0]

    def forget(self, now_us: int) -> None:
        """Drop the transactions received over ten seconds before `now_us`, and the oldest of too many."""
        while self._kept:
            txid, (_, received_us) = next(iter(self._kept.items()))
            if now_us - received_us <= KEEP_US and len(self._kept) <= MOST_KEPT:
                return
            del self._kept[txid]
