"""Walk over the bytes of many blocks or transactions at once and record the position of each part.

The walk accepts exactly what `decode_transaction` and `decode_block` accept. It only marks a block or
transaction as faulty; they say why. All positions are in the one byte array that holds all the blocks or
transactions.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from collector.codec.arrays import FAIL, Bytes, Integers, Record, Records
from collector.codec.format import HEADER_BYTES, MAX_MONEY_SAT, NO_INDEX, OUTPOINT_BYTES
from gpuhash.compiled import compiler

compiled = compiler(__package__)

BLOCK: Final = np.dtype(
    [
        ("begin", np.int64),
        ("end", np.int64),
        ("first_tx", np.int64),
        ("n_tx", np.int64),
        ("transactions_at", np.int64),  # where the first transaction begins
        ("first_input", np.int64),
        ("n_inputs", np.int64),  # coinbase included
        ("first_output", np.int64),
        ("n_outputs", np.int64),
        ("is_sound", np.bool_),
    ]
)
TX: Final = np.dtype(
    [
        ("begin", np.int64),
        ("end", np.int64),
        ("witness_at", np.int64),  # where the first witness stack begins; 0: none
        ("version", np.int64),
        ("locktime", np.int64),
        ("output_value_sat", np.int64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("n_inputs", np.int32),
        ("n_outputs", np.int32),
        ("signals_rbf", np.bool_),
        ("is_coinbase", np.bool_),
    ]
)

INPUT_BYTES: Final = 41
OUTPUT_BYTES: Final = 9
TRANSACTION_BYTES: Final = 60
FINAL_SEQUENCE: Final = 0xFFFFFFFE  # BIP 125: anything below signals
MAX_INT64: Final = (1 << 63) - 1
SIGNALS: Final = 1
SPENDS_NOTHING: Final = 2


class Layout(NamedTuple):
    """Holds the positions of all parts of blocks or transactions; a faulty block has no transactions here."""

    blocks: Records  # BLOCK[n]
    txs: Records  # TX[n], block by block in their order
    spends: Integers  # int64[n]: where the outpoint of each input begins
    scripts: Integers  # int64[n, 2]: where the script of each output begins and ends


def walk_blocks(data: Bytes, limits: Integers) -> Layout:
    """Find the positions of all parts of the blocks data[limits[i]:limits[i + 1]], and return them."""
    n_blocks = len(limits) - 1
    # Upper bounds of what there can be; memory that is never touched costs nothing.
    layout = Layout(
        np.zeros(n_blocks, BLOCK),
        np.empty(len(data) // TRANSACTION_BYTES + 1, TX),
        np.empty(len(data) // INPUT_BYTES + 1, np.int64),
        np.empty((len(data) // OUTPUT_BYTES + 1, 2), np.int64),
    )
    n_txs, n_inputs, n_outputs = _walk_all_blocks(data, limits, layout)
    return Layout(layout.blocks, layout.txs[:n_txs], layout.spends[:n_inputs], layout.scripts[:n_outputs])


def walk_transactions(data: Bytes, limits: Integers) -> Layout:
    """Find the positions of all parts of the transactions data[limits[i]:limits[i + 1]], and return them.

    The transactions are in no block. A faulty transaction has FAIL as its end.
    """
    layout = Layout(
        np.empty(0, BLOCK),
        np.empty(len(limits) - 1, TX),
        np.empty(len(data) // INPUT_BYTES + 1, np.int64),
        np.empty((len(data) // OUTPUT_BYTES + 1, 2), np.int64),
    )
    n_inputs, n_outputs = _walk_all_transactions(data, limits, layout)
    return Layout(layout.blocks, layout.txs, layout.spends[:n_inputs], layout.scripts[:n_outputs])


@compiled
def _walk_all_transactions(data: Bytes, limits: Integers, layout: Layout) -> tuple[int, int]:
    n_inputs = n_outputs = 0
    for k in range(len(layout.txs)):
        tx = layout.txs[k]
        tx.first_input, tx.first_output = n_inputs, n_outputs
        if _walk_transaction(data, limits[k], limits[k + 1], tx, layout) == limits[k + 1]:
            n_inputs += tx.n_inputs
            n_outputs += tx.n_outputs
        else:
            tx.end = FAIL
    return n_inputs, n_outputs


@compiled
def _walk_all_blocks(data: Bytes, limits: Integers, layout: Layout) -> tuple[int, int, int]:
    n_txs = n_inputs = n_outputs = 0
    for i in range(len(layout.blocks)):
        block = layout.blocks[i]
        block.begin, block.end = limits[i], limits[i + 1]
        block.first_tx, block.first_input, block.first_output = n_txs, n_inputs, n_outputs
        if _walk_block(data, block, layout):
            block.is_sound = True
            n_txs += block.n_tx
            n_inputs += block.n_inputs
            n_outputs += block.n_outputs
        else:
            block.n_tx = block.n_inputs = block.n_outputs = 0
    return n_txs, n_inputs, n_outputs


@compiled
def _walk_block(data: Bytes, block: Record, layout: Layout) -> bool:
    """Add the positions of one block's parts to the layout; return whether the block is sound."""
    end = block.end
    count, pos = read_compact_size(data, block.begin + HEADER_BYTES, end)
    if pos == FAIL or count == 0 or count * TRANSACTION_BYTES > end - pos:
        return False
    block.n_tx, block.transactions_at = count, pos
    at_input, at_output = block.first_input, block.first_output
    value_sat = 0
    for k in range(count):
        tx = layout.txs[block.first_tx + k]
        tx.first_input, tx.first_output = at_input, at_output
        pos = _walk_transaction(data, pos, end, tx, layout)
        if pos == FAIL or tx.is_coinbase != (k == 0) or tx.output_value_sat > MAX_INT64 - value_sat:
            return False
        at_input += tx.n_inputs
        at_output += tx.n_outputs
        value_sat += tx.output_value_sat
    block.n_inputs = at_input - block.first_input
    block.n_outputs = at_output - block.first_output
    return bool(pos == end)


@compiled
def _walk_transaction(data: Bytes, begin: int, end: int, tx: Record, layout: Layout) -> int:
    """Write the positions of one transaction's parts to the layout; return where it ends, or FAIL."""
    pos = begin + 4
    if pos + 2 > end:
        return FAIL
    has_witness = data[pos] == 0
    if has_witness:
        if data[pos + 1] != 1:
            return FAIL
        pos += 2
    n_inputs, flags, pos = _walk_inputs(data, pos, end, layout.spends, tx.first_input)
    if pos == FAIL:
        return FAIL
    n_outputs, value_sat, pos = _walk_outputs(data, pos, end, layout.scripts, tx.first_output)
    if pos == FAIL:
        return FAIL
    tx.witness_at = 0
    if has_witness:
        tx.witness_at = pos
        pos = _skip_witness(data, pos, end, n_inputs)
    if pos == FAIL or pos + 4 > end:
        return FAIL
    tx.begin, tx.end = begin, pos + 4
    tx.version, tx.locktime = read_u32(data, begin), read_u32(data, pos)
    tx.output_value_sat = value_sat
    tx.n_inputs, tx.n_outputs = n_inputs, n_outputs
    tx.is_coinbase = n_inputs == 1 and flags & SPENDS_NOTHING != 0
    tx.signals_rbf = flags & SIGNALS != 0 and not tx.is_coinbase
    return pos + 4


@compiled
def _walk_inputs(data: Bytes, pos: int, end: int, spends: Integers, at: int) -> tuple[int, int, int]:
    """Write the position of each input's outpoint to `spends`, from index `at` on.

    Returns the number of inputs, flags (SIGNALS, SPENDS_NOTHING), and where the inputs end, or FAIL.
    """
    count, pos = read_compact_size(data, pos, end)
    if pos == FAIL or count == 0 or count * INPUT_BYTES > end - pos:
        return 0, 0, FAIL
    flags = SPENDS_NOTHING if _spends_nothing(data, pos) else 0
    for k in range(count):
        spends[at + k] = pos
        size, pos = read_compact_size(data, pos + OUTPOINT_BYTES, end)
        if pos == FAIL or size + 4 > end - pos:
            return 0, 0, FAIL
        pos += size
        if read_u32(data, pos) < FINAL_SEQUENCE:
            flags |= SIGNALS
        pos += 4
    return count, flags, pos


@compiled
def _walk_outputs(data: Bytes, pos: int, end: int, scripts: Integers, at: int) -> tuple[int, int, int]:
    """Write begin and end of each output's script to `scripts`, from index `at` on.

    Returns the number of outputs, their value in satoshi, and where they end, or FAIL.
    """
    count, pos = read_compact_size(data, pos, end)
    if pos == FAIL or count == 0 or count * OUTPUT_BYTES > end - pos:
        return 0, 0, FAIL
    total_sat = 0
    for k in range(count):
        if pos + OUTPUT_BYTES > end:
            return 0, 0, FAIL
        value_sat = int(np.int64(read_u64(data, pos)))
        if not 0 <= value_sat <= MAX_MONEY_SAT:
            return 0, 0, FAIL
        total_sat += value_sat
        size, begin = read_compact_size(data, pos + 8, end)
        if begin == FAIL or size > end - begin or total_sat > MAX_MONEY_SAT:
            return 0, 0, FAIL
        pos = begin + size
        scripts[at + k, 0], scripts[at + k, 1] = begin, pos
    return count, total_sat, pos


@compiled
def _skip_witness(data: Bytes, pos: int, end: int, n_inputs: int) -> int:
    """Return where the witness stacks of n_inputs inputs end; FAIL when they are cut off or all empty."""
    begin = pos
    for _ in range(n_inputs):
        count, pos = read_compact_size(data, pos, end)
        if pos == FAIL or count > end - pos:
            return FAIL
        for _ in range(count):
            size, pos = read_compact_size(data, pos, end)
            if pos == FAIL or size > end - pos:
                return FAIL
            pos += size
    return FAIL if pos == begin + n_inputs else pos


@compiled
def read_compact_size(data: Bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a compact size at byte `pos`; return its value, and the position after it or FAIL."""
    if pos >= end:
        return 0, FAIL
    first = int(data[pos])
    if first < 0xFD:  # noqa: PLR2004 - the format's mark for longer numbers
        return first, pos + 1
    width = 2 << (first - 0xFD)
    if pos + 1 + width > end:
        return 0, FAIL
    value = 0
    for i in range(min(width, 4)):
        value |= int(data[pos + 1 + i]) << (8 * i)
    for i in range(4, width):
        if data[pos + 1 + i] != 0:
            return 0, FAIL  # more than any block holds
    least = 0xFD if width == 2 else 1 << (4 * width)  # noqa: PLR2004 - two bytes
    if value < least or value > end - pos:
        return 0, FAIL
    return value, pos + 1 + width


@compiled
def compact_size_width(value: int) -> int:
    """Return how many bytes a number below 2^32 takes as a compact size in its shortest form."""
    if value < 0xFD:  # noqa: PLR2004 - the format's mark for longer numbers
        return 1
    return 3 if value <= 0xFFFF else 5  # noqa: PLR2004 - a mark and two bytes hold it, or a mark and four


@compiled
def _spends_nothing(data: Bytes, pos: int) -> bool:
    """Return whether the outpoint at byte `pos` is that of a coinbase."""
    for i in range(32):
        if data[pos + i] != 0:
            return False
    return read_u32(data, pos + 32) == NO_INDEX


@compiled
def read_u32(data: Bytes, pos: int) -> int:
    """Return the 4 bytes at `pos` as an unsigned little-endian number; all four must be there."""
    at = np.uint64(pos)  # of a signed one, numba asks for each byte whether it counts from the end
    word = np.uint64(0)
    for i in range(4):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return int(np.int64(word))


@compiled
def read_u64(data: Bytes, pos: int) -> Any:
    """Return the 8 bytes at `pos` as a little-endian np.uint64; all eight must be there."""
    at = np.uint64(pos)  # as in `read_u32`
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return word
