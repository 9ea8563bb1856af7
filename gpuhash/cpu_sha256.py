"""Hash messages with SHA-256, one per vector lane: compiled loops of the cpu backend.

A group has as many messages as a register has lanes. Their blocks are loaded row by row, transposed in
registers and compressed together. A lane whose message has ended writes its digest and is idle from then on.
Messages are not copied, and no byte outside a message is read.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from gpuhash.compiled import compiled
from gpuhash.groups import LENGTHS, TARGETS, assign_lanes, retire_lanes, shortest_length, some_end_before
from gpuhash.lanes import (
    INT64,
    VECTOR_BITS,
    Lanes,
    intrinsic,
    load_row,
    load_words,
    store_digests,
    transpose_rows,
)
from gpuhash.sha256 import (
    DIGEST_BITS,
    HEADER_BITS,
    INITIAL_STATE,
    MASK,
    NONCE_WORD,
    PAD_WORD,
    ROUNDS,
    K,
    schedule,
)

LANES = VECTOR_BITS // 32
BLOCK_BYTES = 64
LENGTH_BYTES = 9  # padding needs the byte 0x80 and the length in bits
LAST_ROUND_FOR_TOP = 61  # e after round 60 decides the top word of the hash
# Words of the schedule are emitted this many rounds before the round that needs them. They wait for nothing,
# so they fill the gaps in the vector units that a round leaves while it waits for the round before.
WORDS_AHEAD = 8
CONSTANT_ROUNDS = 4  # the first rounds may work on constants, which LLVM adds up when it may reorder


class Rounds:
    """Emits the rounds of SHA-256 as vector instructions; states and words are lists of lane vectors."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes

    def run(self, state: list[Any], words: list[Any], first: int = 0, last: int = ROUNDS) -> list[Any]:
        """Emit rounds first to last - 1 and return the new state.

        `words` are the first 16 or more words of the message schedule; the others are emitted as they are
        needed.
        """
        w = list(words)

        def constant_and_word(t: int) -> Any:
            self._extend(w, min(t + WORDS_AHEAD, last - 1) if t > first else t)
            return self.lanes.add(w[t], self.lanes.constant(K[t]))

        return self._run(state, constant_and_word, first, last)

    def run_known(self, state: list[Any], sums: list[Any]) -> list[Any]:
        """Emit all 64 rounds of a block; return the new state.

        `sums` has, for each round, the sum of its schedule word and its constant, computed beforehand.
        """
        return self._run(state, lambda t: sums[t], 0, ROUNDS)

    def _run(self, state: list[Any], sum_of: Callable[[int], Any], first: int, last: int) -> list[Any]:
        """Emit rounds first to last - 1 and return the new state.

        `sum_of(t)` emits the sum of round t's constant and schedule word.
        """
        lanes = self.lanes
        a, b, c, d, e, f, g, h = state
        upcoming = lanes.add(h, sum_of(first))
        for t in range(first, last):
            ready = upcoming
            if t + 1 < last:
                # The next round's constant and word are added now: they do not depend on this round.
                upcoming = lanes.add(g, sum_of(t + 1))
            sigma1 = lanes.xor3(*(lanes.rotate_right(e, n_bits) for n_bits in (6, 11, 25)))
            sigma0 = lanes.xor3(*(lanes.rotate_right(a, n_bits) for n_bits in (2, 13, 22)))
            early = lanes.add(ready, lanes.choose(e, f, g))
            # sigma1 comes last. LLVM would add it first, and the next round would wait for the whole sum.
            t1 = lanes.add(early if t < first + CONSTANT_ROUNDS else lanes.settled(early), sigma1)
            t2 = lanes.add(t1, lanes.majority(a, b, c), sigma0)
            a, b, c, d, e, f, g, h = t2, a, b, c, lanes.add(d, t1), e, f, g
        return [a, b, c, d, e, f, g, h]

    def compress(self, state: list[Any], words: list[Any]) -> list[Any]:
        """Emit the compression of one block, given as 16 words; return the state after it."""
        return [self.lanes.add(x, y) for x, y in zip(state, self.run(state, words), strict=True)]

    def compress_known(self, state: list[Any], sums: list[Any]) -> list[Any]:
        """Emit the compression of one block; return the state after it.

        `sums` has, for each round, the sum of its schedule word and its constant, computed beforehand.
        """
        return [self.lanes.add(x, y) for x, y in zip(state, self.run_known(state, sums), strict=True)]

    def digest_words(self, state: list[Any]) -> list[Any]:
        """Return the 16 words of the padded block whose message is the digest `state`."""
        constant = self.lanes.constant
        return [*state, constant(PAD_WORD), *[constant(0)] * 6, constant(DIGEST_BITS)]

    def hash_digest(self, state: list[Any]) -> list[Any]:
        """Emit the second hash of SHA-256d: hash a digest, given as a state, and return the new state."""
        return self.compress(self.initial_state(), self.digest_words(state))

    def initial_state(self) -> list[Any]:
        """Return the initial state of SHA-256 (FIPS 180-4, 5.3.3) in every lane."""
        return [self.lanes.constant(word) for word in INITIAL_STATE]

    def _extend(self, w: list[Any], t: int) -> None:
        while len(w) <= t:
            w.append(self._next_word(w))

    def _next_word(self, w: list[Any]) -> Any:
        lanes, x, y = self.lanes, w[-15], w[-2]
        sigma0 = lanes.xor3(lanes.rotate_right(x, 7), lanes.rotate_right(x, 18), lanes.shift_right(x, 3))
        sigma1 = lanes.xor3(lanes.rotate_right(y, 17), lanes.rotate_right(y, 19), lanes.shift_right(y, 10))
        return lanes.add(w[-7], w[-16], sigma0, sigma1)


def search_top(lanes: Lanes, midstate: list[Any], early: list[Any], tail: list[Any], nonces: Any) -> Any:
    """Emit the double hash of one header per lane; return the vector with the top 32 bits of each hash.

    `midstate`, `early` and `tail` are those of HeaderJob, as lane vectors; `nonces` is a vector with one
    nonce per lane.
    """
    rounds = Rounds(lanes)
    zeros = [lanes.constant(0)] * 10
    words = [*tail, nonces, lanes.constant(PAD_WORD), *zeros, lanes.constant(HEADER_BITS)]
    final = rounds.run(early, words, first=NONCE_WORD)
    inner = [lanes.add(x, y) for x, y in zip(midstate, final, strict=True)]
    outer = rounds.run(rounds.initial_state(), rounds.digest_words(inner), last=LAST_ROUND_FOR_TOP)
    return lanes.add(outer[4], lanes.constant(INITIAL_STATE[7]))


@intrinsic
def _load_words(_typing: Any, words: Any, starts: Any, lengths: Any, offset: Any) -> Any:
    """Emit code that transposes 64 bytes of one message per lane into words, u32[16][LANES].

    `lanes.load_words` describes the operands.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        words, starts, lengths, offset = arguments
        load_words(Lanes(builder, 32), words, starts, lengths, offset, INT64(BLOCK_BYTES), swap=True)
        return context.get_dummy_value()

    return types.void(words, starts, lengths, offset), generate


@intrinsic
def _compress(_typing: Any, state: Any, words: Any) -> Any:
    """Emit code that compresses a block, u32[16][LANES], into the state, u32[8][LANES] (addresses)."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, words = arguments
        lanes = Lanes(builder, 32)
        before = [lanes.load(state, i) for i in range(8)]
        after = Rounds(lanes).compress(before, [lanes.load(words, i) for i in range(16)])
        for i, word in enumerate(after):
            lanes.store(word, state, i)
        return context.get_dummy_value()

    return types.void(state, words), generate


@intrinsic
def _store_digests(_typing: Any, state: Any, targets: Any) -> Any:
    """Emit code that writes each lane's 32-byte digest to the lane's address in targets, i64[LANES]."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, targets = arguments
        lanes = Lanes(builder, 32)
        store_digests(lanes, [lanes.byte_swap(lanes.load(state, i)) for i in range(8)], targets)
        return context.get_dummy_value()

    return types.void(state, targets), generate


@intrinsic
def _store_rehashed(_typing: Any, state: Any, targets: Any) -> Any:
    """Emit code that hashes each lane's digest, given as its state, once more and writes the new digest.

    The state does not change. The digest of a lane goes to the lane's address in targets, i64[LANES].
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, targets = arguments
        lanes = Lanes(builder, 32)
        twice = Rounds(lanes).hash_digest([lanes.load(state, i) for i in range(8)])
        store_digests(lanes, [lanes.byte_swap(word) for word in twice], targets)
        return context.get_dummy_value()

    return types.void(state, targets), generate


@intrinsic
def _compress_equal(_typing: Any, state: Any, start: Any, length: Any) -> Any:
    """Emit code that compresses one block of each of LANES messages into the state, u32[8][LANES].

    `state` and `start` are addresses: of the state, and of the block in the first message. Each following
    message begins `length` bytes after the one before.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, start, length = arguments
        lanes = Lanes(builder, 32)
        whole = INT64(BLOCK_BYTES)
        rows = [
            lanes.byte_swap(load_row(lanes, builder.add(start, builder.mul(length, INT64(lane))), whole))
            for lane in range(LANES)
        ]
        before = [lanes.load(state, i) for i in range(8)]
        for i, word in enumerate(Rounds(lanes).compress(before, transpose_rows(lanes, rows))):
            lanes.store(word, state, i)
        return context.get_dummy_value()

    return types.void(state, start, length), generate


@intrinsic
def _finish_equal(_typing: Any, state: Any, sums: Any, twice: Any, digests: Any) -> Any:
    """Emit code that compresses the last block, the same for all LANES messages, and writes the digests.

    `state`, `sums` and `digests` are addresses; `sums` are those of `padding_sums`. The digests lie back to
    back. With `twice` they are hashed once more.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, sums, twice, digests = arguments
        lanes = Lanes(builder, 32)
        rounds = Rounds(lanes)
        once = rounds.compress_known(
            [lanes.load(state, i) for i in range(8)], [lanes.load_splat(sums, i) for i in range(ROUNDS)]
        )

        def write(words: list[Any]) -> None:
            for i, vector in enumerate(lanes.transpose([lanes.byte_swap(word) for word in words], 3)):
                lanes.store(vector, digests, i)

        with builder.if_else(twice) as (then, otherwise):
            with then:
                write(rounds.hash_digest(once))
            with otherwise:
                write(once)
        return context.get_dummy_value()

    return types.void(state, sums, twice, digests), generate


@intrinsic
def _search_lanes(_typing: Any, midstate: Any, early: Any, tail: Any, nonce: Any, target_top: Any) -> Any:
    """Emit code that hashes LANES headers with consecutive nonces; bit i of its result marks a candidate.

    midstate, early and tail are tuples of u32 as in HeaderJob. nonce is the one that the first lane tries;
    each following lane tries the next.
    """

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        lanes = Lanes(builder, 32)
        middle, start, fixed = (
            [lanes.splat(builder.extract_value(group, i)) for i in range(count)]
            for group, count in zip(arguments[:3], (8, 8, NONCE_WORD), strict=True)
        )
        nonces = lanes.byte_swap(lanes.add(lanes.splat(arguments[3]), lanes.steps()))
        top = lanes.byte_swap(search_top(lanes, middle, start, fixed, nonces))
        hits = builder.icmp_unsigned("<=", top, lanes.splat(arguments[4]))
        return builder.zext(builder.bitcast(hits, ir.IntType(LANES)), ir.IntType(32))

    return types.uint32(midstate, early, tail, nonce, target_top), generate


@compiled
def hash_groups(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    flat: int,
    offsets: Any,
    length: Any,
    order: Any,
    first_group: Any,
    last_group: Any,
    twice: Any,
    digests: int,
    count: int,
) -> Any:
    """Hash the groups first_group to last_group - 1 with SHA-256 and write the digests, uint8[n, 32].

    `flat` and `digests` are addresses, so that one compiled loop serves arrays of every kind. Message i is
    flat[offsets[i]:offsets[i + 1]], or flat[i * length:(i + 1) * length] when length >= 0. `order`,
    int64[groups, LANES], holds the message numbers of each group, -1 for an idle lane; an empty order means
    0, 1, 2, ... With `twice` the digests are SHA-256d. `count` is the number of messages.
    """
    state = np.empty((8, LANES), np.uint32)
    words = np.empty((2, 16, LANES), np.uint32)  # a block, and the next one, which is loaded meanwhile
    lane_table = np.empty((3, LANES), np.int64)
    spare = np.empty(32, np.uint8)
    state_address, discard, starts = state.ctypes.data, spare.ctypes.data, lane_table.ctypes.data
    lengths, targets = starts + 8 * LANES * LENGTHS, starts + 8 * LANES * TARGETS
    words_address, slot_bytes = words.ctypes.data, 4 * LANES * 16
    for group in range(first_group, last_group):
        longest = assign_lanes(lane_table, flat, offsets, length, order, group, digests, count, discard)
        shortest = shortest_length(lane_table)
        for i in range(8):
            for lane in range(LANES):
                state[i, lane] = INITIAL_STATE[i]
        slot = 0
        _load_words(words_address, starts, lengths, 0)
        if shortest < BLOCK_BYTES:
            _pad(words, 0, lane_table, 0)
        for offset in range(0, longest + LENGTH_BYTES, BLOCK_BYTES):
            following = offset + BLOCK_BYTES
            if following < longest + LENGTH_BYTES:
                _load_words(words_address + (1 - slot) * slot_bytes, starts, lengths, following)
                if shortest < following + BLOCK_BYTES:
                    _pad(words, 1 - slot, lane_table, following)
            _compress(state_address, words_address + slot * slot_bytes)
            slot = 1 - slot
            limit = following - LENGTH_BYTES + 1
            if shortest < limit and some_end_before(lane_table, limit):
                if twice:
                    _store_rehashed(state_address, targets)
                else:
                    _store_digests(state_address, targets)
                retire_lanes(lane_table, limit, discard)


@compiled
def hash_whole_blocks(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    flat: int, length: int, sums: Any, first_group: Any, last_group: Any, twice: Any, digests: int
) -> Any:
    """Hash full groups of messages of one length, a multiple of BLOCK_BYTES, and write their digests.

    `sums` is what `padding_sums` returns for this length. The other arguments are those of `hash_groups`; the
    messages lie back to back.
    """
    state = np.empty((8, LANES), np.uint32)
    for group in range(first_group, last_group):
        first = group * LANES
        for i in range(8):
            state[i] = INITIAL_STATE[i]
        for offset in range(0, length, BLOCK_BYTES):
            _compress_equal(state.ctypes.data, flat + first * length + offset, length)
        _finish_equal(state.ctypes.data, sums.ctypes.data, twice, digests + first * 32)


@lru_cache(maxsize=64)
def padding_sums(length: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return, for the block that pads a message, the sum of word and constant of each round, as u32[64].

    `length` is that of the message in bytes, a multiple of 64. The block is padding alone, so its schedule is
    the same for all messages of one length.
    """
    words = schedule([PAD_WORD, *[0] * 13, length >> 29, length << 3 & MASK])
    return np.array([word + constant & MASK for word, constant in zip(words, K, strict=True)], np.uint32)


@njit(nogil=True)
def _pad(words: Any, slot: Any, lane_table: Any, offset: Any) -> Any:
    """Add the padding of SHA-256 to the block that begins at byte `offset` of each message.

    A message is followed by a 1 bit, and its last block ends with its length in bits.
    """
    for lane in range(LANES):
        left = lane_table[LENGTHS, lane] - offset
        if 0 <= left < BLOCK_BYTES:
            words[slot, left >> 2, lane] |= np.uint32(PAD_WORD) >> np.uint32(8 * (left & 3))
        if -LENGTH_BYTES < left <= BLOCK_BYTES - LENGTH_BYTES:
            words[slot, 14, lane] = lane_table[LENGTHS, lane] >> 29
            words[slot, 15, lane] = lane_table[LENGTHS, lane] << 3


@compiled
def search_nonces(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    midstate: Any, early: Any, tail: Any, target_top: Any, first: Any, last: Any, found: Any
) -> Any:
    """Write the nonces first to last - 1 whose hash may meet the target into `found`; return how many.

    `found` is uint32. The other arguments are those of HeaderJob, as tuples of u32.
    """
    count = 0
    for nonce in range(first, last, LANES):
        hits = _search_lanes(midstate, early, tail, np.uint32(nonce), target_top)
        if hits:
            for lane in range(min(LANES, last - nonce)):
                if hits >> np.uint32(lane) & np.uint32(1):
                    found[count] = nonce + lane
                    count += 1
    return count
