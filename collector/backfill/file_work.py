"""Backfill from block files: cut the blocks into units, and read and store a unit in a worker process.

A unit is a list of blocks that are read, checked and written together. All are in one span of heights, hence
in one folder of the dataset.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from collector.backfill.blockfiles import BlockFolder, Debris
from collector.backfill.catalogue import PREV_HASH, Catalogue
from collector.backfill.headertree import UNKNOWN_HEIGHT
from collector.backfill.node_work import PATIENCE_S, ask_spent, connect
from collector.backfill.store import WorkResult, store_blocks
from collector.backfill.undofiles import Claim, UndoFinder, UndoRequest
from collector.codec.chunk import BlockRef, RawBlocks
from collector.dataset.open import Dataset
from collector.dataset.schema import HEIGHT_SPAN
from collector.journal.present_blocks import PresentBlocks
from collector.node.access import Access
from collector.node.rpc import RpcClient

MAX_UNIT_BYTES: Final = 32 << 20
MIN_UNIT_BYTES: Final = 1 << 18
UNITS_PER_WORKER: Final = 4  # enough that the last units end at about the same time


class FileTask(NamedTuple):
    """Describes a block to read from a block file: its position, and what finds its undo data."""

    ref: BlockRef
    file: int
    at: int  # where the block begins in the file
    size_bytes: int
    undo: UndoRequest
    is_unfinished: bool  # a node may still be writing it


FileUnit = list[FileTask]


@dataclass(frozen=True, slots=True)
class FileWork:
    """Reads and stores units of blocks from files in a worker process; files stay open between units."""

    blocks_dir: Path
    dataset_root: Path
    chain: str
    begun_ns: int  # distinguishes this run: what an earlier run opened must not be used
    access: Access | None = None  # to a node that tells fees where there is no undo data

    def __call__(self, unit: FileUnit) -> WorkResult:
        """Read and store those blocks of one unit of work that the dataset lacks.

        Returns the counts and the rejected blocks as a WorkResult.
        """
        folder, finder, present = _opened(self)
        result = WorkResult()
        present.refresh(task.ref.height for task in unit)
        tasks = [task for task in unit if task.ref.is_row_stored or task.ref.block_hash not in present]
        result.n_present = len(unit) - len(tasks)
        gone = [task for task in tasks if not folder.is_there(task.file)]
        result.unavailable = [f"{task.ref.height}: {task.ref.origin} was pruned" for task in gone]
        tasks = [task for task in tasks if task not in gone]
        with result.times.measure("read"):
            raw_blocks = read_blocks(folder, finder, tasks)
            if self.access is not None:
                _ask_missing(connect(self.access, PATIENCE_S), tasks, raw_blocks)
        store_blocks(self.dataset_root, self.chain, raw_blocks, result)
        unfinished = {task.ref.origin for task in tasks if task.is_unfinished}
        result.unfinished = [each.ref.origin for each in result.rejected if each.ref.origin in unfinished]
        result.rejected = [each for each in result.rejected if each.ref.origin not in unfinished]
        return result


def cut_units(
    catalogue: Catalogue,
    folder: BlockFolder,
    missing: Sequence[int],
    workers: int,
    *,
    bare: Container[bytes] = (),
) -> Iterator[FileUnit]:
    """Cut blocks into units of work, lists of FileTasks within one span of heights, and yield the units.

    `missing` are the positions in the catalogue of the blocks, in the order of height; of those whose hashes
    are in `bare`, only the transactions are missing. The greatest size of a unit in bytes depends on the
    number of workers.
    """
    limit_bytes = unit_limit_bytes(int(catalogue.sizes_bytes[list(missing)].sum()), workers)
    unit: FileUnit = []
    taken_bytes = 0
    for i in missing:
        task = _task(catalogue, folder, i, bare)
        is_other_span = bool(unit) and unit[0].ref.height // HEIGHT_SPAN != task.ref.height // HEIGHT_SPAN
        if unit and (is_other_span or taken_bytes + task.size_bytes > limit_bytes):
            yield unit
            unit, taken_bytes = [], 0
        unit.append(task)
        taken_bytes += task.size_bytes
    if unit:
        yield unit


def copy_units(
    catalogue: Catalogue, folder: BlockFolder, positions: Sequence[int], *, bare: Container[bytes] = ()
) -> Iterator[FileUnit]:
    """Yield one unit of work for each further copy that the files hold of the blocks at these positions.

    A file may hold a block twice after a crash of the node. `bare` is that of `cut_units`.
    """
    for i in positions:
        task = _task(catalogue, folder, i, bare)
        for file, at, size_bytes, n_tx in catalogue.copies[i]:
            ref = task.ref._replace(origin=f"{folder.name(file)}@{at}")
            undo = task.undo._replace(n_tx=n_tx)
            yield [task._replace(ref=ref, file=file, at=at, size_bytes=size_bytes, undo=undo)]


def unit_limit_bytes(total_bytes: int, workers: int) -> int:
    """Return the most bytes of blocks that a unit of work may hold.

    The limit keeps a worker's memory small, and gives each worker several units.
    """
    return min(max(total_bytes // (workers * UNITS_PER_WORKER), MIN_UNIT_BYTES), MAX_UNIT_BYTES)


def debris_ref(folder: BlockFolder, debris: Debris) -> BlockRef:
    """Return a BlockRef that says in which file and at which byte there are bytes that hold no block."""
    return BlockRef(bytes(32), UNKNOWN_HEIGHT, "", "blkfile", f"{folder.name(debris.file)}@{debris.at}")


def read_blocks(folder: BlockFolder, finder: UndoFinder, tasks: FileUnit) -> RawBlocks:
    """Return the bytes of some blocks, back to back, and their undo data, as RawBlocks.

    Where a file ends before a block does, zeros fill the rest of the block.
    """
    limits = np.cumsum([0, *(task.size_bytes for task in tasks)])
    data = np.empty(limits[-1], np.uint8)
    for i, task in enumerate(tasks):
        # Zeros replace what a shortened file lacks; the checks refuse such a block.
        got = folder.read_into(data[limits[i] : limits[i + 1]], task.file, task.at)
        data[limits[i] + got : limits[i + 1]] = 0
    undo, undo_limits = finder.find([task.undo for task in tasks])
    return RawBlocks(
        refs=[task.ref for task in tasks], data=data, limits=limits, undo=undo, undo_limits=undo_limits
    )


def _task(catalogue: Catalogue, folder: BlockFolder, i: int, bare: Container[bytes]) -> FileTask:
    file, at = int(catalogue.files[i]), int(catalogue.at[i])
    block_hash = catalogue.hashes[i].tobytes()
    ref = BlockRef(
        block_hash=block_hash,
        height=int(catalogue.heights[i]),
        height_source="tree" if catalogue.tree.is_whole[i] else "bip34",
        source="blkfile",
        origin=f"{folder.name(file)}@{at}",
        is_row_stored=block_hash in bare,
    )
    return FileTask(
        ref=ref,
        file=file,
        at=at,
        size_bytes=int(catalogue.sizes_bytes[i]),
        undo=UndoRequest(
            files=catalogue.files_of(i),
            prev_hash=catalogue.headers[i, PREV_HASH].tobytes(),
            n_tx=int(catalogue.n_tx[i]),
            rank=int(catalogue.undo_ranks[i]),
            claim=Claim(int(catalogue.undo_claims[i])),
        ),
        is_unfinished=bool(catalogue.is_last[i]),
    )


@lru_cache(maxsize=1)
def _opened(work: FileWork) -> tuple[BlockFolder, UndoFinder, PresentBlocks]:
    """Return the block files, the finder of undo data and the stored blocks for a backfill.

    A worker process opens them once and then gets the same ones again.
    """
    folder = BlockFolder(work.blocks_dir, work.chain)
    return folder, UndoFinder(folder), PresentBlocks(Dataset.open(work.dataset_root, work.chain))


def _ask_missing(client: RpcClient, tasks: FileUnit, raw_blocks: RawBlocks) -> None:
    """Ask a node for fees and spent outputs of the blocks without undo data; add them to `raw_blocks`."""
    assert raw_blocks.undo_limits is not None  # noqa: S101 - read_blocks always sets it
    has_undo = np.diff(raw_blocks.undo_limits) > 0
    spent = [
        (None, None) if is_found or task.undo.n_tx == 1 else ask_spent(client, task.ref.block_hash)
        for task, is_found in zip(tasks, has_undo, strict=True)
    ]
    raw_blocks.fees_sat = [fees_sat for fees_sat, _ in spent]
    raw_blocks.spent_types = [types for _, types in spent]
