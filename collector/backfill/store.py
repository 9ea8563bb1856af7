"""Turn the raw blocks of one unit into rows, write the rows, and count what was written and rejected.

A unit becomes one file of `transactions` and then one of `blocks`, both named after the blocks in them.
`collector.journal.present_blocks` tells the next run which blocks it need not write again.
"""

import hashlib
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.codec.chunk import Chunk, RawBlocks, RejectedBlock, make_chunk
from collector.codec.feerates import UNKNOWN
from collector.codec.rows import blocks_table, transactions_table
from collector.codec.timing import StageTimes
from collector.codec.verify import backend_name
from collector.dataset.open import Dataset
from collector.dataset.rows import RejectRow
from collector.dataset.schema import BACKFILL_NODE, BLOCKS, REJECTS, TRANSACTIONS
from collector.journal.present_blocks import unit_stem

DIGEST_BYTES: Final = 8
KIB: Final = 1024


@dataclass(slots=True, kw_only=True)
class WorkResult:
    """Holds the counts and problems of one unit of work, or the sum over many."""

    n_blocks: int = 0
    n_tx: int = 0
    n_without_fees: int = 0  # blocks in which some fee is unknown
    n_present: int = 0  # blocks that another process has written in the meantime
    block_bytes: int = 0
    file_bytes: int = 0
    memory_bytes: int = 0  # peak of one process
    last_height: int = -1
    rejected: list[RejectedBlock] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # places of blocks that a node is still writing
    unavailable: list[str] = field(default_factory=list)  # `height: reason` of blocks that were not given
    times: StageTimes = field(default_factory=StageTimes)

    def add(self, other: "WorkResult") -> None:
        """Add the counts and problems of another unit of work to this one."""
        for name in ("n_blocks", "n_tx", "n_without_fees", "n_present", "block_bytes", "file_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.last_height = max(self.last_height, other.last_height)
        self.rejected += other.rejected
        self.unfinished += other.unfinished
        self.unavailable += other.unavailable
        self.times.add(other.times)


def store_blocks(dataset_root: Path, chain: str, raw_blocks: RawBlocks, result: WorkResult) -> None:
    """Verify blocks and write the rows of the valid ones into a dataset.

    `result` gets the counts and the rejected blocks.
    """
    chunk, result.rejected = make_chunk(raw_blocks, chain, result.times)
    if chunk is not None:
        result.file_bytes = _write_chunk(Dataset.open(dataset_root, chain), chunk, result.times)
        result.n_blocks, result.n_tx = len(chunk.heads), len(chunk.layout.txs)
        result.block_bytes = sum(head.size_bytes for head in chunk.heads)
        result.last_height = max(ref.height for ref in chunk.refs)
        is_unknown = (chunk.fee_sat == UNKNOWN) & ~chunk.layout.txs["is_coinbase"]
        result.n_without_fees = int(np.logical_or.reduceat(is_unknown, chunk.layout.blocks["first_tx"]).sum())
    result.memory_bytes = peak_memory_bytes()


def _write_chunk(dataset: Dataset, chunk: Chunk, times: StageTimes) -> int:
    """Write the rows of some blocks of one span of heights; return the size of the files in bytes.

    A row of `blocks` that the dataset has already is left out.
    """
    with times.measure("encode"):
        transactions = transactions_table(chunk, coded=True)
        blocks = blocks_table(chunk, chain=dataset.chain, verified_by=backend_name())
        blocks = blocks.filter(pa.array(not ref.is_row_stored for ref in chunk.refs))
    with times.measure("write"):
        stem = unit_stem((ref.height for ref in chunk.refs), (head.block_hash for head in chunk.heads))
        paths = dataset.write(TRANSACTIONS, transactions, stem=stem, is_sorted=True)
        paths += dataset.write(BLOCKS, blocks, stem=stem, is_sorted=True)
    return sum(path.stat().st_size for path in paths)


class Rejects:
    """Writes rejected blocks into the table `rejects`, each only once, even over several runs."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        found = dataset.read(REJECTS).select(["node", "topic", "body"])
        own = found.filter(pc.equal(found["node"], BACKFILL_NODE)).to_pylist()
        self._written = {_identity(row["topic"], row["body"]) for row in own}

    def add(self, rejected: Sequence[RejectedBlock]) -> None:
        """Write those rejected blocks into the table `rejects` that it does not hold yet."""
        rows: list[RejectRow] = []
        for each in rejected:
            identity = _identity(each.ref.origin, each.body)
            if identity not in self._written:
                self._written.add(identity)
                rows.append(
                    {
                        "node": BACKFILL_NODE,
                        "session": BACKFILL_NODE,
                        "received_at": time.time_ns() // 1000,
                        "topic": each.ref.origin,
                        "reason": each.reason,
                        "body": each.body,
                    }
                )
        if rows:
            digest = _digest(_identity(row["topic"], row["body"]) for row in rows)
            self._dataset.write(REJECTS, rows, stem=f"backfill-{digest}")


def _identity(topic: str, body: bytes) -> bytes:
    """Return a SHA-256 of the origin and bytes of a rejected block, by which a repetition is recognised."""
    return hashlib.sha256(topic.encode() + b"\x00" + body).digest()


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[: 2 * DIGEST_BYTES]


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB
