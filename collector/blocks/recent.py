"""What is known of the blocks of the last hours: heights, fees, and what they spent."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from collector.codec.decode import outpoint

KEPT: Final = 12  # blocks whose transactions a reorganisation may bring back


class RecentBlock(NamedTuple):
    """What is known of a block."""

    height: int
    prev_hash: bytes
    header_time_s: int
    fees_sat: Mapping[bytes, int | None]  # by txid, without the coinbase
    spent_sat: Mapping[bytes, int]  # value of each output it spent, by outpoint


class RecentBlocks:
    """The blocks that were looked into last, by hash."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, RecentBlock] = OrderedDict()

    def get(self, block_hash: bytes) -> RecentBlock | None:
        """Return what is known of a recent block."""
        return self._known.get(block_hash)

    def add(self, block_hash: bytes, known: RecentBlock) -> None:
        """Keep what is known of a block, and forget the oldest when there are too many."""
        self._known[block_hash] = known
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def holding(self, txid: bytes) -> bytes | None:
        """Return the hash of the recent block that has a transaction."""
        return next((hash_ for hash_, known in self._known.items() if txid in known.fees_sat), None)

    def value_spent(self, txid: bytes, output: int) -> int | None:
        """Return the value of an output, in satoshi, that one of the recent blocks spent."""
        spent = outpoint(txid, output)
        values = (known.spent_sat.get(spent) for known in self._known.values())
        return next((value_sat for value_sat in values if value_sat is not None), None)
