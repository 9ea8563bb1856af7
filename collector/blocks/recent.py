"""Keep the last blocks in memory: their fees, the values that they spent, and their parsed bytes."""

from collections import OrderedDict, deque
from collections.abc import Container, Iterator, Mapping
from itertools import takewhile
from typing import Final, NamedTuple

from collector.clock import monotonic_us
from collector.codec.block import ParsedBlock
from collector.codec.transaction import outpoint

MOST_RECENT: Final = 12  # enough for a reorganisation that brings back transactions of so many blocks
# The C of a block follows its body within moments. A parsed block takes ten times its size in memory.
MOST_PARSED_BYTES: Final = 8_000_000
KEEP_PARSED_US: Final = 300_000_000  # small blocks would fill that limit only after hours


class RecentBlock(NamedTuple):
    """Holds a block's height, parent and header time, its fees by txid, and the values that it spent.

    `spent_sat` maps each outpoint that the block spends to its value in satoshi; `fees_sat` has a None for an
    unknown fee.
    """

    height: int
    prev_hash: bytes
    header_time_s: int
    fees_sat: Mapping[bytes, int | None]  # by txid, without the coinbase
    spent_sat: Mapping[bytes, int]  # value of each output that it spent, by outpoint


class RecentBlocks:
    """Keeps fees and spent values of the last 12 blocks that the node has described to us, by block hash."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, RecentBlock] = OrderedDict()
        self._disconnected: set[bytes] = set()  # hashes of blocks that the node has taken off its chain
        self._looked_into: deque[bytes] = deque(maxlen=MOST_RECENT)  # by hash

    def get(self, block_hash: bytes) -> RecentBlock | None:
        """Return fees and spent values of the block with this hash; None when it is not in the last 12."""
        return self._blocks.get(block_hash)

    def add(self, block_hash: bytes, block: RecentBlock) -> None:
        """Add a block to the recent blocks, and drop the oldest one when there are more than 12."""
        self._blocks[block_hash] = block
        if len(self._blocks) > MOST_RECENT:
            self._disconnected.discard(self._blocks.popitem(last=False)[0])

    def look_into(self, block_hash: bytes) -> bool:
        """Return whether this is asked of a block for the first time; a reorganisation may bring one back."""
        is_first = block_hash not in self._looked_into
        if is_first:
            self._looked_into.append(block_hash)
        return is_first

    def note_tip(self, block_hash: bytes) -> None:
        """Record that a block is the node's tip, so that it and its ancestors are connected."""
        while True:
            self._disconnected.discard(block_hash)
            block = self._blocks.get(block_hash)
            if block is None:
                return
            block_hash = block.prev_hash

    def note_disconnected(self, block_hash: bytes) -> None:
        """Record that the node has disconnected a block, which it may describe only later."""
        self._disconnected.add(block_hash)

    def block_with(self, txid: bytes) -> bytes | None:
        """Return the hash of that one of the last 12 blocks which contains a transaction.

        The result is None if none of these blocks does. The block may have been disconnected since.
        """
        return next(self._blocks_with(txid), None)

    def connected_block_with(self, txid: bytes) -> bytes | None:
        """Return what `block_with` returns, but never a block that was disconnected: it mined nothing."""
        found = self._blocks_with(txid)
        return next((hash_ for hash_ in found if hash_ not in self._disconnected), None)

    def _blocks_with(self, txid: bytes) -> Iterator[bytes]:
        return (hash_ for hash_, block in self._blocks.items() if txid in block.fees_sat)

    def spent_value_sat(self, txid: bytes, output: int) -> int | None:
        """Return the value in satoshi of an output if one of the last 12 blocks spent it, else None."""
        spent = outpoint(txid, output)
        values = (block.spent_sat.get(spent) for block in self._blocks.values())
        return next((value_sat for value_sat in values if value_sat is not None), None)


class _KeptBlock(NamedTuple):
    """Holds a parsed block and when it was added, in microseconds on the monotonic clock."""

    parsed: ParsedBlock
    added_us: int


class ParsedBlocks:
    """Keeps the bytes and contents of blocks that were parsed in the last five minutes, by hash.

    Above a limit of bytes the oldest are dropped earlier.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, _KeptBlock] = OrderedDict()
        self._n_bytes = 0

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._blocks

    def get(self, block_hash: bytes) -> ParsedBlock | None:
        """Return the parsed block with this hash, or None when it was dropped or never added."""
        kept = self._blocks.get(block_hash)
        return None if kept is None else kept.parsed

    def add(self, parsed: ParsedBlock) -> None:
        """Keep a parsed block; it replaces one with the same hash, whose transactions may have been wrong."""
        block_hash = parsed.block.block_hash
        if block_hash in self._blocks:
            self._drop(block_hash)
        self._n_bytes += len(parsed.raw)
        self._blocks[block_hash] = _KeptBlock(parsed, monotonic_us())
        while self._n_bytes > MOST_PARSED_BYTES and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def forget(self, now_us: int, needed: Container[bytes]) -> None:
        """Drop the blocks that were parsed more than five minutes before `now_us` (monotonic clock).

        Blocks whose hashes are in `needed` stay: nobody else may have them when the node has lost them.
        """
        old = takewhile(lambda item: now_us - item[1].added_us > KEEP_PARSED_US, self._blocks.items())
        for block_hash in [block_hash for block_hash, _ in old if block_hash not in needed]:
            self._drop(block_hash)

    def _drop(self, block_hash: bytes) -> None:
        self._n_bytes -= len(self._blocks.pop(block_hash).parsed.raw)
