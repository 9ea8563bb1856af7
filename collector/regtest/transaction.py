"""Build the transactions and blocks that the regtest pools make, serialised by python-bitcoinlib.

This is the only module of the packages that imports python-bitcoinlib, and only `bitcoin.core`, because
`bitcoin.core.key` loads OpenSSL. Hashes are in internal byte order; `txid_hex` is in the reversed order that
RPC uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from bitcoin.core import (
    COutPoint,
    CScript,
    CScriptWitness,
    CTransaction,
    CTxIn,
    CTxInWitness,
    CTxOut,
    CTxWitness,
    VarIntSerializer,
)

VERSION: Final = 2
FINAL: Final = 0xFFFFFFFF  # sequence of an input that signals nothing
REPLACEABLE: Final = 0xFFFFFFFD  # BIP125
NULL_HASH: Final = bytes(32)
MAX_ONE_BYTE_PUSH: Final = 75


@dataclass(frozen=True, slots=True)
class TxInput:
    """Is an input of a transaction: it spends output number `vout` of `txid` (internal byte order)."""

    txid: bytes
    vout: int
    script_sig: bytes = b""
    witness: tuple[bytes, ...] = ()
    sequence: int = FINAL


@dataclass(frozen=True, slots=True)
class TxOutput:
    """Is an output of a transaction: it pays `value_sat` to the output script `script`."""

    value_sat: int
    script: bytes


@dataclass(frozen=True)
class RegtestTransaction:
    """Holds one transaction; its serialisations and hashes are computed once."""

    inputs: tuple[TxInput, ...]
    outputs: tuple[TxOutput, ...]
    locktime: int = field(default=0, kw_only=True)
    version: int = field(default=VERSION, kw_only=True)

    @cached_property
    def stripped(self) -> bytes:
        """Return the serialisation without witness data, whose hash is the txid."""
        stripped: bytes = self._core.serialize({"include_witness": False})
        return stripped

    @cached_property
    def raw(self) -> bytes:
        """Return the full serialisation (BIP144); without a witness it is the same as `stripped`."""
        raw: bytes = self._core.serialize()
        return raw

    @cached_property
    def txid(self) -> bytes:
        """Return the transaction id in internal byte order."""
        txid: bytes = self._core.GetTxid()
        return txid

    @cached_property
    def wtxid(self) -> bytes:
        """Return the hash of the full serialisation in internal byte order."""
        wtxid: bytes = self._core.GetHash()
        return wtxid

    @property
    def txid_hex(self) -> str:
        """Return the transaction id in hex as RPC writes it."""
        return self.txid[::-1].hex()

    @property
    def weight_wu(self) -> int:
        """Return the weight of the transaction in weight units (BIP141)."""
        return 3 * len(self.stripped) + len(self.raw)

    @property
    def vsize_vb(self) -> int:
        """Return the virtual size in vB: weight / 4, rounded up."""
        return -(-self.weight_wu // 4)

    @cached_property
    def _core(self) -> CTransaction:
        """Return this transaction as an object of python-bitcoinlib."""
        return CTransaction(
            [CTxIn(COutPoint(each.txid, each.vout), each.script_sig, each.sequence) for each in self.inputs],
            [CTxOut(each.value_sat, each.script) for each in self.outputs],
            self.locktime,
            self.version,
            CTxWitness([CTxInWitness(CScriptWitness(each.witness)) for each in self.inputs]),
        )


def compact_size(value: int) -> bytes:
    """Return a count as the bytes of Bitcoin's CompactSize: 1, 3, 5 or 9 bytes."""
    encoded: bytes = VarIntSerializer.serialize(value)
    return encoded


def push(data: bytes) -> bytes:
    """Return the script bytes that push `data`; raise ValueError for more than 75 bytes."""
    if len(data) > MAX_ONE_BYTE_PUSH:
        raise ValueError(f"{len(data)} bytes do not fit a one-byte push")
    return bytes(CScript([data]))


def height_push(height: int) -> bytes:
    """Return the push of the height with which a coinbase script begins, as BIP34 demands."""
    return bytes(CScript([height]))


def pay_to_script_hash(redeem_script: bytes) -> bytes:
    """Return the output script that pays to the hash of a script (P2SH)."""
    return bytes(CScript(redeem_script).to_p2sh_scriptPubKey())


def serialise_block(header: bytes, transactions: Sequence[bytes]) -> bytes:
    """Return a block: the 80-byte header, the number of transactions, and the raw transactions.

    python-bitcoinlib would parse every transaction again to do this.
    """
    return b"".join((header, compact_size(len(transactions)), *transactions))
