"""Turn the bytes of some blocks into arrays: positions, hashes, verdicts, fees, parents, effective feerates.

A chunk holds valid blocks only. A block that is not valid is set aside with the reason, and the chunk is made
again from the others. That is rare, and every later step may then trust its input.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from collector.codec import undo
from collector.codec.arrays import Bytes, Floats, Integers, Records
from collector.codec.block import Block, coinbase_stack, decode_block, decode_header
from collector.codec.feerates import UNKNOWN, effective_feerates
from collector.codec.format import HEADER_BYTES, NO_HASH
from collector.codec.parents import in_block_parents
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.timing import StageTimes
from collector.codec.traits import transaction_traits
from collector.codec.transaction import decode_transaction, stripped_bytes, transaction_ids
from collector.codec.verify import invalid_blocks, verify_block
from collector.codec.walk import Layout, walk_blocks
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError

WEIGHT_PER_VB: Final = 4


class BlockRef(NamedTuple):
    """Holds the hash and height that a block should have, and where its bytes come from."""

    block_hash: bytes  # internal byte order
    height: int
    height_source: str  # as in the column `blocks.height_source`
    source: str  # as in the column `blocks.source`
    origin: str  # where a person finds the bytes: file and position, or the node
    is_row_stored: bool = False  # the dataset has its row of `blocks`, and lacks its transactions


class RejectedBlock(NamedTuple):
    """Holds a block that is not valid, with the reason and its bytes."""

    ref: BlockRef
    reason: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class RawBlocks:
    """Holds blocks as bytes: block i is data[limits[i]:limits[i + 1]].

    The undo data of block i is undo[undo_limits[i]:undo_limits[i + 1]].

    `fees_sat` and `spent_types` come from a source that states what a block spends without undo data. Each
    has one array per block, or None. An array of fees has one entry per transaction, UNKNOWN for the
    coinbase; an array of types has one entry per input, UNKNOWN_TYPE for the coinbase's.
    """

    refs: list[BlockRef]
    data: Bytes
    limits: Integers
    undo: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    undo_limits: Integers | None = None  # None: no undo data
    fees_sat: list[Integers | None] | None = None
    spent_types: list[Bytes | None] | None = None

    def raw(self, i: int) -> bytes:
        """Return the raw bytes of block number i of these RawBlocks."""
        return self.data[self.limits[i] : self.limits[i + 1]].tobytes()

    def select(self, positions: Sequence[int]) -> "RawBlocks":
        """Return the blocks at these positions, with their undo data, fees and types, as new RawBlocks."""
        data, limits = _select_bytes(self.data, self.limits, positions)
        selected = RawBlocks(refs=[self.refs[i] for i in positions], data=data, limits=limits)
        if self.undo_limits is not None:
            selected.undo, selected.undo_limits = _select_bytes(self.undo, self.undo_limits, positions)
        if self.fees_sat is not None:
            selected.fees_sat = [self.fees_sat[i] for i in positions]
        if self.spent_types is not None:
            selected.spent_types = [self.spent_types[i] for i in positions]
        return selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Holds valid blocks as arrays, with transactions block by block, in the order of their block."""

    refs: list[BlockRef]
    heads: list[Block]  # header and coinbase of each block, perhaps with more transactions
    layout: Layout
    txids: Bytes
    wtxids: Bytes
    size_bytes: Integers
    stripped_bytes: Integers
    input_value_sat: Integers  # UNKNOWN for a coinbase, and where the source does not say
    fee_sat: Integers  # UNKNOWN likewise
    output_types: Bytes  # positions in schema.OUTPUT_TYPES
    spent_types: Bytes  # likewise; UNKNOWN_TYPE where the source does not say
    traits: Records
    parent_limits: Integers
    parents: Integers
    effective_feerates: Floats  # NaN where unknown


def make_chunk(
    raw_blocks: RawBlocks, chain: str, times: StageTimes
) -> tuple[Chunk | None, list[RejectedBlock]]:
    """Decode and verify raw blocks; return the valid ones as a Chunk, or None, and the rejected ones.

    The time of each stage is added to `times`.
    """
    rejected: list[RejectedBlock] = []
    while raw_blocks.refs:
        with times.measure("parse"):
            layout = walk_blocks(raw_blocks.data, raw_blocks.limits)
            faults = np.flatnonzero(~layout.blocks["is_sound"]).tolist()
        if not faults:
            with times.measure("hash"):
                heads = _heads(raw_blocks, layout)
                txids, wtxids = transaction_ids(raw_blocks.data, layout)
                heights = [ref.height for ref in raw_blocks.refs]
                invalid = invalid_blocks(
                    raw_blocks.data, layout, txids, wtxids, heads=heads, heights=heights, chain=chain
                )
                faults = np.flatnonzero(invalid).tolist()
        if not faults:
            return complete_chunk(raw_blocks, layout, heads, (txids, wtxids), times), rejected
        rejected += [_reject(raw_blocks.refs[i], raw_blocks.raw(i), chain) for i in faults]
        raw_blocks = raw_blocks.select([i for i in range(len(raw_blocks.refs)) if i not in faults])
    return None, rejected


def complete_chunk(
    raw_blocks: RawBlocks, layout: Layout, heads: list[Block], ids: tuple[Bytes, Bytes], times: StageTimes
) -> Chunk:
    """Return blocks that are already parsed and hashed as a Chunk: add fees, output types, parents, feerates.

    `heads` are the blocks with at least their coinbase; `ids` are txids and wtxids, as `transaction_ids`
    gives them.
    """
    txs, (txids, wtxids) = layout.txs, ids
    size_bytes, stripped = txs["end"] - txs["begin"], stripped_bytes(txs)
    with times.measure("fees"):
        spent_sat, spent_types = _spent_outputs(raw_blocks, layout)
        fee_sat = np.where(spent_sat == UNKNOWN, UNKNOWN, spent_sat - txs["output_value_sat"])
    with times.measure("parse"):
        traits = transaction_traits(raw_blocks.data, layout, spent_types)
    with times.measure("feerate"):
        limits, parents = in_block_parents(raw_blocks.data, layout, txids)
        vsize_vb = (3 * stripped + size_bytes + WEIGHT_PER_VB - 1) // WEIGHT_PER_VB
        rates = effective_feerates(layout.blocks, vsize_vb, fee_sat, limits, parents)
    return Chunk(
        refs=raw_blocks.refs,
        heads=heads,
        layout=layout,
        txids=txids,
        wtxids=wtxids,
        size_bytes=size_bytes,
        stripped_bytes=stripped,
        input_value_sat=spent_sat,
        fee_sat=fee_sat,
        output_types=traits.output_types,
        spent_types=spent_types,
        traits=traits.of_txs,
        parent_limits=limits,
        parents=parents,
        effective_feerates=rates,
    )


def _spent_outputs(raw_blocks: RawBlocks, layout: Layout) -> tuple[Integers, Bytes]:
    """Return the value (sat) that each transaction spends, and the type of the output that each input spends.

    Both come from undo data or from another source; unknown ones are UNKNOWN and UNKNOWN_TYPE.
    """
    if raw_blocks.undo_limits is None:
        values: Integers = np.full(len(layout.txs), UNKNOWN, np.int64)
        types: Bytes = np.full(len(layout.spends), UNKNOWN_TYPE, np.uint8)
    else:
        values, types = undo.spent_outputs(raw_blocks.undo, raw_blocks.undo_limits, layout.blocks, layout.txs)
    all_fees = raw_blocks.fees_sat or [None] * len(layout.blocks)
    for block, fees_sat in zip(layout.blocks, all_fees, strict=True):
        if fees_sat is not None:
            first, end = block["first_tx"], block["first_tx"] + block["n_tx"]
            has_fee = fees_sat != UNKNOWN
            outputs_sat = layout.txs["output_value_sat"][first:end]
            values[first:end][has_fee] = fees_sat[has_fee] + outputs_sat[has_fee]
    all_types = raw_blocks.spent_types or [None] * len(layout.blocks)
    for block, block_types in zip(layout.blocks, all_types, strict=True):
        if block_types is not None:
            first = block["first_input"]
            types[first : first + block["n_inputs"]] = block_types
    return values, types


def _heads(raw_blocks: RawBlocks, layout: Layout) -> list[Block]:
    """Return header, coinbase and whole size of every block; the other transactions are not decoded."""
    heads = []
    stripped = stripped_bytes(layout.txs)
    for block in layout.blocks:
        begin, first = int(block["begin"]), int(block["first_tx"])
        tx = layout.txs[first]
        header, block_hash = decode_header(raw_blocks.data[begin : begin + HEADER_BYTES].tobytes())
        coinbase = raw_blocks.data[tx["begin"] : tx["end"]].tobytes()
        witness_at = int(tx["witness_at"])
        before_txs_bytes = int(block["transactions_at"]) - begin
        heads.append(
            Block(
                header=header,
                block_hash=block_hash,
                transactions=(decode_transaction(coinbase),),
                size_bytes=int(block["end"]) - begin,
                stripped_bytes=before_txs_bytes + int(stripped[first : first + block["n_tx"]].sum()),
                coinbase_witness=coinbase_stack(coinbase, witness_at and witness_at - int(tx["begin"])),
            )
        )
    return heads


def _reject(ref: BlockRef, raw: bytes, chain: str) -> RejectedBlock:
    """Return a block as rejected, with the reason that the slow decoder and verifier find."""
    try:
        block = decode_block(raw)
    except DecodeError as error:
        return RejectedBlock(ref, str(error), raw)
    if ref.block_hash not in (block.block_hash, NO_HASH):
        return RejectedBlock(ref, f"bytes of another block: {hash_hex(block.block_hash)}", raw)
    verdict = verify_block(block, chain, height=ref.height)
    return RejectedBlock(ref, f"{verdict} (block {hash_hex(block.block_hash)})", raw)


def _select_bytes(data: Bytes, limits: Integers, positions: Sequence[int]) -> tuple[Bytes, Integers]:
    parts = [data[limits[i] : limits[i + 1]] for i in positions]
    new_limits = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=new_limits[1:])
    return (np.concatenate(parts) if parts else data[:0]), new_limits
