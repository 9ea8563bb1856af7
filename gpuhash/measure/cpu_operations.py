"""Count the vector operations of a hash: all of them, those that shift, and those that wait for each other.

They are counted in the code that is emitted, without those that are the same for every message, that add
nothing, or whose result is not used. vector_units.py measures how many of them this CPU does per second.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from gpuhash import cpu_keccak, cpu_sha256
from gpuhash.cpu_keccak import DIGEST_WORDS, STATE_WORDS
from gpuhash.keccak import RATE_BYTES
from gpuhash.lanes import AVX512, VECTOR_BITS, Lanes
from gpuhash.reference import Algorithm
from gpuhash.sha256 import ROUNDS

# A rotation without an instruction of its own costs two shifts and an OR.
ROTATION_OPERATIONS = 1 if AVX512 else 3
ROTATION_CHAIN = 1 if AVX512 else 2  # the two shifts do not wait for each other
ROTATION_SHIFTS = 1 if AVX512 else 2  # of these operations, those that shift: not every vector unit can

Emit = Callable[[Lanes, list[Any], list[Any]], list[Any]]


def operations_per_hash(which: Algorithm | None, length: int) -> int:
    """Return how many vector operations hash one message of `length` bytes in every lane.

    `which` is the algorithm, or None for one step of a header search.
    """
    return _per_hash(which, length).operations


def shifts_per_hash(which: Algorithm | None, length: int) -> int:
    """Return how many vector operations of a hash shift or rotate, which only some units of a CPU can do."""
    return _per_hash(which, length).shifts


def lanes_of(which: Algorithm | None) -> int:
    """Return how many messages the cpu backend hashes together by an algorithm; None is a header search."""
    return cpu_keccak.LANES if which in (Algorithm.KECCAK256, Algorithm.SHA3_256) else cpu_sha256.LANES


def search_chain() -> int:
    """Return the longest chain of operations in a hash of a header search: each waits for the one before."""
    return _chain(_emit_search, bits=32, varying=1, fixed=19)


def permutation_chain() -> int:
    """Return the longest chain of operations that wait for each other in Keccak's last permutation.

    It reaches from the state to the digest.
    """
    return _chain(_emit_digest, bits=64, varying=STATE_WORDS, fixed=0)


def _emit_search(lanes: Lanes, nonce: list[Any], fixed: list[Any]) -> list[Any]:
    return [cpu_sha256.search_top(lanes, fixed[:8], fixed[8:16], fixed[16:], nonce[0])]


def _emit_digest(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
    return cpu_keccak.permute(lanes, words, DIGEST_WORDS)


class _Count(NamedTuple):
    """Holds how many vector operations a piece of code has, and how many of them shift or rotate."""

    operations: int
    shifts: int

    def times(self, factor: int) -> "_Count":
        """Return the counts of vector operations of code that runs this piece of code `factor` times."""
        return _Count(self.operations * factor, self.shifts * factor)

    def plus(self, other: "_Count") -> "_Count":
        """Return the sum of two counts: the vector operations of one piece of code followed by the other."""
        return _Count(self.operations + other.operations, self.shifts + other.shifts)


def _per_hash(which: Algorithm | None, length: int) -> _Count:
    """Return how many vector operations, and how many shifts, hash a message of `length` bytes per lane."""
    if which is None:
        return _search()
    if which in (Algorithm.SHA256, Algorithm.SHA256D):
        blocks, rest = divmod(length, cpu_sha256.BLOCK_BYTES)
        whole = _compress().times(blocks)
        if rest == 0:
            whole = whole.plus(_compress_known())
        else:
            whole = whole.plus(
                _compress().times(-(-(rest + cpu_sha256.LENGTH_BYTES) // cpu_sha256.BLOCK_BYTES))
            )
        return whole.plus(_rehash()) if which is Algorithm.SHA256D else whole
    return _permute(STATE_WORDS).times(length // RATE_BYTES).plus(_permute(DIGEST_WORDS))


@cache
def _search() -> _Count:
    return _counted(_emit_search, bits=32, varying=1, fixed=19)


@cache
def _compress() -> _Count:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_sha256.Rounds(lanes).compress(words[:8], words[8:])

    return _counted(emit, bits=32, varying=24)


@cache
def _compress_known() -> _Count:
    """Count the operations that compress a last block of padding alone, whose schedule words never change."""

    def emit(lanes: Lanes, words: list[Any], fixed: list[Any]) -> list[Any]:
        return cpu_sha256.Rounds(lanes).compress_known(words, fixed)

    return _counted(emit, bits=32, varying=8, fixed=ROUNDS)


@cache
def _rehash() -> _Count:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_sha256.Rounds(lanes).hash_digest(words)

    return _counted(emit, bits=32, varying=8)


@cache
def _permute(wanted: int) -> _Count:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_keccak.permute(lanes, words, wanted)

    return _counted(emit, bits=64, varying=STATE_WORDS)


def _counted(emit: Emit, *, bits: int, varying: int, fixed: int = 0) -> _Count:
    return _Count(
        _count(emit, bits=bits, varying=varying, fixed=fixed),
        _count_shifts(emit, bits=bits, varying=varying, fixed=fixed),
    )


def _emitted(emit: Emit, bits: int, varying: int, fixed: int) -> tuple[list[Any], list[Any], set[int]]:
    """Run `emit`; return the instructions that it emits, its results, and the ids of varying values.

    `emit` gets `varying` vectors that differ per message and `fixed` vectors that do not. A value varies if
    it depends on one of the former.
    """
    vector = ir.VectorType(ir.IntType(bits), VECTOR_BITS // bits)
    signature = ir.FunctionType(ir.VoidType(), [vector] * (varying + fixed))
    function = ir.Function(ir.Module(), signature, "counted")
    builder = ir.IRBuilder(function.append_basic_block())
    arguments = list(function.args)
    results = emit(Lanes(builder, bits), arguments[:varying], arguments[varying:])
    changing = {id(argument) for argument in arguments[:varying]}
    for instruction in builder.block.instructions:
        if any(id(operand) in changing for operand in instruction.operands):
            changing.add(id(instruction))
    return list(builder.block.instructions), results, changing


def _chain(emit: Emit, *, bits: int, varying: int, fixed: int) -> int:
    """Return how many operations wait for each other in a row, from a varying value to a result of `emit`.

    It is the longest such chain in the code that `emit` emits.
    """
    instructions, results, changing = _emitted(emit, bits, varying, fixed)
    depth: dict[int, int] = {}
    for instruction in instructions:
        if id(instruction) in changing:
            before = max(depth.get(id(operand), 0) for operand in instruction.operands)
            depth[id(instruction)] = before + _steps(instruction)
    return max(depth[id(result)] for result in results)


def _count(emit: Emit, *, bits: int, varying: int, fixed: int = 0) -> int:
    """Return how many vector operations `emit` emits that a result needs and that vary per message."""
    needed, users, changing = _needed(emit, bits, varying, fixed)
    # A sum that is only a term of another sum is counted as part of the other sum.
    parts = {
        id(operand)
        for instruction in needed
        for operand in instruction.operands
        if instruction.opname == _opname(operand) == "add" and users[id(operand)] == 1
    }
    return sum(_cost(one, parts, changing) for one in needed if id(one) in changing - parts)


def _count_shifts(emit: Emit, *, bits: int, varying: int, fixed: int = 0) -> int:
    """Return how many shifts `emit` emits that a result needs and that vary per message."""
    needed, _users, changing = _needed(emit, bits, varying, fixed)
    return sum(
        ROTATION_SHIFTS if _is_rotation(one) else one.opname == "lshr"
        for one in needed
        if id(one) in changing
    )


def _needed(emit: Emit, bits: int, varying: int, fixed: int) -> tuple[list[Any], Counter[int], set[int]]:
    """Run `emit`; return the instructions that its results need, the last one first.

    The other two values are how often each value is used, by id, and the ids of values that vary per message.
    """
    instructions, results, changing = _emitted(emit, bits, varying, fixed)
    users = Counter(map(id, results))
    needed = []
    for instruction in reversed(instructions):
        if users[id(instruction)]:
            needed.append(instruction)
            users.update(map(id, instruction.operands))
    return needed, users, changing


def _cost(instruction: Any, parts: set[int], changing: set[int]) -> int:
    """Return how many vector operations one instruction costs; all fixed terms of a sum count as one term.

    `parts` and `changing` are ids of instructions: sums counted within other sums, and values that vary.
    """
    if _is_rotation(instruction):
        return ROTATION_OPERATIONS
    if _is_free(instruction):
        return 0
    if instruction.opname != "add":
        return 1
    terms = _terms(instruction, parts)
    varying = [term for term in terms if id(term) in changing]
    fixed = [term for term in terms if id(term) not in changing and not _is_constant(term, 0)]
    return len(varying) - 1 + bool(fixed)


def _steps(instruction: Any) -> int:
    """Return how many operations an instruction adds to a chain of operations that wait for each other."""
    if _is_free(instruction):
        return 0
    return ROTATION_CHAIN if _is_rotation(instruction) else 1


def _is_rotation(instruction: Any) -> bool:
    return instruction.opname == "call" and "fshl" in getattr(instruction.callee, "name", "")


def _is_free(instruction: Any) -> bool:
    """Return whether an LLVM instruction becomes no operation of its own on the CPU.

    Such are the mark of a settled sum, and a complement: every CPU has an AND that complements an operand.
    """
    settled = instruction.opname == "call" and isinstance(instruction.callee, ir.InlineAsm)
    return settled or (instruction.opname == "xor" and _is_constant(instruction.operands[1], -1))


def _is_constant(value: Any, number: int) -> bool:
    """Return whether a value is a constant vector that holds this number in every lane."""
    return isinstance(value, ir.Constant) and all(lane.constant == number for lane in value.constant)


def _terms(instruction: Any, parts: set[int]) -> list[Any]:
    """Return the terms of a sum as a list, with the terms of the sums inside the sum."""
    return [
        term
        for operand in instruction.operands
        for term in (_terms(operand, parts) if id(operand) in parts else [operand])
    ]


def _opname(operand: Any) -> str:
    return getattr(operand, "opname", "")
