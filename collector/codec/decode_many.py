"""Decode many transactions at once, or a block, by compiled loops and hashing in batches.

The records are those of `collector.codec.decode`, which takes what is refused here and says why.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import numpy as np

import gpuhash
from collector.codec.arrays import Bytes, Integers
from collector.codec.decode import (
    OUTPOINT_BYTES,
    VALUE_BYTES,
    Block,
    Transaction,
    coinbase_stack,
    decode_block,
    decode_header,
    decode_transaction,
)
from collector.codec.hashes import HASH_BYTES, stripped_bytes, transaction_ids, txids_beside
from collector.codec.walk import FAIL, Walked, walk, walk_transactions
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError
from gpuhash.compiled import compiler

compiled = compiler(__package__)

FEW: Final = 8  # up to so many take longer together than one by one
_new = tuple.__new__  # a named tuple without the call of a function in Python


def decode_transactions(raws: Sequence[bytes]) -> list[Transaction | DecodeError]:
    """Decode serialised transactions; in the place of one that cannot be decoded stands the error."""
    if len(raws) <= FEW:
        return [_alone(raw) for raw in raws]
    data, limits = gpuhash.join(raws)
    walked = walk_transactions(data, limits)
    is_faulty = (walked.txs["end"] == FAIL).tolist()
    if any(is_faulty):
        sound = iter(
            decode_transactions([raw for raw, fault in zip(raws, is_faulty, strict=True) if not fault])
        )
        return [_alone(raw) if fault else next(sound) for raw, fault in zip(raws, is_faulty, strict=True)]
    wtxids = gpuhash.txids(data, limits)
    txids = txids_beside(wtxids, data, walked.txs)
    return list(_records(data, walked, txids, wtxids, sources=raws, begins=repeat(0)))


class ParsedBlock(NamedTuple):
    """A block: its record, its bytes, and where everything is in them."""

    block: Block
    raw: bytes
    walked: Walked
    txids: Bytes  # uint8[n_txs, 32], internal byte order
    wtxids: Bytes  # the same


def parse_block(raw: bytes) -> ParsedBlock:
    """Decode one serialised block, as `decode.decode_block` does; raises DecodeError."""
    data = np.frombuffer(raw, np.uint8)
    walked = walk(data, np.array([0, len(raw)]))
    if not walked.blocks[0]["is_sound"]:
        block_hash = decode_block(raw).block_hash  # says what is wrong with it
        raise DecodeError(f"block {hash_hex(block_hash)} is refused by the compiled walk alone: report this")
    header, block_hash = decode_header(raw)
    begins = walked.txs["begin"].tolist()
    txids, wtxids = transaction_ids(data, walked)
    records = _records(data, walked, txids, wtxids, sources=repeat(raw), begins=begins)
    block = Block(
        header=header,
        block_hash=block_hash,
        transactions=tuple(records),
        size_bytes=len(raw),
        stripped_bytes=begins[0] + int(stripped_bytes(walked.txs).sum()),
        coinbase_witness=coinbase_stack(raw, int(walked.txs[0]["witness_at"])),
    )
    return ParsedBlock(block, raw, walked, txids, wtxids)


def _alone(raw: bytes) -> Transaction | DecodeError:
    try:
        return decode_transaction(raw)
    except DecodeError as error:
        return error


def _records(
    data: Bytes,
    walked: Walked,
    txids: Bytes,
    wtxids: Bytes,
    *,
    sources: Iterable[bytes],
    begins: Iterable[int],
) -> "map[Transaction]":
    """Make the record of each transaction."""
    txs, n_inputs, n_outputs = walked.txs, len(walked.spends), len(walked.scripts)
    outpoints = np.empty(OUTPOINT_BYTES * n_inputs, np.uint8)
    values_sat = np.empty(VALUE_BYTES * n_outputs, np.uint8)
    copy_outpoints(data, walked.spends, walked.scripts, outpoints, values_sat)
    places = np.arange(0, HASH_BYTES * len(txs) + 1, HASH_BYTES)
    columns = zip(
        _cut(txids, places),
        _cut(wtxids, places),
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
    """Copy the outpoint of each input, and the value of each output: it stands before its script's size."""
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
