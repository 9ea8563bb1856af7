"""Decode many transactions at once, or a block, by compiled loops and hashing in batches.

The records are those of `collector.decode`, which takes what is refused here and says why.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Final

import numpy as np

import gpuhash
from collector import verify
from collector.backfill.compiled import Bytes, Integers, compiled
from collector.backfill.identify import HASH_BYTES, stripped_bytes, transaction_ids, txids_beside
from collector.backfill.scripts import output_types
from collector.backfill.walk import FAIL, Walked, walk, walk_transactions
from collector.decode import (
    HEADER_BYTES,
    NO_HASH,
    OUTPOINT_BYTES,
    VALUE_BYTES,
    Block,
    Transaction,
    coinbase_stack,
    decode_block,
    decode_header,
    decode_transaction,
)
from collector.errors import DecodeError
from collector.schema import OUTPUT_TYPES

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


def read_block(raw: bytes) -> Block:
    """Decode one serialised block, as `decode.decode_block` does; raises DecodeError."""
    data = np.frombuffer(raw, np.uint8)
    walked = walk(data, np.array([0, len(raw)]))
    if not walked.blocks[0]["is_sound"]:
        return decode_block(raw)
    header, block_hash = decode_header(raw)
    begins = walked.txs["begin"].tolist()
    records = _records(data, walked, *transaction_ids(data, walked), sources=repeat(raw), begins=begins)
    return Block(
        header=header,
        block_hash=block_hash,
        transactions=tuple(records),
        size_bytes=len(raw),
        stripped_bytes=begins[0] + int(stripped_bytes(walked.txs).sum()),
        coinbase_witness=coinbase_stack(raw, int(walked.txs[0]["witness_at"])),
        output_types=_output_types(data, walked),
    )


def warm_up() -> None:
    """Compile what decoding and verifying need, some seconds at the first use; later calls cost nothing."""
    verify.warm_up()
    # A coinbase with a witness: one input, one output, neither with a script, and one item of one byte.
    parts = (bytes(4), b"\0\1\1", NO_HASH, b"\xff" * 4, bytes(5), b"\1", bytes(9), b"\1\1\0", bytes(4))
    coinbase = b"".join(parts)
    decode_transactions([coinbase] * (FEW + 1))
    read_block(bytes(HEADER_BYTES) + b"\1" + coinbase)


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
    gather(data, walked.spends, walked.scripts, outpoints, values_sat)
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


def _output_types(data: Bytes, walked: Walked) -> tuple[list[str], ...]:
    names = [OUTPUT_TYPES[number] for number in output_types(data, walked.scripts).tolist()]
    limits = np.append(walked.txs["first_output"], len(names)).tolist()
    return tuple(names[begin:end] for begin, end in pairwise(limits))


def _cut(values: Bytes, limits: Integers) -> list[bytes]:
    whole = values.tobytes()
    return [whole[begin:end] for begin, end in pairwise(limits.tolist())]


@compiled
def gather(data: Bytes, spends: Integers, scripts: Integers, outpoints: Bytes, values_sat: Bytes) -> None:
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
