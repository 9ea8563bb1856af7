"""Measure the limit of each stage of a backfill: the least work that the stage must do, alone on one core."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gpuhash
from collector.backfill.blockfiles import BlockFolder
from collector.backfill.catalogue import read_catalogue
from collector.backfill.file_work import cut_units, read_blocks
from collector.backfill.selection import BlockSelection
from collector.backfill.undofiles import UndoFinder
from collector.backfill.workers import WorkerPool
from collector.codec.chunk import make_chunk
from collector.codec.rows import transactions_table
from collector.codec.timing import StageTimes
from collector.codec.transaction import stripped_bytes
from collector.codec.walk import walk_blocks
from collector.dataset.parquet_files import COMPRESSION, COMPRESSION_LEVEL

ROUNDS = 5
HASH_BYTES = 32


def stage_limits(blocks_dir: Path, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Compare the stages of one worker with their limits; rates are bytes of blocks per second.

    A worker process measures the limits, so that hashing and Arrow have one thread as in a backfill.
    """
    with WorkerPool(1) as pool:
        (limits,) = pool.run(limits_of_largest_unit, [blocks_dir])
    seconds, n_bytes = facts["stage_seconds"], facts["block_bytes"]
    total_s = sum(seconds.values())
    found = {}
    for stage, spent_s in seconds.items():
        what, limit_rate = limits.get(stage, ("no simpler way to measure", 0.0))
        rate = n_bytes / spent_s if spent_s else 0.0
        found[stage] = {
            "share_ratio": spent_s / total_s,
            "block_bytes_per_s": rate,
            "limit": what,
            "limit_block_bytes_per_s": limit_rate,
            "of_limit_ratio": rate / limit_rate if limit_rate else 0.0,
        }
    return found


def limits_of_largest_unit(blocks_dir: Path) -> Any:
    """Measure each stage with the largest unit: what is done, and bytes of blocks per second."""
    folder = BlockFolder(blocks_dir)
    catalogue = read_catalogue(folder, lambda *_: None)
    units = list(cut_units(catalogue, folder, BlockSelection().among(catalogue).tolist(), 1))
    unit = max(units, key=lambda tasks: sum(task.size_bytes for task in tasks))
    raw_blocks = read_blocks(folder, UndoFinder(folder), unit)
    chunk, _ = make_chunk(raw_blocks, folder.chain, StageTimes())
    assert chunk is not None
    limits = measure(folder, unit, raw_blocks, chunk)
    return {stage: (what, len(raw_blocks.data) / limit_s) for stage, (what, limit_s) in limits.items()}


def measure(folder: BlockFolder, unit: Any, raw_blocks: Any, chunk: Any) -> dict[str, tuple[str, float]]:
    """Return, by stage, what the least work is and how many seconds it takes for one unit."""
    table = transactions_table(chunk)
    buffers = [
        buffer
        for column in table.columns
        for part in column.chunks
        for buffer in part.buffers()
        if buffer is not None
    ]
    stripped = int(stripped_bytes(chunk.layout.txs)[chunk.layout.txs["witness_at"] > 0].sum())
    witness_free = np.frombuffer(raw_blocks.data.tobytes()[:stripped], np.uint8)
    tx_limits = np.append(chunk.layout.txs["begin"], len(raw_blocks.data))
    n_witness = int((chunk.layout.txs["witness_at"] > 0).sum())
    free_limits = np.linspace(0, len(witness_free), n_witness + 1).astype(np.int64)
    leaves = np.concatenate([chunk.txids, chunk.wtxids])
    pairs = np.ascontiguousarray(np.tile(leaves, (1, 2)))

    def read() -> None:
        for task in unit:
            folder.read(task.file, task.at, task.size_bytes)

    def hashes() -> None:
        gpuhash.txids(raw_blocks.data, tx_limits)
        gpuhash.txids(witness_free, free_limits)
        gpuhash.sha256d_batch(pairs)

    def compress() -> None:
        codec = pa.Codec(COMPRESSION, COMPRESSION_LEVEL)
        for buffer in buffers:
            codec.compress(buffer)

    return {
        "read": ("reading the blocks from the file cache", best_s(read)),
        "parse": ("the walk alone", best_s(lambda: walk_blocks(raw_blocks.data, raw_blocks.limits))),
        "hash": ("hashing the same bytes and as many tree nodes, nothing else", best_s(hashes)),
        "write": ("zstd over the same Arrow buffers", best_s(compress)),
        "encode": ("copying the same Arrow buffers", best_s(lambda: [bytes(each) for each in buffers])),
    }


def best_s(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some rounds: other programs only ever make it slower."""
    found = []
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun_s)
    return min(found)
