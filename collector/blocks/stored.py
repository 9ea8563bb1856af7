"""Know which blocks the dataset holds; all nodes of a process share it, so that each block is stored once."""

import threading
from collections.abc import Collection, Iterable
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from collector.dataset.footer import UNREADABLE, query_file
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.errors import DatasetError

HeightArray = npt.NDArray[np.int64]
log = structlog.get_logger(__name__)


class StoredBlocks:
    """The hashes of the blocks that the dataset holds or is about to hold, shared by all nodes.

    Every block from `first_wanted_height` on is wanted; it is None until the first block of an empty dataset
    is about to come. Of the blocks in `with_transactions_only` the dataset has the transactions but not the
    block's own row, because a file of `blocks` was lost.
    """

    def __init__(
        self,
        hashes: Iterable[bytes],
        first_wanted_height: int | None,
        missing: Iterable[bytes] = (),
        with_transactions_only: Iterable[bytes] = (),
    ) -> None:
        self.first_wanted_height = first_wanted_height
        self.with_transactions_only = frozenset(with_transactions_only)
        self._hashes = set(hashes)
        self._missing = set(missing)
        self._reserved: dict[bytes, str] = {}  # by this process, with the node that reserved it
        self._lock = threading.Lock()

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    @property
    def missing(self) -> tuple[bytes, ...]:
        """Blocks that are wanted and not stored. A session that ends too early leaves them to the next."""
        with self._lock:
            return tuple(self._missing)

    def add_missing(self, block_hash: bytes) -> None:
        """Note that the parent of a stored block is wanted; do nothing when it is stored itself."""
        with self._lock:
            if block_hash not in self._hashes:
                self._missing.add(block_hash)

    def want_from(self, height: int) -> None:
        """Want every block from a height on, unless an earlier height is set."""
        with self._lock:
            first = self.first_wanted_height
            self.first_wanted_height = height if first is None else min(height, first)

    def reserve(self, block_hash: bytes, node: str) -> bool:
        """Reserve a block for a node, whose session will store it; return False when it is taken."""
        with self._lock:
            if block_hash in self._hashes:
                return False
            self._hashes.add(block_hash)
            self._missing.discard(block_hash)
            self._reserved[block_hash] = node
            return True

    def cancel_reservations(self, node: str, stored: Collection[bytes]) -> None:
        """Take back what a node reserved whose session failed, except for what is in `stored` after all.

        What was lost is wanted again, even when no message is left that names it.
        """
        with self._lock:
            lost = [hash_ for hash_, by in self._reserved.items() if by == node and hash_ not in stored]
            self._hashes.difference_update(lost)
            self._missing.update(lost)
            for hash_ in lost:
                del self._reserved[hash_]


def read_stored_blocks(dataset: Dataset) -> StoredBlocks:
    """Read which blocks the dataset holds, and which parents of theirs it lacks.

    Raises DatasetError naming a file that cannot be read.
    """
    parts = list(dataset.read_columns(BLOCKS, "block_hash", "prev_hash", "height"))
    if not parts:
        return StoredBlocks((), None)
    blocks = pa.concat_tables(parts)
    lowest = pc.min(blocks["height"]).as_py()
    if lowest is None:
        return StoredBlocks((), None)
    hashes = blocks["block_hash"].combine_chunks()
    has_parent = pc.is_in(blocks["prev_hash"], value_set=hashes)
    parentless = blocks.filter(pc.and_(pc.greater(blocks["height"], lowest), pc.invert(has_parent)))
    missing_heights = pc.subtract(parentless["height"], 1).to_numpy()
    heights = np.setdiff1d(blocks["height"].to_numpy(), missing_heights)
    with dataset.read_lock(), duckdb.connect(config={"threads": 1}) as connection:
        with_transactions_only = [
            hash_
            for path in dataset.paths(TRANSACTIONS)
            if not _is_covered(connection, path, heights)
            for hash_ in _blocks_beyond(path, hashes)
        ]
    missing = parentless["prev_hash"].unique().to_pylist()
    return StoredBlocks(hashes.to_pylist(), lowest, missing, with_transactions_only)


def _blocks_beyond(path: Path, hashes: pa.Array) -> list[bytes]:
    """Return the blocks that a file of `transactions` names and that are not among `hashes`.

    A file that cannot be read is left to `check`: it must not keep the collector from what comes now.
    """
    try:
        with pq.ParquetFile(path) as file:
            found = file.read(["block_hash"])["block_hash"].unique()
    except UNREADABLE as error:
        log.warning("dataset.damaged", path=str(path), reason=str(error).splitlines()[0])
        return []
    return list(found.filter(pc.invert(pc.is_in(found, value_set=hashes))).to_pylist())


def _is_covered(connection: duckdb.DuckDBPyConnection, path: Path, heights: HeightArray) -> bool:
    """Return whether `heights`, which are sorted, hold each height that a file spans by its footer."""
    query = "SELECT min(height), max(height) FROM read_parquet(?, hive_partitioning = false)"
    try:
        ((first, last),) = query_file(connection, path, query)
    except (DatasetError, OSError):  # the caller reads the file itself then, and says what is wrong with it
        return False
    if first is None:
        return True
    there = np.searchsorted(heights, last, "right") - np.searchsorted(heights, first)
    return bool(there == last - first + 1)
