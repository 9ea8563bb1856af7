"""Take some blocks from bytes to checked arrays: parse, hash, verify, fees, families, effective feerates.

A chunk holds sound blocks only, and those of a backfill are valid too: one that is not is set aside with the
reason, and the chunk is made again without it; that is rare, and everything after it stays simple.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from collector.codec import undo
from collector.codec.arrays import Bytes, Floats, Integers
from collector.codec.decode import (
    HEADER_BYTES,
    NO_HASH,
    Block,
    decode_block,
    decode_header,
    decode_transaction,
)
from collector.codec.feerates import UNKNOWN, effective_feerates
from collector.codec.hashes import failed_blocks, stripped_bytes, transaction_ids
from collector.codec.parents import in_block_parents
from collector.codec.scripts import output_types
from collector.codec.timing import Stages
from collector.codec.verify import verify_block
from collector.codec.walk import Walked, walk
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError

WEIGHT_PER_VB: Final = 4


class Place(NamedTuple):
    """What is known of a block before it is read."""

    block_hash: bytes  # internal byte order
    height: int
    height_source: str  # as in the column
    source: str  # as in the column
    origin: str  # where a person finds the bytes: file and position, or the node


class Bad(NamedTuple):
    """A block that is not what it should be, with its bytes."""

    place: Place
    reason: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class Bodies:
    """Blocks as bytes: block i is data[limits[i]:limits[i + 1]], what it spent undo[undo_limits[i]:...].

    `fees_sat` is given by sources that know fees without undo data: one array per block, or None, with one
    entry per transaction, UNKNOWN for a coinbase.
    """

    places: list[Place]
    data: Bytes
    limits: Integers
    undo: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    undo_limits: Integers | None = None  # None: no undo data
    fees_sat: list[Integers | None] | None = None

    def body(self, i: int) -> bytes:
        """Bytes of block i."""
        return self.data[self.limits[i] : self.limits[i + 1]].tobytes()

    def only(self, kept: Sequence[int]) -> "Bodies":
        """Return the same with no blocks but these."""
        data, limits = _gather(self.data, self.limits, kept)
        less = Bodies(places=[self.places[i] for i in kept], data=data, limits=limits)
        if self.undo_limits is not None:
            less.undo, less.undo_limits = _gather(self.undo, self.undo_limits, kept)
        if self.fees_sat is not None:
            less.fees_sat = [self.fees_sat[i] for i in kept]
        return less


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Blocks as arrays; transactions block by block in their order."""

    places: list[Place]
    heads: list[Block]  # with at least their coinbase
    walked: Walked
    txids: Bytes
    wtxids: Bytes
    size_bytes: Integers
    stripped_bytes: Integers
    input_value_sat: Integers  # UNKNOWN where it is
    fee_sat: Integers  # the same
    output_types: Bytes  # positions in schema.OUTPUT_TYPES
    parent_limits: Integers
    parents: Integers
    effective_feerates: Floats  # NaN where unknown


def make_chunk(bodies: Bodies, chain: str, stages: Stages) -> tuple[Chunk | None, list[Bad]]:
    """Make a chunk of what is good in bodies; None when nothing is. Bad blocks come with their reasons."""
    bad: list[Bad] = []
    while bodies.places:
        with stages.time("parse"):
            walked = walk(bodies.data, bodies.limits)
            faults = np.flatnonzero(~walked.blocks["is_sound"]).tolist()
        if not faults:
            with stages.time("hash"):
                heads = _heads(bodies, walked)
                txids, wtxids = transaction_ids(bodies.data, walked)
                heights = [place.height for place in bodies.places]
                failed = failed_blocks(
                    bodies.data, walked, txids, wtxids, heads=heads, heights=heights, chain=chain
                )
                faults = np.flatnonzero(failed).tolist()
        if not faults:
            return finish(bodies, walked, heads, (txids, wtxids), stages), bad
        bad += [_explain(bodies.places[i], bodies.body(i), chain) for i in faults]
        bodies = bodies.only([i for i in range(len(bodies.places)) if i not in faults])
    return None, bad


def finish(
    bodies: Bodies, walked: Walked, heads: list[Block], ids: tuple[Bytes, Bytes], stages: Stages
) -> Chunk:
    """Add what follows from the transactions of the same block and from what they spend.

    heads are the blocks with at least their coinbase; ids are what `transaction_ids` gives.
    """
    txs, (txids, wtxids) = walked.txs, ids
    size_bytes, stripped = txs["end"] - txs["begin"], stripped_bytes(txs)
    with stages.time("parse"):
        types = output_types(bodies.data, walked.scripts)
    with stages.time("fees"):
        spent_sat = _input_values(bodies, walked)
        fee_sat = np.where(spent_sat == UNKNOWN, UNKNOWN, spent_sat - txs["output_value_sat"])
    with stages.time("feerate"):
        limits, parents = in_block_parents(bodies.data, walked, txids)
        vsize_vb = (3 * stripped + size_bytes + WEIGHT_PER_VB - 1) // WEIGHT_PER_VB
        rates = effective_feerates(walked.blocks, vsize_vb, fee_sat, limits, parents)
    return Chunk(
        places=bodies.places,
        heads=heads,
        walked=walked,
        txids=txids,
        wtxids=wtxids,
        size_bytes=size_bytes,
        stripped_bytes=stripped,
        input_value_sat=spent_sat,
        fee_sat=fee_sat,
        output_types=types,
        parent_limits=limits,
        parents=parents,
        effective_feerates=rates,
    )


def _input_values(bodies: Bodies, walked: Walked) -> Integers:
    """Value that each transaction spends, by undo data or by the fees that the source knows."""
    if bodies.undo_limits is None:
        values: Integers = np.full(len(walked.txs), UNKNOWN, np.int64)
    else:
        values = undo.input_values(bodies.undo, bodies.undo_limits, walked.blocks, walked.txs)
    for block, fees_sat in zip(walked.blocks, bodies.fees_sat or [None] * len(walked.blocks), strict=True):
        if fees_sat is not None:
            first, end = block["first_tx"], block["first_tx"] + block["n_tx"]
            known = fees_sat != UNKNOWN
            values[first:end][known] = fees_sat[known] + walked.txs["output_value_sat"][first:end][known]
    return values


def _heads(bodies: Bodies, walked: Walked) -> list[Block]:
    """Decode header and coinbase of every block; sizes are those of the whole block."""
    heads = []
    stripped = stripped_bytes(walked.txs)
    for block in walked.blocks:
        begin, first = int(block["begin"]), int(block["first_tx"])
        tx = walked.txs[first]
        header, block_hash = decode_header(bodies.data[begin : begin + HEADER_BYTES].tobytes())
        around_bytes = int(block["transactions_at"]) - begin
        heads.append(
            Block(
                header=header,
                block_hash=block_hash,
                transactions=(decode_transaction(bodies.data[tx["begin"] : tx["end"]].tobytes()),),
                size_bytes=int(block["end"]) - begin,
                stripped_bytes=around_bytes + int(stripped[first : first + block["n_tx"]].sum()),
                coinbase_witness=(),
            )
        )
    return heads


def _explain(place: Place, body: bytes, chain: str) -> Bad:
    """Ask the decoder and the verifier what is wrong with a block that the fast way refuses."""
    try:
        block = decode_block(body)
    except DecodeError as error:
        return Bad(place, str(error), body)
    if place.block_hash not in (block.block_hash, NO_HASH):
        return Bad(place, f"bytes of another block: {hash_hex(block.block_hash)}", body)
    verdict = verify_block(block, chain, height=place.height)
    return Bad(place, f"{verdict} (block {hash_hex(block.block_hash)})", body)


def _gather(data: Bytes, limits: Integers, kept: Sequence[int]) -> tuple[Bytes, Integers]:
    parts = [data[limits[i] : limits[i + 1]] for i in kept]
    new_limits = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=new_limits[1:])
    return (np.concatenate(parts) if parts else data[:0]), new_limits
