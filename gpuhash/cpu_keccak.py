"""Hash messages with Keccak-256 or SHA3-256, one per vector lane: compiled loops of the cpu backend.

As in cpu_sha256, a group of messages, one per lane, is absorbed block by block. Messages of one length that
fit one block are the usual case and have a loop of their own: it reads only the messages, and their padding
is computed once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from gpuhash.compiled import compiled
from gpuhash.groups import LENGTHS, TARGETS, assign_lanes, retire_lanes, shortest_length, some_end_before
from gpuhash.keccak import RATE_BYTES, ROTATIONS, ROUND_CONSTANTS
from gpuhash.lanes import (
    AVX512,
    INT64,
    ROW_BYTES,
    VECTOR_BITS,
    Lanes,
    cgutils,
    clamp,
    intrinsic,
    load_int64,
    load_row,
    load_words,
    store_digests,
    transpose_rows,
)

LANES = VECTOR_BITS // 64
ROW_WORDS = ROW_BYTES // 8
BLOCK_ROWS = 3  # rows of 64 bytes that hold a block of 136
RATE_WORDS = RATE_BYTES // 8
STATE_WORDS = 25
DIGEST_WORDS = 4
ROUNDS_PER_PASS = 2  # of a loop


@intrinsic
def _load_words(_typing: Any, words: Any, starts: Any, lengths: Any, offset: Any, limit: Any) -> Any:
    """Emit code that transposes up to 64 bytes of one message per lane into words, u64[8][LANES].

    `lanes.load_words` describes the operands.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        load_words(Lanes(builder, 64), *arguments, swap=False)
        return context.get_dummy_value()

    return types.void(words, starts, lengths, offset, limit), generate


@intrinsic
def _absorb(_typing: Any, state: Any, words: Any) -> Any:
    """Emit code that XORs 17 words of each lane into the state, u64[25][LANES], and permutes the state.

    Both operands are addresses.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, words = arguments
        lanes = Lanes(builder, 64)
        a = [lanes.load(state, i) for i in range(STATE_WORDS)]
        for i in range(RATE_WORDS):
            a[i] = lanes.xor(a[i], lanes.load(words, i))
        for i, word in enumerate(_permute_fast(lanes, a, STATE_WORDS)):
            lanes.store(word, state, i)
        return context.get_dummy_value()

    return types.void(state, words), generate


@intrinsic
def _store_digests(_typing: Any, state: Any, targets: Any) -> Any:
    """Emit code that writes each lane's 32-byte digest to the lane's address in targets, i64[LANES]."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        lanes = Lanes(builder, 64)
        store_digests(lanes, [lanes.load(arguments[0], i) for i in range(DIGEST_WORDS)], arguments[1])
        return context.get_dummy_value()

    return types.void(state, targets), generate


@intrinsic
def _hash_equal(_typing: Any, start: Any, length: Any, padding: Any, digests: Any) -> Any:
    """Emit code that hashes LANES messages of one length that lie back to back and fit one block.

    The operands start, padding and digests are addresses: of the first message, of the padding block of such
    a message as u64[17], and of 32 * LANES bytes for the digests.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        start, length, padding, digests = arguments
        lanes = Lanes(builder, 64)
        words = [word for row in range(BLOCK_ROWS) for word in _load_equal(lanes, start, length, row)]
        pads = [lanes.splat(load_int64(builder, padding, i)) for i in range(RATE_WORDS)]
        a = [lanes.xor(word, pad) for word, pad in zip(words, pads, strict=False)]
        a += [lanes.constant(0)] * (STATE_WORDS - RATE_WORDS)
        for i, vector in enumerate(lanes.transpose(_permute_fast(lanes, a, DIGEST_WORDS), 2)):
            lanes.store(vector, digests, i)
        return context.get_dummy_value()

    return types.void(start, length, padding, digests), generate


@compiled
def hash_groups(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    flat: int,
    offsets: Any,
    length: Any,
    order: Any,
    first_group: Any,
    last_group: Any,
    domain: Any,
    digests: int,
    count: int,
) -> Any:
    """Hash the groups first_group to last_group - 1 with Keccak and write the digests, uint8[n, 32].

    `domain` is the padding byte of Keccak or SHA-3. All other arguments are those of
    `cpu_sha256.hash_groups`. `flat` and `digests` are addresses, so that one compiled loop serves arrays of
    every kind.
    """
    state = np.empty((STATE_WORDS, LANES), np.uint64)
    words = np.empty((BLOCK_ROWS * ROW_WORDS, LANES), np.uint64)
    lane_table = np.empty((3, LANES), np.int64)
    spare = np.empty(32, np.uint8)
    state_address, words_address, discard = state.ctypes.data, words.ctypes.data, spare.ctypes.data
    starts = lane_table.ctypes.data
    lengths, targets = starts + 8 * LANES * LENGTHS, starts + 8 * LANES * TARGETS
    row_size = 8 * LANES * ROW_WORDS
    for group in range(first_group, last_group):
        longest = assign_lanes(lane_table, flat, offsets, length, order, group, digests, count, discard)
        shortest = shortest_length(lane_table)
        state[:] = 0
        for offset in range(0, longest + 1, RATE_BYTES):
            for row in range(BLOCK_ROWS):
                begin = row * ROW_BYTES
                _load_words(
                    words_address + row * row_size, starts, lengths, offset + begin, RATE_BYTES - begin
                )
            if offset + RATE_BYTES <= shortest:  # inside every message
                _absorb(state_address, words_address)
                continue
            _pad(words, lane_table, offset, domain)
            _absorb(state_address, words_address)
            if some_end_before(lane_table, offset + RATE_BYTES):
                _store_digests(state_address, targets)
                retire_lanes(lane_table, offset + RATE_BYTES, discard)


@compiled
def hash_equal_groups(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    flat: int, length: Any, padding: Any, first_group: Any, last_group: Any, digests: int
) -> Any:
    """Hash full groups of messages that all have one length below RATE_BYTES, and write their digests.

    `padding` is what `block_padding` returns for this length. `flat` and `digests` are addresses: of the
    messages, which lie back to back, and of the digests, uint8[n, 32].
    """
    padding_address = padding.ctypes.data
    for group in range(first_group, last_group):
        first = group * LANES
        _hash_equal(flat + first * length, length, padding_address, digests + first * 32)


def block_padding(length: int, domain: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return as u64[17] the words that padding XORs into the only block of a message of this length."""
    block = bytearray(RATE_BYTES)
    block[length] ^= domain
    block[-1] ^= 0x80
    return np.frombuffer(block, "<u8")


@njit(nogil=True)
def _pad(words: Any, lane_table: Any, offset: Any, domain: Any) -> Any:
    """Add the padding of Keccak to the block at byte `offset`, in lanes whose message ends in this block."""
    for lane in range(LANES):
        left = lane_table[LENGTHS, lane] - offset
        if 0 <= left < RATE_BYTES:
            words[left >> 3, lane] ^= np.uint64(domain) << np.uint64(8 * (left & 7))
            words[RATE_WORDS - 1, lane] ^= np.uint64(1 << 63)


def permute(lanes: Lanes, a: list[Any], wanted: int) -> list[Any]:
    """Emit code for the permutation Keccak-f[1600] of the words `a`; return the first `wanted` words.

    Word x + 5y is lane (x, y) of FIPS 202. The rounds follow each other without a loop.
    """
    for constant in ROUND_CONSTANTS[:-1]:
        a = _round(lanes, a, constant, STATE_WORDS)
    return _round(lanes, a, ROUND_CONSTANTS[-1], wanted)


def permute_in_loop(lanes: Lanes, a: list[Any], wanted: int) -> list[Any]:
    """Emit code for the permutation as a loop of two rounds; return the first `wanted` words.

    The state goes from one place in memory to another and back. On a CPU without instructions for rotations
    and for logic of three operands, the 24 rounds without a loop are so much code that fetching it took
    longer than executing it.
    """
    builder = lanes.builder
    here = _hidden(builder, cgutils.alloca_once(builder, ir.ArrayType(lanes.vector, 2 * STATE_WORDS)))
    there = builder.add(here, INT64(STATE_WORDS * VECTOR_BITS // 8))
    for i, word in enumerate(a):
        lanes.store(word, here, i)
    constants, parities = _constants(builder), _parity(lanes, a)
    last = len(ROUND_CONSTANTS) - (0 if wanted == STATE_WORDS else ROUNDS_PER_PASS)
    before, loop = builder.block, builder.append_basic_block("rounds")
    builder.branch(loop)
    builder.position_at_end(loop)
    number, parity = builder.phi(INT64), [builder.phi(lanes.vector) for _ in range(5)]
    first = builder.add(constants, builder.mul(number, INT64(8)))
    column = _round_in_memory(lanes, here, there, parity, lanes.load_splat(first, 0))
    column = _round_in_memory(lanes, there, here, column, lanes.load_splat(first, 1))
    following = builder.add(number, INT64(ROUNDS_PER_PASS))
    for phi, start, next_value in zip(
        (number, *parity), (INT64(0), *parities), (following, *column), strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(next_value, loop)
    end = builder.append_basic_block("permuted")
    builder.cbranch(builder.icmp_signed("<", following, INT64(last)), loop, end)
    builder.position_at_end(end)
    if wanted == STATE_WORDS:
        return [lanes.load(here, i) for i in range(wanted)]
    column = _round_in_memory(lanes, here, there, column, lanes.constant(ROUND_CONSTANTS[-2]))
    return _row(lanes, there, _mixer(lanes, column), 0, lanes.constant(ROUND_CONSTANTS[-1]))[:wanted]


_permute_fast = permute if AVX512 else permute_in_loop


def _round_in_memory(lanes: Lanes, source: Any, target: Any, parity: list[Any], constant: Any) -> list[Any]:
    """Emit one round from the 25 words at address `source` to address `target`; return the new parities.

    `parity` and the result are the XORs of the five columns of words, before and after the round.
    """
    mix = _mixer(lanes, parity)
    column: list[Any] = []
    for y in range(5):
        row = _row(lanes, source, mix, y, constant)
        for x, word in enumerate(row):
            lanes.store(word, target, x + 5 * y)
        column = [lanes.xor(before, word) for before, word in zip(column, row, strict=True)] if y else row
    # Without this the compiler would keep what it has stored in registers, which it then has to spill.
    nothing = ir.FunctionType(ir.VoidType(), [])
    lanes.builder.call(ir.InlineAsm(nothing, "", "~{memory}", side_effect=True), [])
    return column


def _row(lanes: Lanes, source: Any, mix: Callable[[Any, int], Any], y: int, constant: Any) -> list[Any]:
    """Emit row y of the state after a round whose words are at the address `source`; return its five words.

    `mix`, from `_mixer`, emits the step theta of one word. The round constant goes into the first word of row
    0.
    """
    b = []
    for column in range(5):  # which word comes here is the step pi
        x = (y - 3 * column) * 3 % 5
        place = x + 5 * column
        b.append(lanes.rotate_left(mix(lanes.load(source, place), x), ROTATIONS[place]))
    words = [lanes.and_not_xor(b[x], b[(x + 1) % 5], b[(x + 2) % 5]) for x in range(5)]
    return words if y else [lanes.xor(words[0], constant), *words[1:]]


def _hidden(builder: ir.IRBuilder, pointer: Any) -> Any:
    """Return a pointer as an address that LLVM cannot trace, so that it leaves the words in memory."""
    address = builder.ptrtoint(pointer, INT64)
    return builder.call(ir.InlineAsm(ir.FunctionType(INT64, [INT64]), "", "=r,0"), [address])


def _constants(builder: ir.IRBuilder) -> Any:
    """Return the address of the round constants, i64[24], which the module holds once."""
    name = "keccak_round_constants"
    kind = ir.ArrayType(INT64, len(ROUND_CONSTANTS))
    table = builder.module.globals.get(name)
    if table is None:
        table = ir.GlobalVariable(builder.module, kind, name=name)
        table.initializer = ir.Constant(kind, list(ROUND_CONSTANTS))
        table.global_constant = True
        table.linkage = "internal"
    return builder.ptrtoint(table, INT64)


def _parity(lanes: Lanes, a: list[Any]) -> list[Any]:
    """Emit the parities of the five columns of the state `a`; return them."""
    return [lanes.xor3(lanes.xor3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20]) for x in range(5)]


def _mixer(lanes: Lanes, parity: list[Any]) -> Callable[[Any, int], Any]:
    """Return a function that emits the step theta for one word of column x, given the five column parities.

    What all words of a column share is emitted at once.
    """
    turned = [lanes.rotate_left(parity[x], 1) for x in range(5)]
    if AVX512:
        return lambda word, x: lanes.xor3(word, parity[(x + 4) % 5], turned[(x + 1) % 5])
    sums = [lanes.xor(parity[(x + 4) % 5], turned[(x + 1) % 5]) for x in range(5)]
    return lambda word, x: lanes.xor(word, sums[x])


def _round(lanes: Lanes, a: list[Any], constant: int, wanted: int) -> list[Any]:
    """Emit code for one round of Keccak-f[1600]; return the first `wanted` words (all 25, or at most 4)."""
    mix = _mixer(lanes, _parity(lanes, a))
    b: list[Any] = [None] * STATE_WORDS
    for x in range(5):
        for y in range(5):
            target = y + 5 * ((2 * x + 3 * y) % 5)
            if target < wanted + 2:
                b[target] = lanes.rotate_left(mix(a[x + 5 * y], x), ROTATIONS[x + 5 * y])
    after = [
        lanes.and_not_xor(b[i], b[i // 5 * 5 + (i + 1) % 5], b[i // 5 * 5 + (i + 2) % 5])
        for i in range(wanted)
    ]
    return [lanes.xor(after[0], lanes.constant(constant)), *after[1:]]


def _load_equal(lanes: Lanes, start: Any, length: Any, row: int) -> list[Any]:
    """Emit code that loads 64 bytes, from byte 64 * row on, of each of LANES messages that lie back to back.

    Bytes after the end of a message are zeros. Returns one lane vector per word.
    """
    builder = lanes.builder
    offset = INT64(row * ROW_BYTES)
    left = builder.sub(length, offset)
    size = clamp(builder, left, INT64(RATE_BYTES - row * ROW_BYTES))
    outside = builder.block
    with builder.if_then(builder.icmp_signed(">", left, INT64(0))):
        offsets = [builder.add(builder.mul(length, INT64(lane)), offset) for lane in range(LANES)]
        loaded = transpose_rows(
            lanes, [load_row(lanes, builder.add(start, begin), size) for begin in offsets]
        )
        inside = builder.block
    words = []
    for word in loaded:
        either = builder.phi(lanes.vector)
        either.add_incoming(lanes.constant(0), outside)
        either.add_incoming(word, inside)
        words.append(either)
    return words
