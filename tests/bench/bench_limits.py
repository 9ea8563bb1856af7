"""What bounds each stage of a backfill: the barest thing that has to be done, measured alone on one core."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gpuhash
from collector.backfill.blockfiles import Folder
from collector.backfill.catalogue import take_stock
from collector.backfill.undofiles import UndoFinder
from collector.backfill.units import Wish, cut
from collector.backfill.work import _one_core, _read
from collector.codec.chunk import make_chunk
from collector.codec.encode import transactions_table
from collector.codec.hashes import stripped_bytes
from collector.codec.timing import Stages
from collector.codec.walk import walk
from collector.dataset.writer import COMPRESSION, COMPRESSION_LEVEL

ROUNDS = 5
HASH_BYTES = 32


def stage_limits(blocks_dir: Path, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Compare the stages of one worker with their limits; rates are bytes of blocks per second."""
    folder = Folder(blocks_dir)
    catalogue = take_stock(folder, lambda *_: None)
    units = list(cut(catalogue, folder, Wish().among(catalogue).tolist(), 1))
    unit = max(units, key=lambda tasks: sum(task.size_bytes for task in tasks))
    with _one_core():
        bodies = _read(folder, UndoFinder(folder), unit)
        chunk, _ = make_chunk(bodies, folder.chain, Stages())
        assert chunk is not None
        limits = measure(folder, unit, bodies, chunk)
    seconds, n_bytes = facts["stage_seconds"], facts["block_bytes"]
    total_s = sum(seconds.values())
    found = {}
    for stage, spent_s in seconds.items():
        what, limit_s = limits.get(stage, ("", 0.0))
        limit_rate = len(bodies.data) / limit_s if limit_s else 0.0
        rate = n_bytes / spent_s if spent_s else 0.0
        found[stage] = {
            "share_ratio": spent_s / total_s,
            "block_bytes_per_s": rate,
            "limit": what or "no simpler way to measure",
            "limit_block_bytes_per_s": limit_rate,
            "of_limit_ratio": rate / limit_rate if limit_rate else 0.0,
        }
    return found


def measure(folder: Folder, unit: Any, bodies: Any, chunk: Any) -> dict[str, tuple[str, float]]:
    """Seconds that the bare thing takes for one unit, by stage."""
    table = transactions_table(chunk)
    buffers = [
        buffer
        for column in table.columns
        for part in column.chunks
        for buffer in part.buffers()
        if buffer is not None
    ]
    stripped = int(stripped_bytes(chunk.walked.txs)[chunk.walked.txs["witness_at"] > 0].sum())
    limits = bodies.limits[: np.searchsorted(bodies.limits, stripped)]
    witness_free = np.frombuffer(bodies.data.tobytes()[:stripped], np.uint8)
    tx_limits = np.append(chunk.walked.txs["begin"], len(bodies.data))
    n_witness = int((chunk.walked.txs["witness_at"] > 0).sum())
    free_limits = np.linspace(0, len(witness_free), n_witness + 1).astype(np.int64)
    leaves = np.concatenate([chunk.txids, chunk.wtxids])
    pairs = np.ascontiguousarray(np.tile(leaves, (1, 2)))
    del limits

    def read() -> None:
        for task in unit:
            folder.read(task.file, task.at, task.size_bytes)

    def hashes() -> None:
        gpuhash.txids(bodies.data, tx_limits)
        gpuhash.txids(witness_free, free_limits)
        gpuhash.sha256d_batch(pairs)

    def compress() -> None:
        codec = pa.Codec(COMPRESSION, COMPRESSION_LEVEL)
        for buffer in buffers:
            codec.compress(buffer)

    return {
        "read": ("reading the blocks from the file cache", best_s(read)),
        "parse": ("the walk alone", best_s(lambda: walk(bodies.data, bodies.limits))),
        "hash": ("hashing the same bytes and as many tree nodes, nothing else", best_s(hashes)),
        "write": ("zstd over the same Arrow buffers", best_s(compress)),
        "encode": ("copying the same Arrow buffers", best_s(lambda: [bytes(each) for each in buffers])),
    }


def best_s(work: Callable[[], object]) -> float:
    """Seconds of the quickest of some rounds: other programs only ever make it slower."""
    found = []
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun_s)
    return min(found)
