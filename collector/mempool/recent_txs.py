"""RecentTransactions of transactions that arrived and whose event is on its way.

The node publishes `rawtx` when a transaction enters the mempool, and again when a block with it is connected
or disconnected. A body that was seen not long ago is not decoded again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from collector.codec.decode import Transaction
from collector.codec.decode_many import decode_transactions
from collector.errors import DecodeError

KEEP_US: Final = 10_000_000  # a body that no event asks for by then is a block's, or a coinbase
MOST_KEPT: Final = 50_000  # what is dropped too early is asked of the node by RPC
SEEN: Final = 200_000


class RecentTransactions:
    """Decoded transactions by txid, for some seconds."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[bytes, tuple[Transaction, int]] = OrderedDict()
        # Two generations of what was seen: when the newer is full, the older is dropped. What is kept is
        # Python's keyed 64-bit hash; a body that is mistaken for another is asked of the node by RPC.
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def received(self, raws: Sequence[bytes], received_us: int) -> list[Transaction | DecodeError | None]:
        """Decode bodies: for each the transaction, or what is wrong with it, or None: it was seen before."""
        digests = [hash(raw) for raw in raws]
        first: dict[int, int] = {}
        for at, digest in enumerate(digests):
            if digest not in self._newer and digest not in self._older:
                first.setdefault(digest, at)
        bodies = decode_transactions([raws[at] for at in first.values()])
        found: list[Transaction | DecodeError | None] = [None] * len(raws)
        faulty: dict[int, DecodeError] = {}
        for (digest, at), body in zip(first.items(), bodies, strict=True):
            if isinstance(body, DecodeError):
                faulty[digest] = body
                continue
            found[at] = body
            self._newer.add(digest)
            self._bodies[body.txid] = body, received_us
        if faulty:  # each time it comes
            found = [faulty.get(digest, body) for digest, body in zip(digests, found, strict=True)]
        if len(self._newer) > SEEN:
            self._older, self._newer = self._newer, set()
        return found

    def get(self, txid: bytes) -> Transaction | None:
        """Return the body of a transaction."""
        found = self._bodies.get(txid)
        return None if found is None else found[0]

    def take(self, txid: bytes) -> Transaction | None:
        """Return the body of a transaction, and keep it no longer."""
        found = self._bodies.pop(txid, None)
        return None if found is None else found[0]

    def forget(self, now_us: int) -> None:
        """Drop the bodies that nobody asked for."""
        while self._bodies:
            txid, (_, received_us) = next(iter(self._bodies.items()))
            if now_us - received_us <= KEEP_US and len(self._bodies) <= MOST_KEPT:
                return
            del self._bodies[txid]
