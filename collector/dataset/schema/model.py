"""Define what a table and a column are, and the types, units and closed value sets that they share."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final

import pyarrow as pa

from collector.dataset.marker import DATASET_FORMAT

HEIGHT_SPAN: Final = 1000

HASH: Final = pa.binary(32)
AT: Final = pa.timestamp("us", tz="UTC")
HEADER_TIME: Final = pa.timestamp("s", tz="UTC")
TEXT: Final = pa.string()
COUNT: Final = pa.int32()
BIG: Final = pa.int64()
FLAG: Final = pa.bool_()
OUTPUTS: Final = pa.list_(pa.struct([("value_sat", pa.int64()), ("script", pa.binary())]))
HISTOGRAM: Final = pa.list_(
    pa.struct(
        [
            ("from_feerate_sat_vb", pa.float64()),
            ("n_tx", pa.int64()),
            ("vsize_vb", pa.int64()),
            ("fees_sat", pa.int64()),
        ]
    )
)

SEEN_KINDS: Final = ("pushed", "pulled", "at_start", "in_block")
EVENTS: Final = ("A", "R", "C", "D")
BODY_REASONS: Final = ("left", "entered", "left_unseen")
REMOVAL_REASONS: Final = ("mined", "replaced", "conflict", "expired_or_evicted", "reorged", "unknown")
BLOCK_EVENTS: Final = ("seen", "connected", "disconnected")
CHAIN_TIP_STATES: Final = ("active", "valid-fork", "valid-headers", "headers-only", "invalid", "unknown")
ZMQ_TOPICS: Final = ("sequence", "rawtx", "rawblock")  # the collector subscribes to these
COVERAGE_TOPICS: Final = (*ZMQ_TOPICS, "mempool")  # a coverage interval has one of these
END_REASONS: Final = (
    "sealed",
    "shutdown",
    "killed",
    "gap",
    "overflow",
    "node_restart",
    "reconnect",
    "resync",
    "clock_step",
    "silent",
)
# Those after which something was lost.
LOSS_REASONS: Final = tuple(each for each in END_REASONS if each not in ("sealed", "shutdown", "killed"))
VERDICTS: Final = (
    "valid",
    "bad_proof_of_work",
    "bad_merkle_root",
    "mutated",
    "bad_witness_commitment",
    "bad_txid",
)
OUTPUT_TYPES: Final = (
    "pubkey",
    "pubkeyhash",
    "scripthash",
    "multisig",
    "nulldata",
    "witness_v0_keyhash",
    "witness_v0_scripthash",
    "witness_v1_taproot",
    "anchor",
    "witness_unknown",
    "nonstandard",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Describes one column of a table: name, Arrow type, one sentence `doc`, and whether it may be null.

    `values` is the closed set of its values; empty means any value of the type.
    """

    name: str
    type: pa.DataType
    doc: str
    nullable: bool = False
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Describes one raw table: its grain (the columns that identify a row), its sort key and its columns.

    `day_column` is the time whose UTC day chooses the folder; None means folders by height.
    """

    name: str
    doc: str
    grain: tuple[str, ...]
    sort: tuple[str, ...]
    columns: tuple[Column, ...]
    day_column: str | None = None
    version: int = 1

    @cached_property
    def arrow(self) -> pa.Schema:
        """Return the Arrow schema of the table.

        Its metadata has table name, version, grain and sort key; the metadata of each field has the column's
        `doc`.
        """
        fields = [
            pa.field(column.name, column.type, nullable=column.nullable, metadata={"doc": column.doc})
            for column in self.columns
        ]
        metadata = {
            "format": DATASET_FORMAT,
            "table": self.name,
            "version": str(self.version),
            "grain": ",".join(self.grain),
            "sort": ",".join(self.sort),
        }
        return pa.schema(fields, metadata=metadata)

    @cached_property
    def row_type(self) -> pa.DataType:
        """Return the Arrow type of a whole row: a struct of all columns."""
        return pa.struct([pa.field(column.name, column.type) for column in self.columns])


def hash_hex(value: bytes) -> str:
    """Return a hash (bytes in internal byte order) in display order, as RPC writes it: reversed, in hex."""
    return value[::-1].hex()


def hash_bytes(text: str) -> bytes:
    """Return the bytes of a hash, in internal byte order, from 64 hex digits in RPC's (reversed) order.

    Raises ValueError for any other text.
    """
    value = bytes.fromhex(text)[::-1]
    if len(value) != HASH.byte_width:
        raise ValueError(f"{text!r} is not a hash: expected 64 hex digits")
    return value


def satoshi(amount: Decimal | int) -> int:
    """Convert an amount in BTC, as RPC gives it, to satoshi.

    Raises ValueError if that is no whole number, and TypeError for what is no number at all.
    """
    if type(amount) is not Decimal:
        if isinstance(amount, bool):
            raise TypeError(f"{amount} is no amount")
        amount = Decimal(amount)
    scaled = amount.scaleb(8)
    value = int(scaled)
    if value != scaled:
        raise ValueError(f"{amount} BTC is not a whole number of satoshi")
    return value


def col(
    name: str, type_: pa.DataType, doc: str, *, nullable: bool = False, values: tuple[str, ...] = ()
) -> Column:
    """Return a Column with the given name, Arrow type and sentence that describes the column."""
    return Column(name=name, type=type_, doc=doc, nullable=nullable, values=values)


NODE = col("node", TEXT, "Name of the watched node, from the settings.")
SESSION = col("session", TEXT, "One collector run against one run of the node; identifies a row of `nodes`.")
BLOCK_HASH = col("block_hash", HASH, "Header hash, internal byte order.")
TXID = col("txid", HASH, "Transaction id, internal byte order.")

# What the bytes of a transaction show of the things that policies ask about. Files of version 0.1.0 lack
# these columns, so they are nullable.
TRAITS: Final = (
    col(
        "op_return_bytes",
        COUNT,
        "Size of the largest output script that begins with OP_RETURN, that opcode included; 0 without one.",
        nullable=True,
    ),
    col(
        "n_dust_outputs",
        COUNT,
        "Number of outputs below the dust threshold of Bitcoin Core at its default, 3 sat/vB.",
        nullable=True,
    ),
    col(
        "n_envelopes",
        COUNT,
        "Number of OP_0 OP_IF ... OP_ENDIF in scripts of taproot script-path spends, as inscriptions have.",
        nullable=True,
    ),
    col("envelope_bytes", COUNT, "Size of these envelopes, with their opcodes.", nullable=True),
)
