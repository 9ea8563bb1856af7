"""Know which blocks the dataset holds.

All nodes of a process share this, so that each block is stored once.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from collector.journal.present_blocks import transactions_without_block

NONE_ORPHANED: Final[Mapping[bytes, int]] = {}


class StoredBlocks:
    """Holds the hashes of the blocks that the dataset has or is about to have; all nodes share one such set.

    Every block from the height `first_wanted_height` on is to be stored. It is None for an empty dataset,
    until the first block is about to come. `orphaned` has the number of stored transactions of blocks whose
    own row was lost, by block hash.
    """

    def __init__(
        self,
        hashes: Iterable[bytes],
        first_wanted_height: int | None,
        missing: Iterable[bytes] = (),
        orphaned: Mapping[bytes, int] = NONE_ORPHANED,
    ) -> None:
        self.first_wanted_height = first_wanted_height
        self._orphaned = orphaned
        self._hashes = set(hashes)
        self._missing = set(missing)
        self._reserved: dict[bytes, str] = {}  # block hash -> the node of this process that reserved it
        self._lock = threading.Lock()

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    @property
    def missing(self) -> tuple[bytes, ...]:
        """Return the hashes of the blocks that are to be stored and are not stored yet.

        What one session does not fetch, the next one does.
        """
        with self._lock:
            return tuple(self._missing)

    def has_transactions(self, block_hash: bytes, n_tx: int) -> bool:
        """Return whether all `n_tx` transactions of a block are stored, though the block itself is not."""
        return self._orphaned.get(block_hash) == n_tx

    def add_missing(self, block_hash: bytes) -> None:
        """Record that a block, the parent of a stored one, is to be stored too.

        Does nothing when the block is stored already.
        """
        with self._lock:
            if block_hash not in self._hashes:
                self._missing.add(block_hash)

    def want_from(self, height: int) -> None:
        """Set the height from which every block is to be stored, unless a lower height is set already."""
        with self._lock:
            first = self.first_wanted_height
            self.first_wanted_height = height if first is None else min(height, first)

    def reserve(self, block_hash: bytes, node: str) -> bool:
        """Reserve a block for a node, whose session will store it; return True.

        Returns False when the block is already stored or reserved.
        """
        with self._lock:
            if block_hash in self._hashes:
                return False
            self._hashes.add(block_hash)
            self._missing.discard(block_hash)
            self._reserved[block_hash] = node
            return True

    def cancel(self, block_hash: bytes) -> None:
        """Cancel the reservation of a block that could not be made into rows; count the block as missing."""
        with self._lock:
            del self._reserved[block_hash]
            self._hashes.discard(block_hash)
            self._missing.add(block_hash)

    def cancel_reservations(self, node: str, stored: Collection[bytes]) -> None:
        """Cancel the reservations of a node whose session failed, except for the blocks in `stored`.

        The other blocks count as missing, so that they are fetched again even when no message names them any
        more.
        """
        with self._lock:
            lost = [hash_ for hash_, by in self._reserved.items() if by == node and hash_ not in stored]
            self._hashes.difference_update(lost)
            self._missing.update(lost)
            for hash_ in lost:
                del self._reserved[hash_]


def read_stored_blocks(dataset: Dataset) -> StoredBlocks:
    """Return which blocks the dataset holds, which parents it lacks, and which transactions have no block.

    Raises DatasetError naming the file when a file of `blocks` cannot be read.
    """
    orphaned = transactions_without_block(dataset)
    parts = list(dataset.read_columns(BLOCKS, "block_hash", "prev_hash", "height"))
    if not sum(map(len, parts)):
        return StoredBlocks((), None, orphaned=orphaned)
    blocks = pa.concat_tables(parts)
    lowest = pc.min(blocks["height"]).as_py()
    hashes = blocks["block_hash"].combine_chunks()
    has_parent = pc.is_in(blocks["prev_hash"], value_set=hashes)
    parentless = blocks.filter(pc.and_(pc.greater(blocks["height"], lowest), pc.invert(has_parent)))
    missing = parentless["prev_hash"].unique().to_pylist()
    return StoredBlocks(hashes.to_pylist(), lowest, missing, orphaned)
