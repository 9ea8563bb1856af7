"""Hash the transactions of many blocks in two batches, and check what their headers commit to.

Nothing is copied but the serialisations without witness: in the chunk's bytes transactions stand back to
back, and what stands between two blocks is hashed along and dropped.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

import gpuhash
from collector.codec.arrays import Bytes, Flags, Integers, Records
from collector.codec.coinbase import witness_commitment
from collector.codec.decode import Block
from collector.codec.verify import SEGWIT_HEIGHT, has_work
from collector.codec.walk import Walked
from gpuhash.compiled import compiler
from gpuhash.packing import Offsets

compiled = compiler(__package__)

HASH_BYTES: Final = 32
RESERVED_STACK: Final = b"\x01\x20"  # one item of 32 bytes


def transaction_ids(data: Bytes, walked: Walked) -> tuple[Bytes, Bytes]:
    """Return txids and wtxids, uint8[n_txs, 32] each, in internal byte order. Every block must be sound."""
    blocks, txs = walked.blocks, walked.txs
    first_in_block = np.repeat(np.arange(len(blocks)), blocks["n_tx"])
    rows = np.arange(len(txs)) + first_in_block + 1
    limits = np.empty(len(txs) + len(blocks) + 1, np.int64)
    limits[rows] = txs["begin"]
    limits[blocks["first_tx"] + np.arange(len(blocks))] = blocks["begin"]
    limits[-1] = len(data)
    wtxids = np.take(gpuhash.txids(data, limits), rows, axis=0)
    return txids_beside(wtxids, data, txs), wtxids


def txids_beside(wtxids: Bytes, data: Bytes, txs: Records) -> Bytes:
    """Return txids, uint8[n_txs, 32]: hash anew what has witness data, and take the wtxid of the rest."""
    with_witness = np.flatnonzero(txs["witness_at"])
    txids = wtxids.copy()
    if len(with_witness):
        txids[with_witness] = gpuhash.txids(*_without_witness(data, txs[with_witness]))
    return txids


def failed_blocks(
    data: Bytes,
    walked: Walked,
    txids: Bytes,
    wtxids: Bytes,
    *,
    heads: Sequence[Block],
    heights: Sequence[int],
    chain: str,
) -> Flags:
    """Tell which blocks `verify.verify_block` would not call valid: bool[n_blocks].

    heads are the blocks with nothing but their coinbase.
    """
    failed = np.array([not has_work(head, chain) for head in heads], np.bool_)
    limits = np.append(walked.blocks["first_tx"], len(walked.txs))
    roots, is_mutated = gpuhash.merkle_roots(txids, limits)
    headers = np.frombuffer(b"".join(head.header.merkle_root for head in heads), np.uint8)
    failed |= is_mutated | np.any(roots != headers.reshape(-1, HASH_BYTES), axis=1)
    commitments = [
        witness_commitment(head.coinbase.outputs) if height >= SEGWIT_HEIGHT[chain] else None
        for head, height in zip(heads, heights, strict=True)
    ]
    return failed | _uncommitted(data, walked, wtxids, commitments)


def _uncommitted(data: Bytes, walked: Walked, wtxids: Bytes, commitments: Sequence[bytes | None]) -> Flags:
    """Tell which blocks hold witness data that their coinbase does not commit to."""
    blocks, txs = walked.blocks, walked.txs
    failed = np.logical_or.reduceat(txs["witness_at"] > 0, blocks["first_tx"])
    committed, both = [], []
    leaves = wtxids.copy()
    leaves[blocks["first_tx"]] = 0  # the coinbase cannot hash itself
    roots, _ = gpuhash.merkle_roots(leaves, np.append(blocks["first_tx"], len(txs)))
    for i, found in enumerate(commitments):
        if found is not None:
            witness_at = txs[blocks[i]["first_tx"]]["witness_at"]
            stack = data[witness_at : witness_at + len(RESERVED_STACK) + HASH_BYTES].tobytes()
            is_there = witness_at > 0 and stack.startswith(RESERVED_STACK)
            failed[i] = not is_there
            if is_there:
                committed.append((i, found))
                both.append(roots[i].tobytes() + stack[len(RESERVED_STACK) :])
    if committed:
        hashes = gpuhash.sha256d_batch(np.frombuffer(b"".join(both), np.uint8).reshape(-1, 2 * HASH_BYTES))
        for (i, found), computed in zip(committed, hashes, strict=True):
            failed[i] = computed.tobytes() != found
    return failed


def _without_witness(data: Bytes, txs: Records) -> tuple[Bytes, Offsets]:
    """Return the serialisations without witness, back to back, and their limits."""
    limits = np.zeros(len(txs) + 1, np.int64)
    np.cumsum(stripped_bytes(txs), out=limits[1:])
    flat = np.empty(limits[-1], np.uint8)
    _copy_stripped(data, txs, flat, limits)
    return flat, limits


def stripped_bytes(txs: Records) -> Integers:
    """Return the size without witness of each transaction: version, inputs and outputs, lock time."""
    whole: Integers = txs["end"] - txs["begin"]
    without: Integers = txs["witness_at"] - txs["begin"] + 2
    return np.where(txs["witness_at"] > 0, without, whole)


@compiled
def _copy_stripped(data: Bytes, txs: Records, flat: Bytes, limits: Integers) -> None:
    for k in range(len(txs)):
        begin, end, stripped = txs[k].begin, txs[k].end, limits[k + 1] - limits[k]
        # Inputs and outputs stand two bytes further in the source: behind version come marker and flag.
        # A loop from 0 over the whole compiles to wide moves; then both ends are put right.
        source, target = data[begin + 2 : begin + 2 + stripped], flat[limits[k] : limits[k + 1]]
        for i in range(stripped):
            target[i] = source[i]
        for i in range(4):
            target[i] = data[begin + i]
            target[stripped - 4 + i] = data[end - 4 + i]
