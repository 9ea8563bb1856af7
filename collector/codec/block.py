"""Turn the bytes of a block, as the network carries them, into a record of it and its transactions.

`decode_block` takes a block apart step by step and says what is wrong with it. `parse_block` makes the same
record with compiled loops and batch hashing. Both raise nothing but DecodeError, whatever the bytes are, and
demand a coinbase as the first transaction and nowhere else. Hashes are in internal byte order.
"""

from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module calls its exception `error`
from typing import Final, NamedTuple

import numpy as np

from collector.codec.arrays import Bytes
from collector.codec.format import HEADER_BYTES
from collector.codec.transaction import (
    Transaction,
    TxWalk,
    read_size,
    sha256d,
    stripped_bytes,
    transaction_ids,
    transaction_records,
    walk_checked,
)
from collector.codec.walk import Layout, walk_blocks
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError
from collector.log import counted

_TRANSACTION_BYTES: Final = 60  # of the smallest, to refuse counts that the remaining bytes cannot hold
_MAX_INT64: Final = (1 << 63) - 1
_header = Struct("<i32s32sIII").unpack_from


class Header(NamedTuple):
    """Holds a decoded block header; hashes are in internal byte order."""

    version: int  # signed, as the node shows it
    prev_hash: bytes
    merkle_root: bytes
    time_s: int  # seconds since 1970 UTC, chosen by the miner
    bits: int
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Holds a block and all its transactions. Hashes are in internal byte order."""

    header: Header
    block_hash: bytes
    transactions: tuple[Transaction, ...]
    size_bytes: int  # with witness
    stripped_bytes: int  # without witness
    coinbase_witness: tuple[
        bytes, ...
    ]  # the witness stack of its one input, where BIP 141 keeps the reserved value

    @property
    def coinbase(self) -> Transaction:
        """Return the first transaction of the block, which pays the miner."""
        return self.transactions[0]

    @property
    def weight_wu(self) -> int:
        """Return the weight of the block in weight units (BIP 141)."""
        return self.stripped_bytes * 3 + self.size_bytes


class ParsedBlock(NamedTuple):
    """Holds a decoded block, its bytes, the positions of its parts, and all txids and wtxids."""

    block: Block
    raw: bytes
    layout: Layout
    txids: Bytes  # uint8[n_txs, 32], internal byte order
    wtxids: Bytes  # uint8[n_txs, 32], internal byte order


def decode_header(raw: bytes) -> tuple[Header, bytes]:
    """Decode the first 80 bytes of a block; return the header and its hash.

    Raises DecodeError for fewer bytes.
    """
    if len(raw) < HEADER_BYTES:
        raise DecodeError(f"a block of {counted(len(raw), 'byte')}: the header alone has {HEADER_BYTES}")
    return Header(*_header(raw)), sha256d(raw[:HEADER_BYTES])


def decode_block(raw: bytes) -> Block:
    """Decode one serialised block and return it. Raises DecodeError if the bytes are not a complete block.

    Whether the header commits to the transactions is not checked here: `verify.verify_block` does that.
    """
    header, block_hash = decode_header(raw)
    walks, transactions_at = _walk_block(raw)
    transactions = tuple(walk.transaction(raw) for walk in walks)
    _check_contents(transactions, block_hash)
    return Block(
        header=header,
        block_hash=block_hash,
        transactions=transactions,
        size_bytes=len(raw),
        stripped_bytes=transactions_at + sum(transaction.stripped_bytes for transaction in transactions),
        coinbase_witness=coinbase_stack(raw, walks[0].witness_at),
    )


def parse_block(raw: bytes) -> ParsedBlock:
    """Decode one serialised block with compiled functions; return it with positions and txids.

    Raises DecodeError for what `decode_block` refuses.
    """
    data = np.frombuffer(raw, np.uint8)
    layout = walk_blocks(data, np.array([0, len(raw)]))
    if not layout.blocks[0]["is_sound"]:
        block_hash = decode_block(raw).block_hash  # raises an error that says what is wrong
        raise DecodeError(
            f"block {hash_hex(block_hash)}: the compiled walk refuses it and the decoder does not; "
            "this is a fault of ours, please report it"
        )
    header, block_hash = decode_header(raw)
    begins = layout.txs["begin"].tolist()
    txids, wtxids = transaction_ids(data, layout)
    records = transaction_records(
        data, layout, txids, wtxids, sources=repeat(raw), begins=begins, traits=repeat(None)
    )
    block = Block(
        header=header,
        block_hash=block_hash,
        transactions=tuple(records),
        size_bytes=len(raw),
        stripped_bytes=begins[0] + int(stripped_bytes(layout.txs).sum()),
        coinbase_witness=coinbase_stack(raw, int(layout.txs[0]["witness_at"])),
    )
    return ParsedBlock(block, raw, layout, txids, wtxids)


def coinbase_stack(raw: bytes, pos: int) -> tuple[bytes, ...]:
    """Return the witness stack of a coinbase, which begins at byte `pos`; empty for pos 0 (no witness)."""
    if not pos:
        return ()
    count, pos = read_size(raw, pos)
    items = []
    for _ in range(count):
        size, pos = read_size(raw, pos)
        items.append(raw[pos : pos + size])
        pos += size
    return tuple(items)


def _walk_block(raw: bytes) -> tuple[list[TxWalk], int]:
    """Parse a block's transactions; return them as TxWalks, and the byte at which the first one begins.

    Raises DecodeError unless the bytes are exactly one block.
    """
    try:
        count, pos = read_size(raw, HEADER_BYTES)
    except (IndexError, StructError):
        raise DecodeError("the bytes end before the number of transactions") from None
    if count * _TRANSACTION_BYTES > len(raw) - pos:
        claimed = counted(count, "transaction")
        raise DecodeError(f"a block of {counted(len(raw), 'byte')} cannot hold the {claimed} it claims")
    if not count:
        raise DecodeError("the block has no transactions; every block has a coinbase")
    transactions_at = pos
    walks = []
    for _ in range(count):
        walk = walk_checked(raw, pos)
        walks.append(walk)
        pos = walk.end
    if pos != len(raw):
        raise DecodeError(f"the transactions of the block end at byte {pos}, but there are {len(raw)} bytes")
    return walks, transactions_at


def _check_contents(transactions: tuple[Transaction, ...], block_hash: bytes) -> None:
    """Raise DecodeError unless only the first transaction is a coinbase and all outputs' sum fits 64 bits."""
    where = f"block {hash_hex(block_hash)}"
    if not transactions[0].is_coinbase:
        raise DecodeError(f"{where}: the first transaction is not a coinbase")
    for index, transaction in enumerate(transactions[1:], start=1):
        if transaction.is_coinbase:
            raise DecodeError(f"{where}: transaction {index} is a second coinbase")
    if sum(transaction.output_value_sat for transaction in transactions) > _MAX_INT64:
        raise DecodeError(f"{where}: its outputs sum to more than 64 bits hold")
