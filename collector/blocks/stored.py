"""Which blocks the dataset holds, shared by all nodes of a process so that each block is stored once."""

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

from collector.dataset.footer import UNREADABLE, ask
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.errors import DatasetError

HeightArray = npt.NDArray[np.int64]
log = structlog.get_logger(__name__)


class StoredBlocks:
    """Hashes of the blocks that the dataset holds or will hold.

    From height `floor` on every block is wanted; it is None until the first block of an empty dataset is
    about to come. `holes` are parents that stored blocks have and the dataset has not: a session that ends
    while it fetches them leaves the rest to the next. Of the blocks in `rowless` the dataset has the
    transactions alone: a file of `blocks` was lost.
    """

    def __init__(
        self,
        hashes: Iterable[bytes],
        floor: int | None,
        holes: Iterable[bytes] = (),
        rowless: Iterable[bytes] = (),
    ) -> None:
        self.floor = floor
        self.rowless = frozenset(rowless)
        self._hashes = set(hashes)
        self._holes = set(holes)
        self._claimed: dict[bytes, str] = {}  # by this process, and for which node
        self._lock = threading.Lock()

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    @property
    def holes(self) -> tuple[bytes, ...]:
        """Blocks that are wanted and were not stored so far."""
        with self._lock:
            return tuple(self._holes)

    def lack(self, block_hash: bytes) -> None:
        """Say that a block is wanted, for a stored one has it as parent; nothing when it is stored itself."""
        with self._lock:
            if block_hash not in self._hashes:
                self._holes.add(block_hash)

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
            self._holes.discard(block_hash)
            self._claimed[block_hash] = node
            return True

    def release(self, node: str, stored: Collection[bytes]) -> None:
        """Take back what was claimed for a node whose session failed, but for what was `stored` after all.

        What was lost is wanted again, also when no message is left that speaks of it.
        """
        with self._lock:
            lost = [hash_ for hash_, by in self._claimed.items() if by == node and hash_ not in stored]
            self._hashes.difference_update(lost)
            self._holes.update(lost)
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
    hashes = blocks["block_hash"].combine_chunks()
    has_parent = pc.is_in(blocks["prev_hash"], value_set=hashes)
    open_blocks = blocks.filter(pc.and_(pc.greater(blocks["height"], floor), pc.invert(has_parent)))
    hole_heights = pc.subtract(open_blocks["height"], 1).to_numpy()
    heights = np.setdiff1d(blocks["height"].to_numpy(), hole_heights)
    with dataset.read_lock(), duckdb.connect(config={"threads": 1}) as connection:
        rowless = [
            hash_
            for path in dataset.paths(TRANSACTIONS)
            if not _is_covered(connection, path, heights)
            for hash_ in _rowless(path, hashes)
        ]
    return StoredBlocks(hashes.to_pylist(), floor, open_blocks["prev_hash"].unique().to_pylist(), rowless)


def _rowless(path: Path, hashes: pa.Array) -> list[bytes]:
    """Return the blocks in a file of `transactions` that are not among `hashes`.

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
    """Whether each height that a file spans, by its footer alone, is among `heights`, which are sorted."""
    query = "SELECT min(height), max(height) FROM read_parquet(?, hive_partitioning = false)"
    try:
        ((first, last),) = ask(connection, path, query)
    except (DatasetError, OSError):  # who reads the file itself says what is wrong with it
        return False
    if first is None:
        return True
    there = np.searchsorted(heights, last, "right") - np.searchsorted(heights, first)
    return bool(there == last - first + 1)
