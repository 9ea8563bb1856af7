"""Emit vector arithmetic as LLVM IR: one register holds the same word of many messages.

numba compiles the loops but leaves the choice of vector width to LLVM, which on many CPUs with AVX-512
prefers half registers. The hash rounds are therefore emitted here with explicit vector types: 16 lanes of 32
bits (8 of 64) with AVX-512, half as many with AVX2, a quarter elsewhere. A width that the hardware does not
have would still give correct results, only more slowly.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import core, extending

# numba is partly typed, in a way that fits neither compiled functions nor these modules.
intrinsic: Any = extending.intrinsic
cgutils: Any = core.cgutils
config: Any = core.config
codegen: Any = core.codegen

BYTE = ir.IntType(8)
INT64 = ir.IntType(64)
ROW_BYTES = 64  # what a lane loads in one step


def host_features() -> frozenset[str]:
    """Return the CPU features that numba compiles for, named as LLVM spells them."""
    # numba's settings NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX apply: numba must be able to emit what we use.
    named = config.CPU_FEATURES
    names = codegen.get_host_cpu_features() if named is None else named
    return frozenset(name[1:] for name in names.split(",") if name.startswith("+"))


FEATURES = host_features()
AVX512 = {"avx512f", "avx512bw", "avx512vl"} <= FEATURES
VECTOR_BITS = 512 if AVX512 else 256 if "avx2" in FEATURES else 128

# Truth tables of vpternlog: bit 4a + 2b + c of the number is the result for bits a, b, c.
XOR3, CHOOSE, MAJORITY, AND_NOT_XOR = 0x96, 0xCA, 0xE8, 0xD2


class Lanes:
    """Emits vector instructions for words of `bits` bits; each value is an LLVM vector, one word per lane.

    The methods add instructions to the code that is being built, and return the vector of the result.
    """

    def __init__(self, builder: ir.IRBuilder, bits: int) -> None:
        self.builder = builder
        self.bits = bits
        self.count = VECTOR_BITS // bits
        self.word = ir.IntType(bits)
        self.vector = ir.VectorType(self.word, self.count)

    def constant(self, value: int) -> Any:
        """Return a vector that holds the same number in every lane."""
        return ir.Constant(self.vector, [value & (1 << self.bits) - 1] * self.count)

    def steps(self) -> Any:
        """Return the vector 0, 1, 2, ...: the number of each lane."""
        return ir.Constant(self.vector, list(range(self.count)))

    def splat(self, scalar: Any) -> Any:
        """Emit code that copies a scalar into every lane; return the vector."""
        empty = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, empty, _indices([0] * self.count))

    def load_splat(self, address: Any, index: int) -> Any:
        """Emit code that copies the index-th word after an integer address into every lane.

        Returns the vector.
        """
        place = self.builder.add(address, INT64(index * self.bits // 8))
        return self.splat(self.builder.load(self.builder.inttoptr(place, self.word.as_pointer())))

    def load(self, address: Any, index: int) -> Any:
        """Emit a load of the index-th vector after an integer address; return the vector."""
        return self.builder.load(self._pointer(address, index), align=1)

    def store(self, value: Any, address: Any, index: int) -> None:
        """Emit a store of a vector to the index-th place after an integer address."""
        self.builder.store(value, self._pointer(address, index), align=1)

    def add(self, *terms: Any) -> Any:
        """Emit code for the sum of the terms, added from left to right, modulo the word size.

        Return the sum.
        """
        total = terms[0]
        for term in terms[1:]:
            total = self.builder.add(total, term)
        return total

    def settled(self, total: Any) -> Any:
        """Return a sum as it is, so that LLVM does not merge it into a longer sum and reorder the terms.

        No instruction is emitted. What is added to the result is added last, which matters where it is late.
        """
        if not AVX512:
            return total
        kind = ir.FunctionType(total.type, [total.type])
        return self.builder.call(ir.InlineAsm(kind, "", "=v,0"), [total])

    def xor(self, a: Any, b: Any) -> Any:
        """Emit code for a ^ b; return the vector."""
        return self.builder.xor(a, b)

    def xor3(self, a: Any, b: Any, c: Any) -> Any:
        """Emit code for a ^ b ^ c; return the vector."""
        return self._ternary(XOR3, a, b, c) if AVX512 else self.xor(self.xor(a, b), c)

    def choose(self, a: Any, b: Any, c: Any) -> Any:
        """Emit code that takes bits of b where a has ones and of c where it has zeros; return the vector."""
        if AVX512:
            return self._ternary(CHOOSE, a, b, c)
        return self.xor(c, self.builder.and_(a, self.xor(b, c)))

    def majority(self, a: Any, b: Any, c: Any) -> Any:
        """Emit code for the bits that are set in at least two of a, b and c; return the vector."""
        if AVX512:
            return self._ternary(MAJORITY, a, b, c)
        return self.xor(self.builder.and_(a, b), self.builder.and_(c, self.xor(a, b)))

    def and_not_xor(self, a: Any, b: Any, c: Any) -> Any:
        """Emit code for a ^ (~b & c); return the vector."""
        if AVX512:
            return self._ternary(AND_NOT_XOR, a, b, c)
        return self.xor(a, self.builder.and_(self.builder.not_(b), c))

    def rotate_left(self, x: Any, n_bits: int) -> Any:
        """Emit code that rotates every lane to the left by `n_bits` bits; return the vector."""
        if n_bits == 0:
            return x
        return self.rotate_left_by(x, self.constant(n_bits))

    def rotate_left_by(self, x: Any, n_bits: Any) -> Any:
        """Emit code that rotates every lane to the left by the number in that lane of `n_bits`, a vector.

        Returns the vector.
        """
        return self._call("llvm.fshl", x, x, n_bits)

    def rotate_right(self, x: Any, n_bits: int) -> Any:
        """Emit code that rotates every lane to the right by `n_bits` bits; return the vector."""
        return self.rotate_left(x, self.bits - n_bits)

    def shift_right(self, x: Any, n_bits: int) -> Any:
        """Emit code that shifts every lane to the right by `n_bits` bits, filled with zeros.

        Return the vector.
        """
        return self.builder.lshr(x, self.constant(n_bits))

    def byte_swap(self, x: Any) -> Any:
        """Emit code that reverses the bytes of every lane.

        Return the vector. x may be any vector of words.
        """
        return self._call("llvm.bswap", x)

    def transpose(self, vectors: Sequence[Any], stages: int) -> list[Any]:
        """Emit code that interleaves the first half of the vectors with the second, `stages` times.

        Seen as one long sequence, each stage moves the highest bit of every index to the lowest place:
        log2(rows) stages turn rows of words into words of rows. Returns the vectors.
        """
        width = vectors[0].type.count
        low = _indices([i // 2 + (i % 2) * width for i in range(width)])
        high = _indices([width // 2 + i // 2 + (i % 2) * width for i in range(width)])
        current = list(vectors)
        for _ in range(stages):
            half = len(current) // 2
            current = [
                self.builder.shuffle_vector(current[i], current[half + i], order)
                for i in range(half)
                for order in (low, high)
            ]
        return current

    def slice(self, vector: Any, first: int, count: int) -> Any:
        """Emit code for `count` neighbouring elements of a vector, from `first` on.

        Return the shorter vector.
        """
        if count == vector.type.count:
            return vector
        undefined = ir.Constant(vector.type, ir.Undefined)
        return self.builder.shuffle_vector(vector, undefined, _indices(list(range(first, first + count))))

    def _pointer(self, address: Any, index: int) -> Any:
        offset = INT64(index * self.count * self.bits // 8)
        return self.builder.inttoptr(self.builder.add(address, offset), self.vector.as_pointer())

    def _call(self, name: str, *arguments: Any) -> Any:
        kind = arguments[0].type
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(kind, [kind] * len(arguments)),
            f"{name}.v{kind.count}i{kind.element.width}",
        )
        return self.builder.call(function, arguments)

    def _ternary(self, table: int, a: Any, b: Any, c: Any) -> Any:
        letter = {32: "d", 64: "q"}[self.bits]
        function = cgutils.get_or_insert_function(
            self.builder.module,
            ir.FunctionType(self.vector, [self.vector] * 3 + [ir.IntType(32)]),
            f"llvm.x86.avx512.pternlog.{letter}.512",
        )
        return self.builder.call(function, (a, b, c, ir.Constant(ir.IntType(32), table)))


def load_words(  # noqa: PLR0917 - the five operands of one instruction sequence
    lanes: Lanes, words: Any, starts: Any, lengths: Any, offset: Any, limit: Any, *, swap: bool
) -> None:
    """Emit code that loads up to 64 bytes of one message per lane, and stores one vector per word.

    words, starts and lengths are addresses: of the vectors to write, and of i64[lanes] message addresses and
    message lengths. At most `limit` bytes are taken from byte `offset` of each message on. Zeros stand for
    the bytes after the end of a message, and none of those bytes is read. `swap` reverses the bytes of each
    word, for big-endian formats.
    """
    builder = lanes.builder
    rows = []
    for lane in range(lanes.count):
        start, length = (load_int64(builder, address, lane) for address in (starts, lengths))
        size = clamp(builder, builder.sub(length, offset), limit)
        row = load_row(lanes, builder.add(start, offset), size)
        rows.append(lanes.byte_swap(row) if swap else row)
    for i, word in enumerate(transpose_rows(lanes, rows)):
        lanes.store(word, words, i)


def load_row(lanes: Lanes, address: Any, size: Any) -> Any:
    """Emit a load of `size` bytes (0 to 64), filled up with zeros to 64; return one vector of words."""
    load = _load_masked if AVX512 else _load_copied
    row_type = ir.VectorType(lanes.word, ROW_BYTES * 8 // lanes.bits)
    return lanes.builder.bitcast(load(lanes.builder, address, size), row_type)


def transpose_rows(lanes: Lanes, rows: list[Any]) -> list[Any]:
    """Emit code that turns one row of words per lane into one lane vector per word; return the vectors."""
    vectors = lanes.transpose(rows, lanes.count.bit_length() - 1)
    row_words = rows[0].type.count
    per_vector = row_words // lanes.count
    return [
        lanes.slice(vectors[i // per_vector], i % per_vector * lanes.count, lanes.count)
        for i in range(row_words)
    ]


def store_digests(lanes: Lanes, words: list[Any], targets: Any) -> None:
    """Emit code that writes the digest of every lane to the 32 bytes at that lane's address in targets.

    `words` are the words of the digests, one lane vector each.
    """
    builder = lanes.builder
    columns = lanes.transpose(words, len(words).bit_length() - 1)
    step = min(len(words), lanes.count)
    for lane in range(lanes.count):
        target = load_int64(builder, targets, lane)
        for first in range(0, len(words), step):
            element = lane * len(words) + first
            part = lanes.slice(columns[element // lanes.count], element % lanes.count, step)
            address = builder.add(target, INT64(first * lanes.bits // 8))
            builder.store(part, builder.inttoptr(address, part.type.as_pointer()), align=1)


def load_int64(builder: ir.IRBuilder, address: Any, index: int) -> Any:
    """Emit a load of the index-th int64 after an integer address; return the value."""
    element = builder.add(address, INT64(8 * index))
    return builder.load(builder.inttoptr(element, INT64.as_pointer()))


def clamp(builder: ir.IRBuilder, value: Any, most: Any) -> Any:
    """Emit code that limits `value` to 0 .. min(most, 64), where 64 is the number of bytes of one row.

    Return the limited value.
    """
    zero, row = INT64(0), INT64(ROW_BYTES)
    most = builder.select(builder.icmp_signed("<", most, row), most, row)
    value = builder.select(builder.icmp_signed("<", value, most), value, most)
    return builder.select(builder.icmp_signed(">", value, zero), value, zero)


def _load_masked(builder: ir.IRBuilder, address: Any, size: Any) -> Any:
    """Emit a load of `size` bytes under a mask: one AVX-512 instruction that does not touch the other bytes.

    Returns the 64 bytes as a vector.
    """
    row = ir.VectorType(BYTE, ROW_BYTES)
    bits = ir.VectorType(ir.IntType(1), ROW_BYTES)
    # Shifting by the whole width is undefined, so a lane without bytes is a case of its own.
    ones = builder.lshr(INT64(-1), builder.sub(INT64(ROW_BYTES), size))
    some = builder.icmp_signed("!=", size, INT64(0))
    mask = builder.bitcast(builder.select(some, ones, INT64(0)), bits)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(row, [row.as_pointer(), ir.IntType(32), bits, row]),
        f"llvm.masked.load.v{ROW_BYTES}i8.p0",
    )
    pointer = builder.inttoptr(address, row.as_pointer())
    return builder.call(function, (pointer, ir.Constant(ir.IntType(32), 1), mask, ir.Constant(row, None)))


def _load_copied(builder: ir.IRBuilder, address: Any, size: Any) -> Any:
    """Emit a direct load for a whole row of 64 bytes, and for fewer bytes a load from a zeroed copy.

    Returns the 64 bytes as a vector.
    """
    row = ir.VectorType(BYTE, ROW_BYTES)
    buffer = cgutils.alloca_once(builder, row)
    whole = builder.icmp_signed("==", size, INT64(ROW_BYTES))
    with builder.if_else(whole) as (then, otherwise):
        with then:
            loaded = builder.load(builder.inttoptr(address, row.as_pointer()), align=1)
            builder.store(loaded, buffer)
        with otherwise:
            builder.store(ir.Constant(row, None), buffer)
            source = builder.inttoptr(address, BYTE.as_pointer())
            cgutils.raw_memcpy(builder, builder.bitcast(buffer, BYTE.as_pointer()), source, size, 1)
    return builder.load(buffer)


def _indices(values: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(values)), values)
