"""Measure how many hashes per second the SHA instructions of this CPU allow.

A hash is so many instructions of each kind. The units for SHA instructions, additions and shuffles overlap,
in a way that differs from CPU to CPU. So the limit is measured with the same mix of instructions, none of
which waits for a result of the hash. Loads, stores and copies of registers are left out.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from gpuhash import cpu_sha256
from gpuhash.cpu_sha_extensions import STREAMS, VECTOR, ShaRounds, search_tops
from gpuhash.lanes import intrinsic
from gpuhash.measure.vector_units import rounds_per_s
from gpuhash.reference import Algorithm

CHAINS = 12
ROUNDS = 4_000
Emit = Callable[[ShaRounds, list[Any], list[Any]], list[Any]]
Mix = Counter[str]  # how many instructions of each kind


def hashes_per_s(which: Algorithm | None, length: int, thread_count: int) -> float:
    """Measure and return the most hashes per second that SHA instructions allow `thread_count` threads.

    `which` is SHA-256, SHA-256d, or None for a header search; `length` is that of a message in bytes.
    """
    state = np.ones((CHAINS, 4), np.uint32)
    return rounds_per_s(thread_count, spin_of(which, length), ROUNDS, state)


def instructions_per_hash(which: Algorithm | None, length: int) -> Mix:
    """Return how many instructions of each kind hash one message of `length` bytes.

    `which` is SHA-256, SHA-256d, or None for a header search. The kinds are sha256rnds2, sha256msg1,
    sha256msg2, add and shuffle. Loads and stores are not counted.
    """
    if which is None:
        return _search()
    blocks, rest = divmod(length, cpu_sha256.BLOCK_BYTES)
    n_padded = -(-(rest + cpu_sha256.LENGTH_BYTES) // cpu_sha256.BLOCK_BYTES) if rest else 0
    whole: Mix = Counter()
    for mix, times in ((_compress(), blocks + n_padded), (_compress_known(), not rest)):
        whole.update({kind: count * times for kind, count in mix.items()})
    return whole + _rehash() if which is Algorithm.SHA256D else whole


@cache
def spin_of(which: Algorithm | None, length: int) -> Callable[[int, Any], None]:
    """Compile and return a loop whose every round runs the instructions of one hash, to measure their speed.

    Its arguments are the number of rounds and u32[CHAINS, 4].
    """
    kinds = _interleaved(instructions_per_hash(which, length))

    @intrinsic
    def spin_once(_typing: Any, state: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
            _emit_mix(ShaRounds(builder), kinds, arguments[0])
            return context.get_dummy_value()

        return types.void(state), generate

    @njit(nogil=True)
    def spin(rounds: int, state: Any) -> None:
        for _ in range(rounds):
            spin_once(state.ctypes.data)

    compiled: Callable[[int, Any], None] = spin
    return compiled


def _emit_mix(rounds: ShaRounds, kinds: list[str], state: Any) -> None:
    """Emit the instructions `kinds`, each on the next of CHAINS chains.

    The chains are loaded from the address `state` before, and stored after.
    """
    rounds.clear_upper_halves()
    chains = [rounds.load(state, i) for i in range(CHAINS)]
    unknown = chains[0]
    for i, kind in enumerate(kinds):
        place = i % (CHAINS - 1) + 1
        chains[place] = _emit_one(rounds, kind, chains[place], unknown)
    for i, chain in enumerate(chains):
        rounds.store(chain, state, i)


def _emit_one(rounds: ShaRounds, kind: str, chain: Any, unknown: Any) -> Any:
    """Emit one instruction of a kind on a chain, so that the compiler cannot merge it with the next one."""
    if kind == "add":
        result = rounds.add(chain, unknown)
    elif kind == "shuffle":
        result = rounds.select(chain, chain, [2, 3, 2, 3])
    else:
        operands = [chain, unknown, unknown] if kind == "sha256rnds2" else [chain, unknown]
        return rounds.call(f"llvm.x86.{kind}", *operands)
    same = ir.InlineAsm(ir.FunctionType(VECTOR, [VECTOR]), "", "=x,0")
    return rounds.builder.call(same, [result])


def _interleaved(mix: Mix) -> list[str]:
    """Return the instruction kinds of a mix as a list, each as often as the mix counts it, spread evenly."""
    places = [
        ((number + 0.5) / count, kind) for kind, count in sorted(mix.items()) for number in range(count)
    ]
    return [kind for _place, kind in sorted(places)]


@cache
def _search() -> Mix:
    def emit(rounds: ShaRounds, varying: list[Any], fixed: list[Any]) -> list[Any]:
        return [search_tops(rounds, (fixed[0], fixed[1]), fixed[2], varying[0])]

    return _per_stream(emit, varying=1, fixed=3)


@cache
def _compress() -> Mix:
    def emit(rounds: ShaRounds, varying: list[Any], _fixed: list[Any]) -> list[Any]:
        halves = iter(varying)
        states = [(next(halves), next(halves)) for _ in range(STREAMS)]
        messages = [[rounds.byte_swap(next(halves)) for _ in range(4)] for _ in range(STREAMS)]
        return [half for state in rounds.compress(states, messages) for half in state]

    return _per_stream(emit, varying=6 * STREAMS, fixed=0)


@cache
def _compress_known() -> Mix:
    def emit(rounds: ShaRounds, varying: list[Any], fixed: list[Any]) -> list[Any]:
        states = [(varying[2 * i], varying[2 * i + 1]) for i in range(STREAMS)]
        return [half for state in rounds.compress_known(states, fixed) for half in state]

    return _per_stream(emit, varying=2 * STREAMS, fixed=16)


@cache
def _rehash() -> Mix:
    def emit(rounds: ShaRounds, varying: list[Any], _fixed: list[Any]) -> list[Any]:
        states = [(varying[2 * i], varying[2 * i + 1]) for i in range(STREAMS)]
        return [half for state in rounds.hash_digests(states) for half in state]

    return _per_stream(emit, varying=2 * STREAMS, fixed=0)


def _per_stream(emit: Emit, *, varying: int, fixed: int) -> Mix:
    """Emit the instructions for all streams; return how many of each kind the hash of one stream takes.

    Counted are those that the results need and that depend on a vector that varies. `emit` gets `varying`
    vectors that differ per message and `fixed` ones that do not.
    """
    signature = ir.FunctionType(ir.VoidType(), [VECTOR] * (varying + fixed))
    function = ir.Function(ir.Module(), signature, "counted")
    builder = ir.IRBuilder(function.append_basic_block())
    arguments = list(function.args)
    needed = set(map(id, emit(ShaRounds(builder), arguments[:varying], arguments[varying:])))
    changing = set(map(id, arguments[:varying]))
    for instruction in builder.block.instructions:
        if any(id(operand) in changing for operand in instruction.operands):
            changing.add(id(instruction))
    total: Mix = Counter()
    for instruction in reversed(builder.block.instructions):
        if id(instruction) in needed:
            needed.update(map(id, instruction.operands))
            if id(instruction) in changing:
                total[_kind(instruction)] += 1
    return Counter({kind: count // STREAMS for kind, count in total.items()})


def _kind(instruction: Any) -> str:
    """Return the kind of an LLVM instruction in a Mix; a reversal of bytes is a shuffle on these CPUs."""
    if instruction.opname != "call":
        return "add" if instruction.opname == "add" else "shuffle"
    name = str(instruction.callee.name)
    return "shuffle" if "bswap" in name else name.removeprefix("llvm.x86.")
