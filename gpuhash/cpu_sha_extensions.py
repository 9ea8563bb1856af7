"""Hash messages with the SHA instructions of the CPU: compiled loops of the cpu backend.

One instruction does two rounds, or a part of the message schedule of four words, for one message. Its result
comes after several clocks. So the instructions of STREAMS messages (streams) are interleaved: while one
message waits for a result, the units work on another one. The loops take the same arguments as those of
cpu_sha256, and groups of STREAMS messages instead of one message per lane. Source of the instructions'
meaning: Intel's "New Instructions Supporting the Secure Hash Algorithm" (2013). They hold a state as two
vectors: f e b a and h g d c, the lowest word first.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from gpuhash.compiled import compiled
from gpuhash.cpu_sha256 import BLOCK_BYTES, LENGTH_BYTES, padding_sums
from gpuhash.groups import (
    LENGTHS,
    STARTS,
    TARGETS,
    assign_lanes,
    retire_lanes,
    shortest_length,
    some_end_before,
)
from gpuhash.lanes import AVX512, BYTE, FEATURES, INT64, cgutils, intrinsic, load_int64
from gpuhash.sha256 import (
    DIGEST_BITS,
    HEADER_BITS,
    INITIAL_STATE,
    NONCE_WORD,
    PAD_WORD,
    ROUNDS,
    K,
)

__all__ = ["FASTER", "HAS_SHA", "LANES", "hash_groups", "hash_whole_blocks", "padding_sums", "search_nonces"]

HAS_SHA = {"sha", "sse4.1", "ssse3"} <= FEATURES
# With AVX-512 the loops of cpu_sha256 are expected to be faster; WIDE_CPUS.md has the arithmetic.
FASTER = HAS_SHA and not AVX512
STREAMS = 4
LANES = STREAMS  # messages of a group, as other modules call it
PAIRS = ROUNDS // 2  # an instruction does two rounds
SEARCH_PAIRS = 31  # e after round 60, which decides the top word of the hash, is f one round later
WORD = ir.IntType(32)
VECTOR = ir.VectorType(WORD, 4)
VECTOR_BYTES = 16

State = tuple[Any, Any]  # vectors f e b a and h g d c


class ShaRounds:
    """Emits the rounds of SHA-256 as SHA instructions, interleaved for several messages."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def constant(self, *words: int) -> Any:
        """Return a constant vector of four 32-bit words."""
        return ir.Constant(VECTOR, list(words))

    def add(self, a: Any, b: Any) -> Any:
        """Emit the sum of two vectors, word by word modulo 2^32; return the vector."""
        return self.builder.add(a, b)

    def select(self, a: Any, b: Any, order: list[int]) -> Any:
        """Emit a vector of four words of vectors a and b: 0 to 3 in `order` are words of a, 4 to 7 of b."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(WORD, 4), order))

    def vector(self, words: list[Any]) -> Any:
        """Emit code that puts four 32-bit words, which need not be constants, into a vector; return it."""
        result = ir.Constant(VECTOR, ir.Undefined)
        for i, word in enumerate(words):
            result = self.builder.insert_element(result, word, WORD(i))
        return result

    def byte_swap(self, x: Any) -> Any:
        """Emit code that reverses the bytes of every word; return the vector."""
        return self.call("llvm.bswap.v4i32", x)

    def initial_state(self) -> State:
        """Return the initial state of SHA-256 (FIPS 180-4, 5.3.3) as the two vectors of a State."""
        return self.state([WORD(word) for word in INITIAL_STATE])

    def state(self, words: list[Any]) -> State:
        """Put eight words a to h into the two vectors of a State (f e b a and h g d c) and return it."""
        a, b, c, d, e, f, g, h = words
        if all(isinstance(word, ir.Constant) for word in words):
            return ir.Constant(VECTOR, [f, e, b, a]), ir.Constant(VECTOR, [h, g, d, c])
        return self.vector([f, e, b, a]), self.vector([h, g, d, c])

    def words(self, state: State) -> list[Any]:
        """Emit the words of a state in order, as vectors a b c d and e f g h; return both."""
        return [self.select(*state, [3, 2, 7, 6]), self.select(*state, [1, 0, 5, 4])]

    def run(
        self, states: list[State], messages: list[list[Any]], first_pair: int = 0, last_pair: int = PAIRS
    ) -> list[State]:
        """Emit pairs of rounds first_pair to last_pair - 1 of each message's block; return the new states.

        `messages` holds the 16 words of each block as four vectors.
        """
        states, messages = list(states), [list(message) for message in messages]
        for four in range(first_pair // 2, (last_pair + 1) // 2):
            constants = self.constant(*K[4 * four : 4 * four + 4])
            for i, message in enumerate(messages):
                if four == len(message):
                    message.append(self._next_words(message))
                sums = self.add(message[four], constants)
                states[i] = self._two_pairs(
                    states[i], sums, first=2 * four >= first_pair, second=2 * four + 1 < last_pair
                )
        return states

    def run_known(self, states: list[State], sums: list[Any]) -> list[State]:
        """Emit all 64 rounds of a block that is the same for all messages; return their new states.

        `sums` has the sums of schedule word and round constant, four rounds to a vector, computed beforehand.
        """
        states = list(states)
        for four in sums:
            states = [self._two_pairs(state, four, first=True, second=True) for state in states]
        return states

    def compress(self, states: list[State], messages: list[list[Any]]) -> list[State]:
        """Emit the compression of one block of each message; return the states after it."""
        return self._plus(states, self.run(states, messages))

    def compress_known(self, states: list[State], sums: list[Any]) -> list[State]:
        """Emit the compression of a block that is the same for all messages; return their states after it.

        `sums` are those of `run_known`.
        """
        return self._plus(states, self.run_known(states, sums))

    def digest_messages(self, states: list[State]) -> list[list[Any]]:
        """Return the padded block that hashes each digest in `states` once more, as four vectors each."""
        padding = [self.constant(PAD_WORD, 0, 0, 0), self.constant(0, 0, 0, DIGEST_BITS)]
        return [[*self.words(state), *padding] for state in states]

    def hash_digests(self, states: list[State]) -> list[State]:
        """Emit the second hash of SHA-256d: hash digests, given as states; return the new states."""
        return self.compress([self.initial_state()] * len(states), self.digest_messages(states))

    def clear_upper_halves(self) -> None:
        """Emit code that clears the upper halves of the vector registers (vzeroupper).

        SHA instructions have no form that ignores them: on a Zen 3 one took 68 clocks while they were in use.
        """
        kind = ir.FunctionType(ir.VoidType(), [])
        name = "llvm.x86.avx.vzeroupper"
        if "avx" in FEATURES:
            self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [])

    def load(self, address: Any, index: int) -> Any:
        """Emit a load of the index-th vector after an integer address; return the vector."""
        return self.builder.load(self._pointer(address, index), align=1)

    def store(self, vector: Any, address: Any, index: int) -> None:
        """Emit a store of a vector to the index-th place after an integer address."""
        self.builder.store(vector, self._pointer(address, index), align=1)

    def load_states(self, address: Any) -> list[State]:
        """Emit loads of the SHA-256 states of all streams, u32[STREAMS][8], from an address; return them."""
        return [(self.load(address, 2 * i), self.load(address, 2 * i + 1)) for i in range(STREAMS)]

    def store_states(self, states: list[State], address: Any) -> None:
        """Emit stores of the SHA-256 states of all streams, u32[STREAMS][8], to an address."""
        for i, halves in enumerate(states):
            for j, half in enumerate(halves):
                self.store(half, address, 2 * i + j)

    def store_digest(self, state: State, address: Any) -> None:
        """Emit code that writes a state as the 32 bytes of a digest to an integer address."""
        for i, words in enumerate(self.words(state)):
            self.store(self.byte_swap(words), address, i)

    def _two_pairs(self, state: State, sums: Any, *, first: bool, second: bool) -> State:
        """Emit four rounds, or only the `first` or the `second` two of them; return the new state.

        `sums` is the vector of the four sums of schedule word and round constant.
        """
        if first:
            state = self.call("llvm.x86.sha256rnds2", state[1], state[0], sums), state[0]
        if second:
            upper = self.select(sums, sums, [2, 3, 2, 3])
            state = self.call("llvm.x86.sha256rnds2", state[1], state[0], upper), state[0]
        return state

    def _next_words(self, message: list[Any]) -> Any:
        """Emit the next four words of a message schedule from the 16 before; return the vector."""
        oldest, older, old, newest = message[-4:]
        begun = self.call("llvm.x86.sha256msg1", oldest, older)
        return self.call(
            "llvm.x86.sha256msg2", self.add(begun, self.select(old, newest, [1, 2, 3, 4])), newest
        )

    def _plus(self, states: list[State], more: list[State]) -> list[State]:
        return [(self.add(a, x), self.add(b, y)) for (a, b), (x, y) in zip(states, more, strict=True)]

    def _pointer(self, address: Any, index: int) -> Any:
        place = self.builder.add(address, INT64(index * VECTOR_BYTES))
        return self.builder.inttoptr(place, VECTOR.as_pointer())

    def call(self, name: str, *arguments: Any) -> Any:
        """Emit a call of an LLVM intrinsic whose operands and result are vectors; return the vector."""
        kind = ir.FunctionType(VECTOR, [VECTOR] * len(arguments))
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), list(arguments)
        )


def search_tops(rounds: ShaRounds, midstate: State, tail: Any, nonces: Any) -> Any:
    """Emit the double hash of STREAMS headers; return the vector of the top 32 bits of their hashes.

    `tail` is the vector of bytes 64 to 75 of the header as words and a word that does not matter; `nonces` is
    the vector of the nonces as words.
    """
    fixed = [
        rounds.constant(PAD_WORD, 0, 0, 0),
        rounds.constant(0, 0, 0, 0),
        rounds.constant(0, 0, 0, HEADER_BITS),
    ]
    begun = rounds.run([midstate], [[tail, *fixed]], 0, 1) * STREAMS
    messages = [[rounds.select(tail, nonces, [0, 1, 2, 4 + i]), *fixed] for i in range(STREAMS)]
    final = rounds.run(begun, messages, 1)
    inner = [(rounds.add(midstate[0], x), rounds.add(midstate[1], y)) for x, y in final]
    outer = rounds.run([rounds.initial_state()] * STREAMS, rounds.digest_messages(inner), 0, SEARCH_PAIRS)
    first, last = (rounds.select(outer[i][0], outer[i + 1][0], [0, 4, 0, 4]) for i in (0, 2))
    return rounds.add(rounds.select(first, last, [0, 1, 4, 5]), rounds.constant(*[INITIAL_STATE[7]] * 4))


@intrinsic
def _search_streams(_typing: Any, midstate: Any, tail: Any, nonce: Any, target_top: Any) -> Any:
    """Emit code that hashes STREAMS headers with consecutive nonces; bit i of its result marks nonce + i.

    A bit is set where the hash may meet the target. midstate and tail are tuples of u32 as in HeaderJob.
    """

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        rounds = ShaRounds(builder)
        rounds.clear_upper_halves()
        middle, fixed = (
            [builder.extract_value(group, i) for i in range(count)]
            for group, count in zip(arguments[:2], (8, NONCE_WORD), strict=True)
        )
        numbers = rounds.add(rounds.vector([arguments[2]] * 4), rounds.constant(0, 1, 2, 3))
        tops = search_tops(
            rounds, rounds.state(middle), rounds.vector([*fixed, WORD(0)]), rounds.byte_swap(numbers)
        )
        hits = builder.icmp_unsigned("<=", rounds.byte_swap(tops), rounds.vector([arguments[3]] * 4))
        return builder.zext(builder.bitcast(hits, ir.IntType(STREAMS)), WORD)

    return types.uint32(midstate, tail, nonce, target_top), generate


@intrinsic
def _compress(_typing: Any, state: Any, blocks: Any) -> Any:
    """Emit code that compresses one block of each stream into the states, u32[STREAMS][8].

    `state` and `blocks` are addresses; `blocks` holds the address of each stream's 64 bytes, i64[STREAMS].
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, blocks = arguments
        rounds = ShaRounds(builder)
        rounds.clear_upper_halves()
        places = [load_int64(builder, blocks, i) for i in range(STREAMS)]
        messages = [[rounds.byte_swap(rounds.load(place, i)) for i in range(4)] for place in places]
        rounds.store_states(rounds.compress(rounds.load_states(state), messages), state)
        return context.get_dummy_value()

    return types.void(state, blocks), generate


@intrinsic
def _store_digests(_typing: Any, state: Any, twice: Any, targets: Any) -> Any:
    """Emit code that writes each stream's 32-byte digest to the stream's address in targets, i64[STREAMS].

    With `twice` the digests are hashed once more; the states do not change.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, twice, targets = arguments
        rounds = ShaRounds(builder)
        rounds.clear_upper_halves()
        places = [load_int64(builder, targets, i) for i in range(STREAMS)]
        _store_once_or_twice(rounds, rounds.load_states(state), twice, places)
        return context.get_dummy_value()

    return types.void(state, twice, targets), generate


@intrinsic
def _finish_equal(_typing: Any, state: Any, sums: Any, twice: Any, digests: Any) -> Any:
    """Emit code that compresses the last block, the same for all STREAMS messages, and writes the digests.

    `state`, `sums` and `digests` are addresses; `sums` are those of `padding_sums`. The digests lie back to
    back. With `twice` they are hashed once more.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        state, sums, twice, digests = arguments
        rounds = ShaRounds(builder)
        rounds.clear_upper_halves()
        known = [rounds.load(sums, i) for i in range(ROUNDS // 4)]
        once = rounds.compress_known(rounds.load_states(state), known)
        places = [builder.add(digests, INT64(32 * i)) for i in range(STREAMS)]
        _store_once_or_twice(rounds, once, twice, places)
        return context.get_dummy_value()

    return types.void(state, sums, twice, digests), generate


def _store_once_or_twice(rounds: ShaRounds, states: list[State], twice: Any, places: list[Any]) -> None:
    """Emit code that writes the digests `states`, hashed once more if `twice`, to the addresses `places`."""
    with rounds.builder.if_else(twice) as (then, otherwise):
        with then:
            for state, place in zip(rounds.hash_digests(states), places, strict=True):
                rounds.store_digest(state, place)
        with otherwise:
            for state, place in zip(states, places, strict=True):
                rounds.store_digest(state, place)


@intrinsic
def _copy(_typing: Any, source: Any, size: Any, target: Any) -> Any:
    """Emit code that copies `size` bytes between two integer addresses."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        source, size, target = arguments
        pointers = [builder.inttoptr(address, BYTE.as_pointer()) for address in (target, source)]
        cgutils.raw_memcpy(builder, *pointers, size, 1)
        return context.get_dummy_value()

    return types.void(source, size, target), generate


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

    The arguments are those of `cpu_sha256.hash_groups`, with STREAMS messages in a group.
    """
    state = np.empty((STREAMS, 8), np.uint32)
    lane_table = np.empty((3, STREAMS), np.int64)
    blocks = np.empty(STREAMS, np.int64)
    padded = np.zeros((STREAMS, BLOCK_BYTES), np.uint8)
    spare = np.empty(32, np.uint8)
    discard = spare.ctypes.data
    targets = lane_table.ctypes.data + 8 * STREAMS * TARGETS
    for group in range(first_group, last_group):
        longest = assign_lanes(lane_table, flat, offsets, length, order, group, digests, count, discard)
        shortest = shortest_length(lane_table)
        _set_initial(state)
        for offset in range(0, longest + LENGTH_BYTES, BLOCK_BYTES):
            for stream in range(STREAMS):
                if lane_table[LENGTHS, stream] - offset >= BLOCK_BYTES:
                    blocks[stream] = lane_table[STARTS, stream] + offset
                else:
                    blocks[stream] = padded.ctypes.data + BLOCK_BYTES * stream
                    _pad(padded[stream], lane_table[STARTS, stream], lane_table[LENGTHS, stream], offset)
            _compress(state.ctypes.data, blocks.ctypes.data)
            limit = offset + BLOCK_BYTES - LENGTH_BYTES + 1
            if shortest < limit and some_end_before(lane_table, limit):
                _store_digests(state.ctypes.data, twice, targets)
                retire_lanes(lane_table, limit, discard)


@compiled
def hash_whole_blocks(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    flat: int, length: int, sums: Any, first_group: Any, last_group: Any, twice: Any, digests: int
) -> Any:
    """Hash full groups of messages of one length, a multiple of BLOCK_BYTES, and write their digests.

    The arguments are those of `cpu_sha256.hash_whole_blocks`, with STREAMS messages in a group.
    """
    state = np.empty((STREAMS, 8), np.uint32)
    blocks = np.empty(STREAMS, np.int64)
    for group in range(first_group, last_group):
        first = group * STREAMS
        _set_initial(state)
        for offset in range(0, length, BLOCK_BYTES):
            for stream in range(STREAMS):
                blocks[stream] = flat + (first + stream) * length + offset
            _compress(state.ctypes.data, blocks.ctypes.data)
        _finish_equal(state.ctypes.data, sums.ctypes.data, twice, digests + first * 32)


@njit(nogil=True)
def _set_initial(state: Any) -> None:
    """Write the initial state of SHA-256 into every row of `state`, u32[STREAMS][8], as f e b a h g d c."""
    for stream in range(STREAMS):
        for i, word in enumerate((5, 4, 1, 0, 7, 6, 3, 2)):
            state[stream, i] = INITIAL_STATE[word]


@njit(nogil=True)
def _pad(block: Any, start: Any, length: Any, offset: Any) -> None:
    """Write to `block` the rest of a message from byte `offset` on, less than a block, and SHA-256's padding.

    `block` is uint8[64]; the message has `length` bytes at the address `start`. A message is followed by one
    bit, and its last block ends with its length in bits. Nothing is written where the padding has ended
    before.
    """
    left = length - offset
    if left <= -LENGTH_BYTES:
        return
    for i in range(BLOCK_BYTES):
        block[i] = 0
    if left >= 0:
        _copy(start + offset, left, block.ctypes.data)
        block[left] = 0x80
    if left <= BLOCK_BYTES - LENGTH_BYTES:
        for i in range(8):
            block[BLOCK_BYTES - 1 - i] = length << 3 >> 8 * i & 0xFF


@compiled
def search_nonces(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    midstate: Any, _early: Any, tail: Any, target_top: Any, first: Any, last: Any, found: Any
) -> Any:
    """Write the nonces first to last - 1 whose hash may meet the target into `found`; return how many.

    The arguments are those of `cpu_sha256.search_nonces`.
    """
    count = 0
    for nonce in range(first, last, STREAMS):
        hits = _search_streams(midstate, tail, np.uint32(nonce), target_top)
        if hits:
            for stream in range(min(STREAMS, last - nonce)):
                if hits >> np.uint32(stream) & np.uint32(1):
                    found[count] = nonce + stream
                    count += 1
    return count
