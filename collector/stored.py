"""Which blocks the dataset holds, shared by all nodes of a process so that each block is stored once."""

import threading
from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from collector.schema import BLOCKS
from collector.writer import Dataset


class StoredBlocks:
    """Hashes of the blocks that the dataset holds or will hold.

    From height `floor` on every block is wanted; it is None until the first block of an empty dataset is
    about to come. `holes` are parents that stored blocks have and the dataset has not.
    """

    def __init__(self, hashes: Iterable[bytes], floor: int | None, holes: Iterable[bytes] = ()) -> None:
        self.floor = floor
        self.holes = tuple(holes)
        self._hashes = set(hashes)
        self._claimed: dict[bytes, str] = {}  # by this process, and for which node
        self._lock = threading.Lock()

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def begin_at(self, height: int) -> None:
        """Want every block from a height on, unless a floor that is as low is set."""
        with self._lock:
            self.floor = height if self.floor is None else min(height, self.floor)

    def claim(self, block_hash: bytes, node: str) -> bool:
        """Say that the caller will store the block for a node; False when another has done so."""
        with self._lock:
            if block_hash in self._hashes:
                return False
            self._hashes.add(block_hash)
            self._claimed[block_hash] = node
            return True

    def release(self, node: str, stored: Collection[bytes]) -> None:
        """Take back what was claimed for a node whose session failed, but for what was `stored` after all."""
        with self._lock:
            lost = [hash_ for hash_, by in self._claimed.items() if by == node and hash_ not in stored]
            self._hashes.difference_update(lost)
            for hash_ in lost:
                del self._claimed[hash_]


def stored_blocks(dataset: Dataset) -> StoredBlocks:
    """Read which blocks the dataset holds. Raises DatasetError naming a file that cannot be read."""
    parts = list(dataset.read_columns(BLOCKS, "block_hash", "prev_hash", "height"))
    if not parts:
        return StoredBlocks((), None)
    blocks = pa.concat_tables(parts)
    floor = pc.min(blocks["height"]).as_py()
    if floor is None:
        return StoredBlocks((), None)
    hashes = blocks["block_hash"]
    has_parent = pc.is_in(blocks["prev_hash"], value_set=hashes.combine_chunks())
    is_open = pc.and_(pc.greater(blocks["height"], floor), pc.invert(has_parent))
    return StoredBlocks(hashes.to_pylist(), floor, blocks["prev_hash"].filter(is_open).unique().to_pylist())
