"""Bodies of transactions that arrived and whose event is on its way.

The node publishes `rawtx` when a transaction enters the mempool, and again when a block with it is connected
or disconnected. A body that was seen not long ago is not decoded again.
"""

from collections import OrderedDict
from typing import Final

from collector.decode import Transaction, decode_transaction

KEEP_US: Final = 10_000_000  # a body that no event asks for by then is a block's, or a coinbase
SEEN: Final = 200_000


class Bodies:
    """Decoded transactions by txid, for some seconds."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[bytes, tuple[Transaction, int]] = OrderedDict()
        # Two generations of what was seen: when the newer is full, the older is dropped. What is kept is
        # Python's keyed 64-bit hash; a body that is mistaken for another is asked of the node by RPC.
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def received(self, raw: bytes, received_us: int) -> Transaction | None:
        """Decode a body, unless it was seen before. Raises DecodeError."""
        digest = hash(raw)
        if digest in self._newer or digest in self._older:
            return None
        body = decode_transaction(raw)
        self._newer.add(digest)
        if len(self._newer) > SEEN:
            self._older, self._newer = self._newer, set()
        self._bodies[body.txid] = body, received_us
        return body

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
            if now_us - received_us <= KEEP_US:
                return
            del self._bodies[txid]
