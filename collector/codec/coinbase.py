"""Read height and witness commitment from a coinbase, compute its subsidy, rebuild its bytes from a row."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from collector.codec.block import Block
from collector.codec.format import NO_HASH, NO_INDEX, VALUE_BYTES
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

_MARKER_AND_FLAG: Final = b"\0\1"  # BIP 144
_LAST_SHORT_SIZE: Final = 0xFC
_LONGER_SIZES: Final = ((1 << 16, 2, b"\xfd"), (1 << 32, 4, b"\xfe"))  # below, bytes, mark


def subsidy_sat(height: int, chain: str) -> int:
    """Return the block subsidy at a height: the new coins that its coinbase may make, in satoshi."""
    halvings = height // (_REGTEST_HALVING_BLOCKS if chain == "regtest" else _HALVING_BLOCKS)
    return _FIRST_SUBSIDY_SAT >> halvings if halvings < _MAX_HALVINGS else 0


def bip34_height(block: Block) -> int | None:
    """Return the height that the coinbase states, BIP 34; None when it states none.

    Blocks of version 1 are older than the rule: the first bytes of their coinbase mean nothing.
    """
    if block.header.version < 2:  # noqa: PLR2004 - BIP 34 came with version 2
        return None
    return stated_height(block.coinbase.inputs[0].script)


def stated_height(script: bytes) -> int | None:
    """Return the number with which the script of a coinbase begins; None when it begins with none."""
    if not script:
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
    """Return the 32 bytes by which a coinbase's outputs commit to the witness data (BIP 141), or None.

    If several outputs do, the last one counts.
    """
    for output in reversed(outputs):
        if output.script.startswith(_COMMITMENT) and len(output.script) >= _COMMITMENT_BYTES:
            return output.script[len(_COMMITMENT) : _COMMITMENT_BYTES]
    return None


def coinbase_bytes(row: Mapping[str, Any], *, with_witness: bool = True) -> bytes | None:
    """Return the serialised coinbase, byte for byte, rebuilt from the row of its block in the table `blocks`.

    The result is None for a row of version 0.1.0, which lacks some of the columns. Without the witness, the
    double SHA-256 of the bytes is `coinbase_txid`; with it, the wtxid. If the coinbase has no witness, both
    are the same bytes.
    """
    if row["coinbase_version"] is None:
        return None
    outputs = [
        output["value_sat"].to_bytes(VALUE_BYTES, "little") + _sized(output["script"])
        for output in row["coinbase_outputs"]
    ]
    reserved_value = row["coinbase_reserved_value"]
    has_witness = with_witness and reserved_value is not None
    parts = (
        row["coinbase_version"].to_bytes(4, "little"),
        _MARKER_AND_FLAG if has_witness else b"",
        _compact_size(1) + NO_HASH + NO_INDEX.to_bytes(4, "little"),
        _sized(row["coinbase_script"]) + row["coinbase_sequence"].to_bytes(4, "little"),
        _compact_size(len(outputs)) + b"".join(outputs),
        _compact_size(1) + _sized(reserved_value) if has_witness else b"",
        row["coinbase_locktime"].to_bytes(4, "little"),
    )
    return b"".join(parts)


def _sized(data: bytes) -> bytes:
    """Return bytes with their length in front, as a compact size."""
    return _compact_size(len(data)) + data


def _compact_size(number: int) -> bytes:
    """Return a number below 2**32 as a compact size, Bitcoin's variable-length integer."""
    for limit, n_bytes, mark in _LONGER_SIZES:
        if _LAST_SHORT_SIZE < number < limit:
            return mark + number.to_bytes(n_bytes, "little")
    return bytes([number])
