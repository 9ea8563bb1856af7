"""Tell which blocks need not be written again: those in the dataset, and those in a journal.

Backfill, import and compaction ask this before they write or move files of blocks. A block counts as present
when it has a row in `blocks`; transactions alone do not count, because a killed backfill may leave them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.dataset.files import FOLDER_LOCK, is_lock_held
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import span_folders
from collector.dataset.schema import BLOCKS, NODES, TRANSACTIONS, Table
from collector.errors import DatasetError
from collector.journal.segment import Segment, journal_folders

_BACKFILL_FILE = re.compile(r"backfill-\d+-\d+-[0-9a-f]{16}\.parquet")


class PresentBlocks:
    """Holds the hashes of blocks that `refresh` found in the dataset or in a journal; test with `in`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._read_paths: set[Path] = set()
        self._hashes: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def refresh(self, heights: Iterable[int] | None = None) -> None:
        """Add the hashes of blocks from files that were not read before.

        With `heights` it reads the dataset's folders of these heights; without, it reads all folders and the
        journals. Raises DatasetError when a file cannot be read.
        """
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
        names = {name for height in heights for name in span_folders(height)}
        folder = self._dataset.folder / BLOCKS.name
        return [
            path
            for name in sorted(names)
            for path in sorted(folder.glob(f"{name}/*.parquet"))
            if path.is_file()
        ]


def remove_orphaned_transactions(dataset: Dataset) -> None:
    """Delete the files of `transactions` that a killed backfill wrote without the rows of their blocks.

    The caller holds the dataset's backfill lock. Otherwise a running backfill may be about to write these
    rows.
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
    """Return the height above which a running collector stores the blocks; None when no collector runs.

    A collector stores every block that comes after its start. It may still have such a block in memory only.
    When several run, the lowest of their heights is returned.
    """
    running = [
        folder
        for folder in journal_folders(dataset.root, dataset.chain)
        if is_lock_held(folder / FOLDER_LOCK)
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
    """Return the column `block_hash` of a Parquet file; raise DatasetError when the file cannot be read."""
    try:
        return pq.ParquetFile(path).read(columns=["block_hash"]).column(0)
    except UNREADABLE as error:
        raise DatasetError(f"cannot read {path}: {error}; move it away to go on") from None


def _journalled(folder: Path, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that are in a journal and not yet in a Parquet file."""
    try:
        for segment in Segment.all_in(folder):
            yield from segment.read().batches.get(table.name, [])
    except FileNotFoundError:
        return  # sealed since it was listed
