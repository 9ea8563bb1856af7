"""Read height and witness commitment from a coinbase, and compute the subsidy that it may take."""

from collections.abc import Sequence
from typing import Final

from collector.codec.block import Block
from collector.codec.transaction import TxOut

_COIN_SAT: Final = 100_000_000
_FIRST_SUBSIDY_SAT: Final = 50 * _COIN_SAT
_HALVING_BLOCKS: Final = 210_000
_REGTEST_HALVING_BLOCKS: Final = 150
_MAX_HALVINGS: Final = 64  # shifting further is undefined in Bitcoin Core, which stops here

_COMMITMENT: Final = bytes.fromhex("6a24aa21a9ed")
_COMMITMENT_BYTES: Final = 38
_MAX_HEIGHT_BYTES: Final = 4

_OP_0: Final = 0x00
_OP_1: Final = 0x51
_OP_16: Final = 0x60


def subsidy_sat(height: int, chain: str) -> int:
    """Return the new coins that a block at this height may make, in satoshi."""
    halvings = height // (_REGTEST_HALVING_BLOCKS if chain == "regtest" else _HALVING_BLOCKS)
    return _FIRST_SUBSIDY_SAT >> halvings if halvings < _MAX_HALVINGS else 0


def bip34_height(block: Block) -> int | None:
    """Return the height that the coinbase states, BIP 34; None when it states none.

    Blocks of version 1 are older than the rule: the first bytes of their coinbase mean nothing.
    """
    script = block.coinbase.inputs[0].script
    if block.header.version < 2 or not script:  # noqa: PLR2004 - BIP 34 came with version 2
        return None
    size = script[0]
    if size == _OP_0:
        return 0
    if _OP_1 <= size <= _OP_16:
        return size - _OP_1 + 1
    number = script[1 : 1 + size]
    if not 0 < size <= _MAX_HEIGHT_BYTES or len(number) < size or number[-1] & 0x80:
        return None
    return int.from_bytes(number, "little")


def witness_commitment(outputs: Sequence[TxOut]) -> bytes | None:
    """Return the commitment to the witness data among a coinbase's outputs, BIP 141: the last one counts."""
    for output in reversed(outputs):
        if output.script.startswith(_COMMITMENT) and len(output.script) >= _COMMITMENT_BYTES:
            return output.script[len(_COMMITMENT) : _COMMITMENT_BYTES]
    return None
