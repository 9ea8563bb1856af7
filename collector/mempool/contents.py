"""What we keep of every transaction in a node's mempool: enough to explain removals and find fees.

One string of bytes per transaction, so that 200,000 of them fit in memory. What left is kept for half a
minute, because its children may ask for the value of its outputs.
"""

from bisect import bisect_right
from collections import OrderedDict
from struct import Struct
from typing import Final

from collector.codec.decode import OUTPOINT_BYTES, TXID_BYTES, VALUE_BYTES, Transaction
from collector.dataset.rows import HistogramItem

KEEP_LEFT_US: Final = 30_000_000
MOST_LEFT: Final = 50_000  # several blocks; a flood takes more out of the mempool in half a minute
FEERATE_BOUNDS: Final = (
    *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0, 40.0, 50.0),
    *(60.0, 70.0, 80.0, 100.0, 120.0, 140.0, 170.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0),
    *(1000.0, 1200.0, 1400.0, 1700.0, 2000.0, 5000.0, 10000.0),
)


# A record: fee (-1 while unknown), virtual size, bytes of outpoints; then the outpoints it spends, and the
# values of its outputs. An object with fields would take twice as much.
_head = Struct("<qII")
_UNKNOWN: Final = _head.pack(-1, 0, 0)


class MempoolContents:
    """The transactions in one node's mempool, by txid, with a histogram of their feerates."""

    def __init__(self) -> None:
        self._live: dict[bytes, bytes] = {}
        self._left: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()  # when it left, and its record
        self._bins = [[0, 0, 0] for _ in FEERATE_BOUNDS]

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._live

    def enter(self, txid: bytes, body: Transaction | None) -> None:
        """Add a transaction."""
        self._live.setdefault(txid, _UNKNOWN)
        if body is not None:
            self.learn_body(txid, body)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Note what a transaction spends and pays, if it is in the mempool."""
        record = self._live.get(txid)
        if record is not None and len(record) == _head.size:
            fee_sat, vsize_vb, _ = _head.unpack(record)
            head = _head.pack(fee_sat, vsize_vb, len(body.spent))
            self._live[txid] = b"".join((head, body.spent, body.values_sat))

    def learn_fee(self, txid: bytes, fee_sat: int, vsize_vb: int) -> None:
        """Note a transaction's fee, if it is in the mempool."""
        record = self._live.get(txid)
        if record is None:
            return
        known_sat, _, spent_bytes = _head.unpack_from(record)
        if known_sat < 0:
            self._live[txid] = _head.pack(fee_sat, vsize_vb, spent_bytes) + record[_head.size :]
            self._add_to_bin(fee_sat, vsize_vb, 1)

    def leave(self, txid: bytes, at_us: int) -> None:
        """Take a transaction out, if it is there."""
        record = self._live.pop(txid, None)
        if record is None:
            return
        fee_sat, vsize_vb, _ = _head.unpack_from(record)
        if fee_sat >= 0:
            self._add_to_bin(fee_sat, vsize_vb, -1)
        self._left[txid] = at_us, record
        self._left.move_to_end(txid)
        if len(self._left) > MOST_LEFT:
            self._left.popitem(last=False)

    def forget(self, now_us: int) -> None:
        """Drop what left long ago."""
        while self._left and now_us - next(iter(self._left.values()))[0] > KEEP_LEFT_US:
            self._left.popitem(last=False)

    def outpoints(self, txid: bytes) -> frozenset[bytes] | None:
        """Return what a transaction that is or was here spends; None when unknown."""
        record = self._record(txid)
        if len(record) == _head.size:
            return None
        end = _head.size + _head.unpack_from(record)[2]
        return frozenset(record[at : at + OUTPOINT_BYTES] for at in range(_head.size, end, OUTPOINT_BYTES))

    def value_sat(self, txid: bytes, index: int) -> int | None:
        """Return the value of an output of a transaction that is or was here."""
        record = self._record(txid)
        at = _head.size + _head.unpack_from(record)[2] + index * VALUE_BYTES
        value = record[at : at + VALUE_BYTES]
        return int.from_bytes(value, "little") if value else None

    def _record(self, txid: bytes) -> bytes:
        record = self._live.get(txid)
        return self._left.get(txid, (0, _UNKNOWN))[1] if record is None else record

    def parents(self, body: Transaction) -> list[bytes]:
        """Return the txids of a transaction's parents that are in the mempool, each once."""
        live = self._live
        parents = (spent[:TXID_BYTES] for spent in body.outpoints)
        return list(dict.fromkeys(parent for parent in parents if parent in live))

    def histogram(self) -> list[HistogramItem]:
        """Return the non-empty bins, as `mempool_stats.histogram` holds them."""
        return [
            {"from_feerate_sat_vb": bound, "n_tx": n_tx, "vsize_vb": vsize_vb, "fees_sat": fees_sat}
            for bound, (n_tx, vsize_vb, fees_sat) in zip(FEERATE_BOUNDS, self._bins, strict=True)
            if n_tx
        ]

    def _add_to_bin(self, fee_sat: int, vsize_vb: int, sign: int) -> None:
        bin_ = self._bins[bisect_right(FEERATE_BOUNDS, fee_sat / max(vsize_vb, 1)) - 1]
        bin_[0] += sign
        bin_[1] += sign * vsize_vb
        bin_[2] += sign * fee_sat
