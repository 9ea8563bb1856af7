"""What we keep of every transaction in a node's mempool: enough to explain removals and find fees.

One small record per transaction, so that 200,000 of them fit in memory. What left is kept for half a minute,
because its children may ask for the value of its outputs.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from collector.decode import OUTPOINT_BYTES, TXID_BYTES, VALUE_BYTES, Transaction

KEEP_LEFT_US: Final = 30_000_000
FEERATE_BOUNDS: Final = (
    *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 30.0, 40.0, 50.0),
    *(60.0, 70.0, 80.0, 100.0, 120.0, 140.0, 170.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0),
    *(1000.0, 1200.0, 1400.0, 1700.0, 2000.0, 5000.0, 10000.0),
)


@dataclass(slots=True)
class Live:
    """A transaction in the mempool; the fields are empty until its body or fee is known."""

    spent: bytes = b""  # its outpoints back to back, 36 bytes each
    values_sat: bytes = b""  # of its outputs, 8 bytes each: an object for each would take four times as much
    fee_sat: int = -1
    vsize_vb: int = 0

    @property
    def outpoints(self) -> frozenset[bytes] | None:
        """The outpoints it spends; None while its body is unknown."""
        if not self.spent:
            return None
        return frozenset(
            self.spent[at : at + OUTPOINT_BYTES] for at in range(0, len(self.spent), OUTPOINT_BYTES)
        )


def outpoint(txid: bytes, index: int) -> bytes:
    """Return an outpoint as a transaction carries it: txid in internal byte order, index little-endian."""
    return txid + index.to_bytes(4, "little")


class LiveSet:
    """The transactions in one node's mempool, by txid, with a histogram of their feerates."""

    def __init__(self) -> None:
        self._live: dict[bytes, Live] = {}
        self._left: dict[bytes, Live] = {}
        self._left_order: deque[tuple[int, bytes]] = deque()
        self._bins = [[0, 0, 0] for _ in FEERATE_BOUNDS]

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._live

    def enter(self, txid: bytes, body: Transaction | None) -> None:
        """Add a transaction."""
        self._live.setdefault(txid, Live())
        if body is not None:
            self.learn_body(txid, body)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Note what a transaction spends and pays, if it is in the mempool."""
        live = self._live.get(txid)
        if live is not None and not live.spent:
            live.spent, live.values_sat = body.spent, body.values_sat

    def learn_fee(self, txid: bytes, fee_sat: int, vsize_vb: int) -> None:
        """Note a transaction's fee, if it is in the mempool."""
        live = self._live.get(txid)
        if live is not None and live.fee_sat < 0:
            live.fee_sat, live.vsize_vb = fee_sat, vsize_vb
            self._add_to_bin(live, 1)

    def leave(self, txid: bytes, at_us: int) -> Live:
        """Take a transaction out; an empty record when it was not there."""
        live = self._live.pop(txid, None)
        if live is None:
            return Live()
        if live.fee_sat >= 0:
            self._add_to_bin(live, -1)
        self._left[txid] = live
        self._left_order.append((at_us, txid))
        return live

    def forget(self, now_us: int) -> None:
        """Drop what left long ago."""
        while self._left_order and now_us - self._left_order[0][0] > KEEP_LEFT_US:
            self._left.pop(self._left_order.popleft()[1], None)

    def outpoints(self, txid: bytes) -> frozenset[bytes] | None:
        """Return what a transaction that is or was here spends; None when unknown."""
        live = self._live.get(txid) or self._left.get(txid)
        return None if live is None else live.outpoints

    def value_sat(self, txid: bytes, index: int) -> int | None:
        """Return the value of an output of a transaction that is or was here."""
        live = self._live.get(txid) or self._left.get(txid)
        value = b"" if live is None else live.values_sat[index * VALUE_BYTES : (index + 1) * VALUE_BYTES]
        return int.from_bytes(value, "little") if value else None

    def parents(self, body: Transaction) -> list[bytes]:
        """Return the txids of a transaction's parents that are in the mempool, each once."""
        live = self._live
        parents = (spent[:TXID_BYTES] for spent in body.outpoints)
        return list(dict.fromkeys(parent for parent in parents if parent in live))

    def histogram(self) -> list[dict[str, Any]]:
        """Return the non-empty bins, as `mempool_stats.histogram` holds them."""
        return [
            {"from_feerate_sat_vb": bound, "n_tx": n_tx, "vsize_vb": vsize_vb, "fees_sat": fees_sat}
            for bound, (n_tx, vsize_vb, fees_sat) in zip(FEERATE_BOUNDS, self._bins, strict=True)
            if n_tx
        ]

    def _add_to_bin(self, live: Live, sign: int) -> None:
        bin_ = self._bins[bisect_right(FEERATE_BOUNDS, live.fee_sat / max(live.vsize_vb, 1)) - 1]
        bin_[0] += sign
        bin_[1] += sign * live.vsize_vb
        bin_[2] += sign * live.fee_sat
