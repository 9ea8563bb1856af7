"""Decode many transactions at once, or a whole block, with compiled loops and batch hashing.

The records are those of `collector.codec.decode`. Bytes that the compiled walk refuses go to that decoder,
which says what is wrong with them.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import numpy as np

import gpuhash
from collector.codec.arrays import FAIL, Bytes, Integers, Records
from collector.codec.decode import (
    OUTPOINT_BYTES,
    TXID_BYTES,
    VALUE_BYTES,
    Block,
    Transaction,
    coinbase_stack,
    decode_block,
    decode_header,
    decode_transaction,
)
from collector.codec.walk import Layout, walk_blocks, walk_transactions
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError
from gpuhash.compiled import compiler
from gpuhash.packing import Offsets

compiled = compiler(__package__)

FEW: Final = 8  # up to this many transactions decode faster one by one
_new = tuple.__new__  # makes a named tuple without a call of a Python function


class ParsedBlock(NamedTuple):
    """A decoded block with its bytes, the positions of its parts, and the hashes of its transactions."""

    block: Block
    raw: bytes
    layout: Layout
    txids: Bytes  # uint8[n_txs, 32], internal byte order
    wtxids: Bytes  # the same


def decode_transactions(raws: Sequence[bytes]) -> list[Transaction | DecodeError]:
    """Decode serialised transactions; return a DecodeError in place of each one that cannot be decoded."""
    if len(raws) <= FEW:
        return [_decode_one(raw) for raw in raws]
    data, limits = gpuhash.join(raws)
    layout = walk_transactions(data, limits)
    is_faulty = (layout.txs["end"] == FAIL).tolist()
    if any(is_faulty):
        sound = iter(
            decode_transactions([raw for raw, fault in zip(raws, is_faulty, strict=True) if not fault])
        )
        return [
            _decode_one(raw) if fault else next(sound) for raw, fault in zip(raws, is_faulty, strict=True)
        ]
    wtxids = gpuhash.txids(data, limits)
    txids = _txids(wtxids, data, layout.txs)
    return list(_records(data, layout, txids, wtxids, sources=raws, begins=repeat(0)))


def parse_block(raw: bytes) -> ParsedBlock:
    """Decode one serialised block, as `decode.decode_block` does; raises DecodeError."""
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
    records = _records(data, layout, txids, wtxids, sources=repeat(raw), begins=begins)
    block = Block(
        header=header,
        block_hash=block_hash,
        transactions=tuple(records),
        size_bytes=len(raw),
        stripped_bytes=begins[0] + int(stripped_bytes(layout.txs).sum()),
        coinbase_witness=coinbase_stack(raw, int(layout.txs[0]["witness_at"])),
    )
    return ParsedBlock(block, raw, layout, txids, wtxids)


def transaction_ids(data: Bytes, layout: Layout) -> tuple[Bytes, Bytes]:
    """Return txids and wtxids, uint8[n_txs, 32] each, in internal byte order. Every block must be sound.

    Transactions stand back to back in the data, so all are hashed where they are. What stands between the
    transactions of two blocks is hashed with them, and its hashes are dropped.
    """
    blocks, txs = layout.blocks, layout.txs
    block_of_tx = np.repeat(np.arange(len(blocks)), blocks["n_tx"])
    rows = np.arange(len(txs)) + block_of_tx + 1
    limits = np.empty(len(txs) + len(blocks) + 1, np.int64)
    limits[rows] = txs["begin"]
    limits[blocks["first_tx"] + np.arange(len(blocks))] = blocks["begin"]
    limits[-1] = len(data)
    wtxids = np.take(gpuhash.txids(data, limits), rows, axis=0)
    return _txids(wtxids, data, txs), wtxids


def stripped_bytes(txs: Records) -> Integers:
    """Return the size without witness of each transaction: version, inputs and outputs, lock time."""
    whole: Integers = txs["end"] - txs["begin"]
    without: Integers = txs["witness_at"] - txs["begin"] + 2
    return np.where(txs["witness_at"] > 0, without, whole)


def _decode_one(raw: bytes) -> Transaction | DecodeError:
    try:
        return decode_transaction(raw)
    except DecodeError as error:
        return error


def _txids(wtxids: Bytes, data: Bytes, txs: Records) -> Bytes:
    """Return txids, uint8[n_txs, 32]: hash transactions without their witness data.

    A transaction that has no witness data has its wtxid as txid and is not hashed again.
    """
    with_witness = np.flatnonzero(txs["witness_at"])
    txids = wtxids.copy()
    if len(with_witness):
        txids[with_witness] = gpuhash.txids(*_without_witness(data, txs[with_witness]))
    return txids


def _without_witness(data: Bytes, txs: Records) -> tuple[Bytes, Offsets]:
    """Return the transactions serialised without witness, back to back, and the limits between them."""
    limits = np.zeros(len(txs) + 1, np.int64)
    np.cumsum(stripped_bytes(txs), out=limits[1:])
    flat = np.empty(limits[-1], np.uint8)
    _copy_stripped(data, txs, flat, limits)
    return flat, limits


def _records(
    data: Bytes,
    layout: Layout,
    txids: Bytes,
    wtxids: Bytes,
    *,
    sources: Iterable[bytes],
    begins: Iterable[int],
) -> "map[Transaction]":
    """Make the Transaction of each transaction.

    sources are the bytes that each was read from, and begins its position in them.
    """
    txs, n_inputs, n_outputs = layout.txs, len(layout.spends), len(layout.scripts)
    outpoints = np.empty(OUTPOINT_BYTES * n_inputs, np.uint8)
    values_sat = np.empty(VALUE_BYTES * n_outputs, np.uint8)
    copy_outpoints(data, layout.spends, layout.scripts, outpoints, values_sat)
    id_limits = np.arange(0, TXID_BYTES * len(txs) + 1, TXID_BYTES)
    columns = zip(
        _cut(txids, id_limits),
        _cut(wtxids, id_limits),
        txs["version"].tolist(),
        txs["locktime"].tolist(),
        (txs["end"] - txs["begin"]).tolist(),
        stripped_bytes(txs).tolist(),
        txs["n_inputs"].tolist(),
        txs["n_outputs"].tolist(),
        txs["output_value_sat"].tolist(),
        (txs["witness_at"] > 0).tolist(),
        txs["is_coinbase"].tolist(),
        txs["signals_rbf"].tolist(),
        _cut(outpoints, np.append(txs["first_input"], n_inputs) * OUTPOINT_BYTES),
        _cut(values_sat, np.append(txs["first_output"], n_outputs) * VALUE_BYTES),
        sources,
        begins,
        strict=False,  # some repeat without end
    )
    return map(_new, repeat(Transaction), columns)


def _cut(values: Bytes, limits: Integers) -> list[bytes]:
    whole = values.tobytes()
    return [whole[begin:end] for begin, end in pairwise(limits.tolist())]


@compiled
def copy_outpoints(
    data: Bytes, spends: Integers, scripts: Integers, outpoints: Bytes, values_sat: Bytes
) -> None:
    """Copy the outpoint of each input to `outpoints` and the value of each output to `values_sat`.

    The value of an output stands before the size of its script.
    """
    for k in range(len(spends)):
        for i in range(OUTPOINT_BYTES):
            outpoints[OUTPOINT_BYTES * k + i] = data[spends[k] + i]
    for k in range(len(scripts)):
        size = scripts[k, 1] - scripts[k, 0]
        width = 1
        if size >= 0xFD:  # noqa: PLR2004 - the format's mark for longer numbers, always the shortest form
            width = 3 if size <= 0xFFFF else 5  # noqa: PLR2004 - two bytes hold it, or four
        for i in range(VALUE_BYTES):
            values_sat[VALUE_BYTES * k + i] = data[scripts[k, 0] - width - VALUE_BYTES + i]


@compiled
def _copy_stripped(data: Bytes, txs: Records, flat: Bytes, limits: Integers) -> None:
    """Copy each transaction without its witness data; transaction k goes to flat[limits[k]:limits[k + 1]]."""
    for k in range(len(txs)):
        begin, end, stripped = txs[k].begin, txs[k].end, limits[k + 1] - limits[k]
        # In the source, inputs and outputs stand two bytes later: marker and flag follow the version.
        # A loop from 0 over the whole compiles to wide moves; then both ends are put right.
        source, target = data[begin + 2 : begin + 2 + stripped], flat[limits[k] : limits[k + 1]]
        for i in range(stripped):
            target[i] = source[i]
        for i in range(4):
            target[i] = data[begin + i]
            target[stripped - 4 + i] = data[end - 4 + i]
