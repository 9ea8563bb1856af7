"""Recompute what a block's header commits to, and say what does not hold.

Hashing is done through gpuhash. Checked are proof of work, merkle root, the duplicate-leaf trick of
CVE-2012-2459, the witness commitment of BIP 141, and the txids that a node names. Not checked are scripts,
amounts and the rules of the node's consensus beyond these: the node has done so.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

import gpuhash
from collector.codec.coinbase import bip34_height, witness_commitment
from collector.codec.decode import NO_HASH, Block
from gpuhash.backend import choose

# The easiest target of each chain (Bitcoin Core, src/kernel/chainparams.cpp).
_LIMIT_BITS: Final = {
    "main": 0x1D00FFFF,
    "test": 0x1D00FFFF,
    "testnet4": 0x1D00FFFF,
    "signet": 0x1E0377AE,
    "regtest": 0x207FFFFF,
}
# On mainnet no block with a header time of these seconds or later had a target easier than these bits: the
# easiest of any retarget period since (first headers of all periods up to height 878,976). The hardest of
# them leaves room for a loss of 98 % of today's hashrate. Without this, blocks of other chains would pass.
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


def backend_name() -> str:
    """Name the gpuhash backend that verification uses on this machine, for `blocks.verified_by`."""
    return choose("auto").name


def warm_up() -> None:
    """Compile what verification needs, a second's work at its first use; later calls cost nothing."""
    gpuhash.merkle_root(_leaves([NO_HASH, NO_HASH]))


def verify_block(
    block: Block, chain: str, expected_txids: Sequence[bytes] | None = None, *, height: int | None = None
) -> str:
    """Return the first of schema.VERDICTS that fails, or "valid".

    expected_txids are the node's, in block order and internal byte order. The height decides whether BIP 141
    was in force; without it the coinbase's own is taken, and a block that states none is taken for older.
    """
    if not has_work(block, chain):
        return "bad_proof_of_work"
    txids = [transaction.txid for transaction in block.transactions]
    merkle = gpuhash.merkle_root(_leaves(txids))
    if merkle.root != block.header.merkle_root:
        return "bad_merkle_root"
    if merkle.mutated:
        return "mutated"
    known_height = bip34_height(block) if height is None else height
    if not _is_committed(block, is_segwit=is_segwit_height(known_height, chain)):
        return "bad_witness_commitment"
    if expected_txids is not None and list(expected_txids) != txids:
        return "bad_txid"
    return "valid"


def is_segwit_height(height: int | None, chain: str) -> bool:
    """Whether blocks at this height must obey BIP 141; a block without a height is older."""
    return height is not None and height >= SEGWIT_HEIGHT[chain]


def has_work(block: Block, chain: str) -> bool:
    """Whether the block's hash meets its own target, and that target is one its chain could have set."""
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
    """Whether the witness data is what the coinbase commits to; without a commitment there must be none."""
    commitment = witness_commitment(block.coinbase.outputs) if is_segwit else None
    if commitment is None:
        return not any(transaction.has_witness for transaction in block.transactions)
    if len(block.coinbase_witness) != 1 or len(block.coinbase_witness[0]) != _RESERVED_BYTES:
        return False
    # The coinbase cannot hash itself: zeros stand in its place.
    wtxids = [NO_HASH, *(transaction.wtxid for transaction in block.transactions[1:])]
    root = gpuhash.merkle_root(_leaves(wtxids)).root
    both = np.frombuffer(root + block.coinbase_witness[0], np.uint8).reshape(1, -1)
    return gpuhash.sha256d_batch(both).tobytes() == commitment


def _leaves(hashes: Sequence[bytes]) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, len(NO_HASH))
