"""Keep the transactions that `rawtx` messages brought for some seconds, until an event needs their bytes.

The node publishes `rawtx` when a transaction enters the mempool, and again when a block that contains it is
connected or disconnected. A transaction whose bytes were seen lately is not decoded again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from collector.codec.decode import Transaction
from collector.codec.decode_many import decode_transactions
from collector.errors import DecodeError

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
