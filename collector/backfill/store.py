"""Write what a backfill reads: the rows of blocks, and what is bad.

A unit of work becomes one file of `transactions` and then one of `blocks`, both named after the blocks in
them. `collector.journal.present_blocks` tells the next run which blocks it need not write again.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow.compute as pc

from collector.codec.chunk import Bad, Chunk
from collector.codec.encode import blocks_table, transactions_table
from collector.codec.timing import Stages
from collector.dataset.open import Dataset
from collector.dataset.rows import RejectRow
from collector.dataset.schema import BACKFILL_NODE, BLOCKS, REJECTS, TRANSACTIONS

DIGEST_BYTES: Final = 8


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
        own = found.filter(pc.equal(found["node"], BACKFILL_NODE)).to_pylist()
        self._known = {_identity(row["topic"], row["body"]) for row in own}

    def add(self, bad: Sequence[Bad]) -> None:
        """Write those that are new."""
        rows: list[RejectRow] = []
        for each in bad:
            identity = _identity(each.place.origin, each.body)
            if identity not in self._known:
                self._known.add(identity)
                rows.append(
                    {
                        "node": BACKFILL_NODE,
                        "session": BACKFILL_NODE,
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
