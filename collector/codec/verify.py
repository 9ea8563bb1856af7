"""Recompute what a block's header commits to, and name the first check that fails.

The checks are proof of work, the merkle root, the duplicate-leaf trick of CVE-2012-2459, the witness
commitment of BIP 141, and the txids that a node names. Scripts, amounts and the other rules of consensus are
not checked: the node has checked them. `verify_block` checks one decoded block and names the fault;
`invalid_blocks` checks many blocks as arrays and refuses the same blocks. gpuhash computes the hashes.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

import gpuhash
from collector.codec.arrays import Bytes, Flags
from collector.codec.block import Block
from collector.codec.coinbase import bip34_height, witness_commitment
from collector.codec.format import NO_HASH
from collector.codec.walk import Layout
from gpuhash.backend import choose

# The easiest target of each chain (Bitcoin Core, src/kernel/chainparams.cpp).
_LIMIT_BITS: Final = {
    "main": 0x1D00FFFF,
    "test": 0x1D00FFFF,
    "testnet4": 0x1D00FFFF,
    "signet": 0x1E0377AE,
    "regtest": 0x207FFFFF,
}
# On mainnet no block with a header time from these seconds on had a target easier than these bits. They are
# the easiest of all retarget periods since then (first headers of all periods up to height 878,976). The
# hardest of them leaves room for a loss of 98 % of today's hashrate. Without these limits blocks of other
# chains would pass.
_MAIN_LIMITS: Final = (
    (1514764800, 0x18009645),  # 2018
    (1483228800, 0x180375FF),  # 2017
    (1420070400, 0x181B0DCA),  # 2015
    (1388534400, 0x1903A30C),  # 2014
    (1364774400, 0x1A02816E),  # 2013-04
)
# First height at which blocks must obey BIP 141 (src/kernel/chainparams.cpp, SegwitHeight).
SEGWIT_HEIGHT: Final = {"main": 481_824, "test": 834_624, "testnet4": 1, "signet": 1, "regtest": 0}
_RESERVED_BYTES: Final = 32
_RESERVED_STACK: Final = b"\x01\x20"  # a witness stack of one item of 32 bytes


def backend_name() -> str:
    """Return the name of the gpuhash backend that verifies here, for the column `blocks.verified_by`."""
    return choose("auto").name


def warm_up_hashing() -> None:
    """Compile, or load from disk, what hashing a merkle tree needs; the first call takes about a second."""
    gpuhash.merkle_root(_leaves([NO_HASH, NO_HASH]))


def verify_block(
    block: Block, chain: str, expected_txids: Sequence[bytes] | None = None, *, height: int | None = None
) -> str:
    """Return the name of the first check in schema.VERDICTS that the block fails, or "valid".

    `expected_txids` are the node's, in block order and internal byte order. The height decides whether BIP
    141 is in force. Without a height, the one in the coinbase is used; a block that states none counts as
    older than BIP 141.
    """
    if not has_work(block, chain):
        return "bad_proof_of_work"
    txids = [transaction.txid for transaction in block.transactions]
    merkle = gpuhash.merkle_root(_leaves(txids))
    if merkle.root != block.header.merkle_root:
        return "bad_merkle_root"
    if merkle.mutated:
        return "mutated"
    block_height = bip34_height(block) if height is None else height
    if not _is_committed(block, is_segwit=is_segwit_height(block_height, chain)):
        return "bad_witness_commitment"
    if expected_txids is not None and list(expected_txids) != txids:
        return "bad_txid"
    return "valid"


def invalid_blocks(
    data: Bytes,
    layout: Layout,
    txids: Bytes,
    wtxids: Bytes,
    *,
    heads: Sequence[Block],
    heights: Sequence[int],
    chain: str,
) -> Flags:
    """Return, as bool[n_blocks], for each block whether `verify_block` would find a fault in it.

    `heads` are the blocks with at least their coinbase.
    """
    failed = np.array([not has_work(head, chain) for head in heads], np.bool_)
    limits = np.append(layout.blocks["first_tx"], len(layout.txs))
    roots, is_mutated = gpuhash.merkle_roots(txids, limits)
    stated = np.frombuffer(b"".join(head.header.merkle_root for head in heads), np.uint8)
    failed |= is_mutated | np.any(roots != stated.reshape(-1, len(NO_HASH)), axis=1)
    commitments = [
        witness_commitment(head.coinbase.outputs) if height >= SEGWIT_HEIGHT[chain] else None
        for head, height in zip(heads, heights, strict=True)
    ]
    return failed | _lack_commitment(data, layout, wtxids, commitments)


def is_segwit_height(height: int | None, chain: str) -> bool:
    """Return whether blocks at this height must obey BIP 141; a block without a height counts as older."""
    return height is not None and height >= SEGWIT_HEIGHT[chain]


def has_work(block: Block, chain: str) -> bool:
    """Return whether the block's hash meets its target, and its chain could have set that target."""
    try:
        target = gpuhash.target_from_bits(block.header.bits)
    except gpuhash.InvalidInputError:
        return False
    return target <= _easiest_target(block, chain) and int.from_bytes(block.block_hash, "little") <= target


def _easiest_target(block: Block, chain: str) -> int:
    if chain == "main":
        for since_s, bits in _MAIN_LIMITS:
            if block.header.time_s >= since_s:
                return gpuhash.target_from_bits(bits)
    return gpuhash.target_from_bits(_LIMIT_BITS[chain])


def _is_committed(block: Block, *, is_segwit: bool) -> bool:
    """Return whether the coinbase commits to the witness data of the block as BIP 141 demands.

    Without a commitment, no transaction may have witness data.
    """
    commitment = witness_commitment(block.coinbase.outputs) if is_segwit else None
    if commitment is None:
        return not any(transaction.has_witness for transaction in block.transactions)
    if len(block.coinbase_witness) != 1 or len(block.coinbase_witness[0]) != _RESERVED_BYTES:
        return False
    # The coinbase cannot contain its own hash: zeros stand in its place.
    wtxids = [NO_HASH, *(transaction.wtxid for transaction in block.transactions[1:])]
    root = gpuhash.merkle_root(_leaves(wtxids)).root
    both = np.frombuffer(root + block.coinbase_witness[0], np.uint8).reshape(1, -1)
    return gpuhash.sha256d_batch(both).tobytes() == commitment


def _lack_commitment(
    data: Bytes, layout: Layout, wtxids: Bytes, commitments: Sequence[bytes | None]
) -> Flags:
    """Return for each block whether it holds witness data that its coinbase does not commit to.

    `commitments` are those of the coinbases, None where BIP 141 is not in force or there is none.
    """
    blocks, txs = layout.blocks, layout.txs
    failed = np.logical_or.reduceat(txs["witness_at"] > 0, blocks["first_tx"])
    committed, both = [], []
    leaves = wtxids.copy()
    leaves[blocks["first_tx"]] = 0  # the coinbase cannot contain its own hash
    roots, _ = gpuhash.merkle_roots(leaves, np.append(blocks["first_tx"], len(txs)))
    for i, found in enumerate(commitments):
        if found is not None:
            witness_at = txs[blocks[i]["first_tx"]]["witness_at"]
            stack = data[witness_at : witness_at + len(_RESERVED_STACK) + len(NO_HASH)].tobytes()
            is_there = witness_at > 0 and stack.startswith(_RESERVED_STACK)
            failed[i] = not is_there
            if is_there:
                committed.append((i, found))
                both.append(roots[i].tobytes() + stack[len(_RESERVED_STACK) :])
    if committed:
        hashes = gpuhash.sha256d_batch(np.frombuffer(b"".join(both), np.uint8).reshape(-1, 2 * len(NO_HASH)))
        for (i, found), computed in zip(committed, hashes, strict=True):
            failed[i] = computed.tobytes() != found
    return failed


def _leaves(hashes: Sequence[bytes]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, len(NO_HASH))
