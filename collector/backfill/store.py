"""What a backfill leaves in the dataset, and how the next one goes on from there.

A unit of work is one file of `transactions` and then one of `blocks`, both named after the blocks in them. A
block counts as there when its row in `blocks` is: a file of transactions whose file of blocks is missing was
left by a run that was killed, and goes. One backfill at a time holds the lock of a dataset; a live collector
may write beside it, and what it has stored or journalled is left to it.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.codec.chunk import Bad, Chunk
from collector.codec.encode import blocks_table, transactions_table
from collector.codec.timing import Stages
from collector.dataset import locks
from collector.dataset.footer import UNREADABLE
from collector.dataset.schema import BLOCKS, HEIGHT_SPAN, NODES, REJECTS, TRANSACTIONS, Table
from collector.dataset.writer import Dataset, make_folder
from collector.errors import DatasetError
from collector.journal.segment import Segment, journal_folders

NODE: Final = "backfill"  # in `rejects`: no watched node, and no session of one
LOCK: Final = ".backfill.lock"
DIGEST_BYTES: Final = 8

_OWN = re.compile(r"backfill-\d+-\d+-[0-9a-f]{16}\.parquet")


@contextmanager
def locked(dataset: Dataset) -> Iterator[None]:
    """Hold the dataset for this backfill. Raises DatasetError when another one does."""
    make_folder(dataset.folder)
    handle = locks.take(
        dataset.folder / LOCK,
        f"another backfill or import is writing to {dataset.root}; wait until it has ended",
    )
    try:
        _remove_orphans(dataset)
        yield
    finally:
        os.close(handle)


class Present:
    """Hashes of the blocks in the dataset or on their way into it, as far as it was asked to look."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._seen: set[Path] = set()
        self._hashes: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def refresh(self, heights: Iterable[int] | None = None) -> None:
        """Read what is new in the folders of these heights, or in all and in the journals."""
        if heights is None:
            # The journals first: what is sealed in between is then found in its file.
            for folder in journal_folders(self._dataset.root, self._dataset.chain):
                for batch in _journalled(folder, BLOCKS):
                    self._hashes.update(batch.column("block_hash").to_pylist())
        with self._dataset.steady():
            for path in self._files(heights):
                if path not in self._seen:
                    self._hashes.update(_read_hashes(path).to_pylist())
                    self._seen.add(path)

    def _files(self, heights: Iterable[int] | None) -> list[Path]:
        if heights is None:
            return self._dataset.paths(BLOCKS)
        spans = {height // HEIGHT_SPAN * HEIGHT_SPAN for height in heights}
        folder = self._dataset.folder / BLOCKS.name
        return [
            path
            for first in sorted(spans)
            for path in sorted(folder.glob(f"height={first}-{first + HEIGHT_SPAN - 1}/*.parquet"))
        ]


def write_chunk(dataset: Dataset, chunk: Chunk, verified_by: str, stages: Stages) -> int:
    """Write the rows of blocks of one span of heights; returns the bytes of the files."""
    with stages.time("encode"):
        transactions = transactions_table(chunk)
        blocks = blocks_table(chunk, chain=dataset.chain, verified_by=verified_by)
    with stages.time("write"):
        stem = _stem(chunk)
        paths = dataset.write(TRANSACTIONS, transactions, stem=stem, is_sorted=True)
        paths += dataset.write(BLOCKS, blocks, stem=stem, is_sorted=True)
    return sum(path.stat().st_size for path in paths)


class Rejects:
    """Writes what is bad into `rejects`, each once however often it is met."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        found = dataset.read(REJECTS).select(["node", "topic", "body"])
        own = found.filter(pc.equal(found["node"], NODE)).to_pylist()
        self._known = {_identity(row["topic"], row["body"]) for row in own}

    def add(self, bad: Sequence[Bad]) -> None:
        """Write those that are new."""
        rows: list[dict[str, Any]] = []
        for each in bad:
            identity = _identity(each.place.origin, each.body)
            if identity not in self._known:
                self._known.add(identity)
                rows.append(
                    {
                        "node": NODE,
                        "session": NODE,
                        "received_at": time.time_ns() // 1000,
                        "topic": each.place.origin,
                        "reason": each.reason,
                        "body": each.body,
                    }
                )
        if rows:
            digest = _digest(_identity(row["topic"], row["body"]) for row in rows)
            self._dataset.write(REJECTS, rows, stem=f"backfill-{digest}")


def _identity(topic: str, body: bytes) -> bytes:
    return hashlib.sha256(topic.encode() + b"\x00" + body).digest()


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[: 2 * DIGEST_BYTES]


def _stem(chunk: Chunk) -> str:
    heights = [place.height for place in chunk.places]
    digest = _digest(head.block_hash for head in chunk.heads)
    return f"backfill-{min(heights)}-{max(heights)}-{digest}"


def _remove_orphans(dataset: Dataset) -> None:
    """Remove transactions that a killed run left without their blocks."""
    blocks_folder = dataset.folder / BLOCKS.name
    alone = [
        path
        for path in dataset.paths(TRANSACTIONS)
        if _OWN.fullmatch(path.name) and not (blocks_folder / path.parent.name / path.name).exists()
    ]
    if not alone:
        return
    # The rows of the blocks may also have been moved into another file since.
    present = Present(dataset)
    present.refresh()
    for path in alone:
        hashes = pc.unique(_read_hashes(path)).to_pylist()
        if not all(block_hash in present for block_hash in hashes):
            path.unlink()


def _read_hashes(path: Path) -> pa.ChunkedArray:
    """Read the column block_hash of a file."""
    try:
        return pq.ParquetFile(path).read(columns=["block_hash"]).column(0)
    except UNREADABLE as error:
        raise DatasetError(f"cannot read {path}: {error}; move it away to go on") from None


def live_tip(dataset: Dataset) -> int | None:
    """Height above which blocks are left to a live collector that is running; None when none is.

    It stores every block that comes after its start, and may have one in hand that it has not written down.
    """
    running = [
        folder
        for folder in journal_folders(dataset.root, dataset.chain)
        if locks.is_held(folder / locks.NAME)
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


def _journalled(folder: Path, table: Table) -> Iterator[pa.RecordBatch]:
    """Rows in a live collector's journal that are not in a Parquet file yet."""
    try:
        for segment in Segment.all_in(folder):
            yield from segment.read().batches.get(table.name, [])
    except FileNotFoundError:
        return  # sealed since it was listed
