"""Tell which blocks need not be written again: those in the dataset, and those in a journal.

Backfill, import and compaction ask this before they write or move files of blocks. A block counts as present
when it has a row in `blocks`; transactions alone do not count, because a killed backfill may leave them.
`blocks_without_transactions` tells which present blocks a backfill must complete all the same, and
`transactions_without_block` which transactions a collector need not write again.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from collector.dataset.files import FOLDER_LOCK, is_lock_held
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import SPAN_FOLDER, read_file, span_folders
from collector.dataset.schema import BLOCKS, NODES, TRANSACTIONS, Table
from collector.errors import DatasetError
from collector.journal.segment import Segment, journal_folders

log = structlog.get_logger(__name__)

_DIGEST_DIGITS: Final = 16
_UNIT_FILE = re.compile(rf"backfill-\d+-\d+-[0-9a-f]{{{_DIGEST_DIGITS}}}\.parquet")


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


def unit_stem(heights: Iterable[int], hashes: Iterable[bytes]) -> str:
    """Return the name, without ending, of the files that a backfill writes for some blocks.

    The name has the blocks' least and greatest height, and a digest of their hashes.
    """
    among = sorted(heights)
    digest = hashlib.sha256(b"".join(hashes)).hexdigest()[:_DIGEST_DIGITS]
    return f"backfill-{among[0]}-{among[-1]}-{digest}"


def remove_orphaned_transactions(dataset: Dataset, *, is_backfill: bool) -> list[Path]:
    """Remove from `transactions` what a killed backfill wrote without the rows of the blocks.

    Where blocks are absent, they may be on a disk that is not mounted. So only a backfill, which writes their
    transactions again, removes these; for others they stay, and the files that have them are returned.
    Transactions of present blocks stay, unless another file has all those of the block too, as after a
    collector has stored it. Where a file has some that stay and others, a file of the former alone takes its
    place. A kill in between leaves both, and the next call removes the first. If a collector stores one of
    these blocks meanwhile, it writes the block's transactions too; so removing ours loses nothing.
    The caller holds the dataset's backfill lock, because a running backfill may be about to write the rows of
    blocks, and holds no lock on the files. Raises DatasetError for a file that cannot be read or written.
    """
    alone = {
        path: read_file(path, ("block_hash",), verify=True).column(0).unique()
        for path in _without_blocks(dataset, dataset.paths(TRANSACTIONS))
    }
    if not alone:
        return []
    # The rows of the blocks may also have been moved into another file since.
    present = PresentBlocks(dataset)
    present.refresh()
    orphaned: list[Path] = []
    of_absent_blocks: list[Path] = []
    # A copy has fewer blocks than its file, so a copy that a kill left comes later, and is not yet orphaned.
    for path, hashes in sorted(alone.items(), key=lambda each: -len(each[1])):
        kept = [block_hash for block_hash in hashes.to_pylist() if block_hash in present]
        if len(kept) < len(hashes) and not is_backfill:
            of_absent_blocks.append(path)
            continue
        if kept:
            elsewhere = _whole_elsewhere(dataset, path, orphaned)
            kept = [block_hash for block_hash in kept if block_hash not in elsewhere]
        if len(kept) < len(hashes):
            _copy_transactions(dataset, path, kept)
            orphaned.append(path)
    if orphaned:
        with dataset.replace_lock():  # no reader has listed them and is about to open them
            for path in orphaned:
                path.unlink()
    return of_absent_blocks


def _without_blocks(dataset: Dataset, paths: Iterable[Path]) -> list[Path]:
    """Return those files of `transactions` that a backfill wrote, and no file of `blocks` of that name."""
    blocks_folder = dataset.folder / BLOCKS.name
    return [
        path
        for path in paths
        if _UNIT_FILE.fullmatch(path.name) and not (blocks_folder / path.parent.name / path.name).exists()
    ]


def _whole_elsewhere(dataset: Dataset, path: Path, orphaned: Sequence[Path]) -> set[bytes]:
    """Return the hashes of the blocks whose transactions are all in one other file of the span of `path`.

    A file that is `orphaned` does not count.
    """
    (span,) = _by_span([path])
    n_tx = _count_transactions(_by_span(dataset.paths(BLOCKS)).get(span, []))
    found: set[bytes] = set()
    for other in _by_span(dataset.paths(TRANSACTIONS))[span]:
        if other != path and other not in orphaned:
            for count in _read_hashes(other).value_counts().to_pylist():
                if n_tx.get(count["values"]) == count["counts"]:
                    found.add(count["values"])
    return found


def _count_transactions(paths: Iterable[Path]) -> dict[bytes, int]:
    """Return the number of transactions that each block of some files of `blocks` states, by block hash."""
    found: dict[bytes, int] = {}
    for path in paths:
        rows = read_file(path, ("block_hash", "n_tx"))
        found.update(zip(rows["block_hash"].to_pylist(), rows["n_tx"].to_pylist(), strict=True))
    return found


def _copy_transactions(dataset: Dataset, path: Path, hashes: Sequence[bytes]) -> None:
    """Write the rows that a file of `transactions` has of some blocks into a file of their own."""
    if hashes:
        rows = read_file(path, verify=True)
        of_blocks = pa.array(hashes, rows["block_hash"].type)
        rows = rows.filter(pc.is_in(rows["block_hash"], value_set=of_blocks))
        dataset.write(TRANSACTIONS, rows, stem=unit_stem(rows["height"].unique().to_pylist(), hashes))


def blocks_without_transactions(dataset: Dataset) -> frozenset[bytes]:
    """Return the hashes of the blocks that have a row in `blocks` and none in `transactions`.

    A lost file of `transactions` leaves them. Only Parquet files count. Rows are read where their number
    differs from the one that the blocks state, and where rows may be there twice, because a block's row is,
    or because a backfill's file has no blocks. Raises DatasetError when a file cannot be read.
    """
    found: set[bytes] = set()
    with dataset.read_lock():
        # First the blocks: a writer's file of transactions is there before that of their blocks.
        files_of_blocks = _by_span(dataset.paths(BLOCKS))
        files = _by_span(dataset.paths(TRANSACTIONS))
        for span, paths in files_of_blocks.items():
            n_tx = _count_transactions(paths)
            of_span = files.get(span, [])
            has_doubles = sum(map(_count_rows, paths)) != len(n_tx) or _without_blocks(dataset, of_span)
            if has_doubles or sum(map(_count_rows, of_span)) != sum(n_tx.values()):
                for path in of_span:
                    for block_hash in _read_hashes(path).unique().to_pylist():
                        n_tx.pop(block_hash, None)
                found.update(n_tx)
    return frozenset(found)


def transactions_without_block(dataset: Dataset) -> dict[bytes, int]:
    """Return how many transactions are stored of each block that has no row in `blocks`, by its hash.

    A lost file of `blocks` leaves them. What a backfill wrote is left out, because a later one may remove it
    (`remove_orphaned_transactions`). Only Parquet files count. Rows are read where their number differs from
    the one that the blocks state. A file of `transactions` that cannot be read counts as empty, with a
    warning in the log. Raises DatasetError when a file of `blocks` cannot be read.
    """
    found: Counter[bytes] = Counter()
    with dataset.read_lock():
        files_of_blocks = _by_span(dataset.paths(BLOCKS))
        for span, paths in _by_span(dataset.paths(TRANSACTIONS)).items():
            n_tx = _count_transactions(files_of_blocks.get(span, []))
            with suppress(DatasetError):  # a file that cannot be read is named below
                if sum(map(_count_rows, paths)) == sum(n_tx.values()):
                    continue
            for path in paths:
                if _UNIT_FILE.fullmatch(path.name):
                    continue
                try:
                    counts = _read_hashes(path).value_counts().to_pylist()
                except DatasetError as error:
                    log.warning("dataset.damaged", path=str(path), reason=str(error))
                    continue
                found.update({c["values"]: c["counts"] for c in counts if c["values"] not in n_tx})
    return dict(found)


def _by_span(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files by the first height of the folder in which they are; those elsewhere are left out."""
    spans: dict[str, list[Path]] = {}
    for path in paths:
        if match := SPAN_FOLDER.fullmatch(path.parent.name):
            spans.setdefault(match[1], []).append(path)
    return spans


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
    return read_file(path, ("block_hash",)).column(0)


def _count_rows(path: Path) -> int:
    """Return the number of rows in a Parquet file; raise DatasetError when the file cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except UNREADABLE as error:
        raise DatasetError(f"cannot read {path}: {error}; move it away to go on") from None


def _journalled(folder: Path, table: Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that are in a journal and not yet in a Parquet file."""
    try:
        for segment in Segment.all_in(folder):
            yield from segment.read().batches.get(table.name, [])
    except FileNotFoundError:
        return  # sealed since it was listed
