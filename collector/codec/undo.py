"""Read the values that a block spends from the node's undo data.

The undo data of a block has one record for each input of each transaction but the coinbase: the height of the
spent output, whether it came from a coinbase, its value and its script. All are in compressed forms of
Bitcoin Core (src/undo.h, src/compressor.h, VARINT in src/serialize.h). The reader keeps the values and steps
over the rest.
"""

from typing import Final

import numpy as np

from collector.codec.arrays import FAIL, Bytes, Integers, Records
from collector.codec.feerates import UNKNOWN
from collector.codec.format import MAX_MONEY_SAT
from gpuhash.compiled import compiler

compiled = compiler(__package__)

MAX_VARINT: Final = (1 << 62) >> 7  # one more byte keeps it below 2^63
HASH_SCRIPTS: Final = 2  # script codes below: a hash of 20 bytes
SPECIAL_SCRIPTS: Final = 6  # script codes below: a key of 32 bytes; from here on: length + 6, and the script
HASH_BYTES: Final = 20
KEY_BYTES: Final = 32
MAX_ZEROS: Final = 9
LONG_SIZE: Final = 0xFD


def input_values(undo: Bytes, limits: Integers, blocks: Records, txs: Records) -> Integers:
    """Return the value that each transaction spends, in satoshi: int64[n_txs], UNKNOWN for a coinbase.

    The undo data of block i is undo[limits[i]:limits[i + 1]]. Where it is empty, or its numbers of
    transactions or inputs are not those of the block, the values of the block are UNKNOWN. A block that has
    only a coinbase needs no undo data.
    """
    values = np.full(len(txs), UNKNOWN, np.int64)
    _read_blocks(undo, limits, blocks, txs, values)
    return values


@compiled
def _read_blocks(undo: Bytes, limits: Integers, blocks: Records, txs: Records, values: Integers) -> None:
    for i in range(len(blocks)):
        first = blocks[i].first_tx
        end = first + blocks[i].n_tx
        if not _read_block(undo, limits[i], limits[i + 1], txs[first:end], values[first:end]):
            values[first:end] = UNKNOWN


@compiled
def _read_block(undo: Bytes, pos: int, end: int, txs: Records, values: Integers) -> bool:
    """Write the values that one block's transactions spend to `values`.

    Returns False when the undo data is cut off, or its numbers of transactions or inputs are not those of the
    block.
    """
    count, pos = _count(undo, pos, end)
    if pos == FAIL or count != len(txs) - 1:
        return False
    for k in range(1, len(txs)):
        count, pos = _count(undo, pos, end)
        if pos == FAIL or count != txs[k].n_inputs:
            return False
        total_sat = 0
        for _ in range(count):
            value_sat, pos = _spent_output(undo, pos, end)
            if pos == FAIL:
                return False
            total_sat += value_sat
        values[k] = total_sat
    return pos == end


@compiled
def _spent_output(undo: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read one spent output; return its value in satoshi, and the position after it or FAIL."""
    code, pos = varint(undo, pos, end)
    if pos != FAIL and code > 1:  # a height; after it old versions of Core wrote the transaction's version
        _, pos = varint(undo, pos, end)
    amount = 0
    if pos != FAIL:
        amount, pos = varint(undo, pos, end)
    if pos == FAIL:
        return 0, FAIL
    value_sat = decompress_amount(amount)
    return value_sat, (FAIL if value_sat == FAIL else skip_script(undo, pos, end))


@compiled
def skip_script(undo: Bytes, pos: int, end: int) -> int:
    """Step over a compressed script; return the position after it, or FAIL."""
    code, pos = varint(undo, pos, end)
    if pos == FAIL:
        return FAIL
    if code < HASH_SCRIPTS:
        size = HASH_BYTES
    elif code < SPECIAL_SCRIPTS:
        size = KEY_BYTES
    else:
        size = code - SPECIAL_SCRIPTS
    return pos + size if size <= end - pos else FAIL


@compiled
def decompress_amount(compressed: int) -> int:
    """Decompress an amount (CompressAmount of Core); return FAIL when it is above 21 million coins."""
    if compressed == 0:
        return 0
    rest, exponent = (compressed - 1) // 10, (compressed - 1) % 10
    # Nine zeros leave no room for a last digit.
    value_sat = rest // 9 * 10 + rest % 9 + 1 if exponent < MAX_ZEROS else rest + 1
    for _ in range(exponent):
        if value_sat > MAX_MONEY_SAT:
            return FAIL
        value_sat *= 10
    return value_sat if value_sat <= MAX_MONEY_SAT else FAIL


@compiled
def varint(undo: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a number in Bitcoin Core's VARINT form.

    Returns its value and the position after it, which is FAIL when the number is cut off or beyond 63 bits.
    """
    value = 0
    while pos < end:
        byte = int(undo[pos])
        pos += 1
        value = value << 7 | (byte & 0x7F)
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no mark
            return value, pos
        if value > MAX_VARINT:
            return 0, FAIL
        value += 1
    return 0, FAIL


@compiled
def _count(undo: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a compact size of at most four bytes; return its value, and the position after it or FAIL."""
    if pos >= end:
        return 0, FAIL
    first = int(undo[pos])
    if first < LONG_SIZE:
        return first, pos + 1
    width = 2 << (first - LONG_SIZE)
    if width > 4 or pos + 1 + width > end:  # noqa: PLR2004 - no block has more
        return 0, FAIL
    value = 0
    for i in range(width):
        value |= int(undo[pos + 1 + i]) << (8 * i)
    return value, pos + 1 + width
