"""Which blocks need not be written again: those in the dataset, and those in a journal on their way into it.

Backfill, import and compaction ask this before they write or move files of blocks. A block counts as present
when its row in `blocks` is: a backfill that is killed leaves transactions without that row.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.dataset import locks
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, HEIGHT_SPAN, NODES, TRANSACTIONS, Table
from collector.errors import DatasetError
from collector.journal.segment import Segment, journal_folders

_BACKFILL_FILE = re.compile(r"backfill-\d+-\d+-[0-9a-f]{16}\.parquet")


class PresentBlocks:
    """Hashes of the blocks in the dataset or in a journal, as far as `refresh` was asked to look."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._read_paths: set[Path] = set()
        self._hashes: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def refresh(self, heights: Iterable[int] | None = None) -> None:
        """Read the files that are new: in the folders of these heights, or everywhere and in the journals."""
        if heights is None:
            # The journals first: what is sealed in between is then found in its file.
            for folder in journal_folders(self._dataset.root, self._dataset.chain):
                for batch in _journalled(folder, BLOCKS):
                    self._hashes.update(batch.column("block_hash").to_pylist())
        with self._dataset.read_lock():
            for path in self._files(heights):
                if path not in self._read_paths:
                    self._hashes.update(_read_hashes(path).to_pylist())
                    self._read_paths.add(path)

    def _files(self, heights: Iterable[int] | None) -> list[Path]:
        if heights is None:
            return self._dataset.paths(BLOCKS)
        spans = {height // HEIGHT_SPAN * HEIGHT_SPAN for height in heights}
        folder = self._dataset.folder / BLOCKS.name
        return [
            path
            for first in sorted(spans)
            for path in sorted(folder.glob(f"height={first}-{first + HEIGHT_SPAN - 1}/*.parquet"))
            if path.is_file()
        ]


def remove_orphaned_transactions(dataset: Dataset) -> None:
    """Remove files of transactions that a killed backfill left without their blocks.

    The caller holds the dataset's backfill lock: otherwise a backfill may be about to write the blocks.
    """
    blocks_folder = dataset.folder / BLOCKS.name
    alone = [
        path
        for path in dataset.paths(TRANSACTIONS)
        if _BACKFILL_FILE.fullmatch(path.name) and not (blocks_folder / path.parent.name / path.name).exists()
    ]
    if not alone:
        return
    # The rows of the blocks may also have been moved into another file since.
    present = PresentBlocks(dataset)
    present.refresh()
    for path in alone:
        hashes = pc.unique(_read_hashes(path)).to_pylist()
        if not all(block_hash in present for block_hash in hashes):
            path.unlink()


def running_collector_tip(dataset: Dataset) -> int | None:
    """Return the height above which a running collector stores the blocks; None when none is running.

    It stores every block that comes after its start, and may have one in hand that it has not written down.
    """
    running = [
        folder
        for folder in journal_folders(dataset.root, dataset.chain)
        if locks.is_held(folder / locks.FOLDER_LOCK)
    ]
    if not running:
        return None
    names = {folder.name for folder in running}
    sessions = [row for row in dataset.read(NODES).to_pylist() if row["node"] in names]
    for folder in running:
        for batch in _journalled(folder, NODES):
            sessions += batch.to_pylist()
    last = {row["node"]: row for row in sorted(sessions, key=lambda row: row["started_at"])}
    return min((row["tip_height"] for row in last.values()), default=0)


def _read_hashes(path: Path) -> pa.ChunkedArray:
    """Read the column block_hash of a file."""
    try:
        return pq.ParquetFile(path).read(columns=["block_hash"]).column(0)
    except UNREADABLE as error:
        raise DatasetError(f"cannot read {path}: {error}; move it away to go on") from None


def _journalled(folder: Path, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in a running collector's journal that are not in a Parquet file yet."""
    try:
        for segment in Segment.all_in(folder):
            yield from segment.read().batches.get(table.name, [])
    except FileNotFoundError:
        return  # sealed since it was listed
