"""Read what a block spends, values and types of outputs, from the node's undo data.

The undo data of a block has one record for each input of each transaction but the coinbase: the height of the
spent output, whether it came from a coinbase, its value and its script. All are in compressed forms of
Bitcoin Core (src/undo.h, src/compressor.h, VARINT in src/serialize.h). The reader keeps the value and the
type of the script, and steps over the rest.
"""

from typing import Final, NamedTuple

import numpy as np

from collector.codec.arrays import FAIL, Bytes, Integers, Records
from collector.codec.feerates import UNKNOWN
from collector.codec.format import MAX_MONEY_SAT
from collector.codec.scripts import PUBKEY, PUBKEYHASH, SCRIPTHASH, UNKNOWN_TYPE, output_type
from gpuhash.compiled import compiler

compiled = compiler(__package__)

MAX_VARINT: Final = (1 << 62) >> 7  # one more byte keeps it below 2^63
KEY_HASH_SCRIPT: Final = 0  # script codes: a hash of 20 bytes, of a key or of a script
HASH_SCRIPTS: Final = 2
SPECIAL_SCRIPTS: Final = 6  # script codes 2 to 5: a key of 32 bytes; from here on: length + 6, and the script
HASH_BYTES: Final = 20
KEY_BYTES: Final = 32
MAX_ZEROS: Final = 9
LONG_SIZE: Final = 0xFD


class SpentOutputs(NamedTuple):
    """Holds the value that each transaction of some blocks spends, and the type of output per input."""

    values_sat: Integers  # int64[n_txs]: UNKNOWN for a coinbase and where the undo data does not fit
    types: Bytes  # uint8[n_inputs], positions in schema.OUTPUT_TYPES; UNKNOWN_TYPE likewise


def spent_outputs(undo: Bytes, limits: Integers, blocks: Records, txs: Records) -> SpentOutputs:
    """Return the value (sat) that each transaction spends, and the type of the output that each input spends.

    The undo data of block i is undo[limits[i]:limits[i + 1]]. Where it is empty, or its numbers of
    transactions or inputs are not those of the block, the whole block gets UNKNOWN and UNKNOWN_TYPE. A block
    that has only a coinbase needs no undo data.
    """
    n_inputs = int(txs["n_inputs"].sum())
    spent = SpentOutputs(np.full(len(txs), UNKNOWN, np.int64), np.full(n_inputs, UNKNOWN_TYPE, np.uint8))
    _read_blocks(undo, limits, blocks, txs, spent)
    return spent


@compiled
def _read_blocks(undo: Bytes, limits: Integers, blocks: Records, txs: Records, spent: SpentOutputs) -> None:
    for i in range(len(blocks)):
        first, first_input = blocks[i].first_tx, blocks[i].first_input
        end, end_input = first + blocks[i].n_tx, first_input + blocks[i].n_inputs
        of_block = SpentOutputs(spent.values_sat[first:end], spent.types[first_input:end_input])
        if not _read_block(undo, limits[i], limits[i + 1], txs[first:end], of_block):
            of_block.values_sat[:] = UNKNOWN
            of_block.types[:] = UNKNOWN_TYPE


@compiled
def _read_block(undo: Bytes, pos: int, end: int, txs: Records, spent: SpentOutputs) -> bool:
    """Write into `spent` what one block's transactions spend; return whether its undo data fits the block.

    It does not fit when it is cut off, or its numbers of transactions or inputs are not those of the block.
    """
    count, pos = _count(undo, pos, end)
    if pos == FAIL or count != len(txs) - 1:
        return False
    for k in range(1, len(txs)):
        count, pos = _count(undo, pos, end)
        if pos == FAIL or count != txs[k].n_inputs:
            return False
        total_sat = 0
        for i in range(count):
            value_sat, script = _spent_value(undo, pos, end)
            if script == FAIL:
                return False
            spent_type, pos = read_script_type(undo, script, end)
            if pos == FAIL:
                return False
            spent.types[txs[k].first_input - txs[0].first_input + i] = spent_type
            total_sat += value_sat
        spent.values_sat[k] = total_sat
    return pos == end


@compiled
def _spent_value(undo: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read one spent output of the undo data at `pos`.

    Returns its value in satoshi, and where its compressed script begins, or FAIL.
    """
    code, pos = varint(undo, pos, end)
    if pos != FAIL and code > 1:  # a height; after it old versions of Core wrote the transaction's version
        _, pos = varint(undo, pos, end)
    amount = 0
    if pos != FAIL:
        amount, pos = varint(undo, pos, end)
    if pos == FAIL:
        return 0, FAIL
    value_sat = decompress_amount(amount)
    return value_sat, (FAIL if value_sat == FAIL else pos)


@compiled
def read_script_type(undo: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a compressed script at `pos`; return its output type, and the position after it or FAIL."""
    code, pos = varint(undo, pos, end)
    if pos == FAIL:
        return UNKNOWN_TYPE, FAIL
    if code < HASH_SCRIPTS:
        size, spent_type = HASH_BYTES, PUBKEYHASH if code == KEY_HASH_SCRIPT else SCRIPTHASH
    elif code < SPECIAL_SCRIPTS:
        size, spent_type = KEY_BYTES, PUBKEY
    else:
        size, spent_type = code - SPECIAL_SCRIPTS, UNKNOWN_TYPE
    if size > end - pos:
        return UNKNOWN_TYPE, FAIL
    if code >= SPECIAL_SCRIPTS:
        spent_type = output_type(undo, pos, pos + size)
    return spent_type, pos + size


@compiled
def decompress_amount(compressed: int) -> int:
    """Return in satoshi an amount compressed by Core's CompressAmount; FAIL when above 21 million coins."""
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
    """Read a number in Bitcoin Core's VARINT form at `pos`.

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
    """Read a compact size of at most four bytes at `pos`; return its value, and the next position or FAIL."""
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
