"""Serialise the transactions and blocks we make, as BIP144 says.

Hashes are in internal byte order; `txid_hex` gives the reversed order that RPC uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from gpuhash.reference import sha256d

VERSION: Final = 2
FINAL: Final = 0xFFFFFFFF  # sequence of an input that signals nothing
REPLACEABLE: Final = 0xFFFFFFFD  # BIP125
NULL_HASH: Final = bytes(32)
SEGWIT_MARKER: Final = b"\x00\x01"
MAX_ONE_BYTE_PUSH: Final = 75


@dataclass(frozen=True, slots=True)
class TxInput:
    """Spends output `vout` of `txid` (internal byte order)."""

    txid: bytes
    vout: int
    script_sig: bytes = b""
    witness: tuple[bytes, ...] = ()
    sequence: int = FINAL


@dataclass(frozen=True, slots=True)
class TxOutput:
    """Pays `value_sat` to `script`."""

    value_sat: int
    script: bytes


@dataclass(frozen=True)
class Transaction:
    """One transaction; everything derived is computed once."""

    inputs: tuple[TxInput, ...]
    outputs: tuple[TxOutput, ...]
    locktime: int = field(default=0, kw_only=True)

    @cached_property
    def stripped(self) -> bytes:
        """Serialisation without witness data, which the txid hashes."""
        return b"".join((VERSION.to_bytes(4, "little"), self._body, self.locktime.to_bytes(4, "little")))

    @cached_property
    def raw(self) -> bytes:
        """Full serialisation, in the old form when no input has a witness."""
        if not any(each.witness for each in self.inputs):
            return self.stripped
        stacks = [
            compact_size(len(each.witness)) + b"".join(map(with_length, each.witness)) for each in self.inputs
        ]
        start = VERSION.to_bytes(4, "little") + SEGWIT_MARKER
        return b"".join((start, self._body, *stacks, self.locktime.to_bytes(4, "little")))

    @cached_property
    def txid(self) -> bytes:
        """Transaction id, internal byte order."""
        return sha256d(self.stripped)

    @cached_property
    def wtxid(self) -> bytes:
        """Hash of the full serialisation, internal byte order."""
        return sha256d(self.raw)

    @property
    def txid_hex(self) -> str:
        """Transaction id as RPC writes it."""
        return self.txid[::-1].hex()

    @property
    def weight_wu(self) -> int:
        """BIP141 weight."""
        return 3 * len(self.stripped) + len(self.raw)

    @property
    def vsize_vb(self) -> int:
        """Weight / 4, rounded up."""
        return -(-self.weight_wu // 4)

    @property
    def _body(self) -> bytes:
        inputs = [
            b"".join(
                (
                    each.txid,
                    each.vout.to_bytes(4, "little"),
                    with_length(each.script_sig),
                    each.sequence.to_bytes(4, "little"),
                )
            )
            for each in self.inputs
        ]
        outputs = [each.value_sat.to_bytes(8, "little") + with_length(each.script) for each in self.outputs]
        return b"".join((compact_size(len(inputs)), *inputs, compact_size(len(outputs)), *outputs))


def compact_size(value: int) -> bytes:
    """Encode a count the way the protocol does: 1, 3, 5 or 9 bytes."""
    for limit, prefix, n_bytes in ((0xFD, b"", 1), (0x10000, b"\xfd", 2), (0x100000000, b"\xfe", 4)):
        if value < limit:
            return prefix + value.to_bytes(n_bytes, "little")
    return b"\xff" + value.to_bytes(8, "little")


def with_length(data: bytes) -> bytes:
    """Put the length of `data` before it."""
    return compact_size(len(data)) + data


def push(data: bytes) -> bytes:
    """Script that pushes up to 75 bytes."""
    if len(data) > MAX_ONE_BYTE_PUSH:
        raise ValueError(f"{len(data)} bytes do not fit a one-byte push")
    return bytes([len(data)]) + data


def height_push(height: int) -> bytes:
    """Script that begins the coinbase of a block at `height`, as BIP34 wants it."""
    if height == 0:
        return b"\x00"
    if height <= 16:  # noqa: PLR2004 - OP_1 to OP_16 stand for the numbers
        return bytes([0x50 + height])
    return push(height.to_bytes(height.bit_length() // 8 + 1, "little"))


def serialise_block(header: bytes, transactions: Sequence[bytes]) -> bytes:
    """Put an 80-byte header before the raw transactions."""
    return b"".join((header, compact_size(len(transactions)), *transactions))
