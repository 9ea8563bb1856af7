"""Compute the most hashes that this CPU can do, from its vector operations per second and per hash.

  hashes/s = measured vector operations/s * lanes / operations per hash

The rate is measured on all threads with additions and XORs that do not wait for each other; no program that
uses these vectors can do more. The operations are counted in the code that is emitted, without those that are
the same for every message, that add nothing, or whose result is not used.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from gpuhash import cpu_keccak, cpu_sha256
from gpuhash.compiled import compiled
from gpuhash.cpu_keccak import DIGEST_WORDS, STATE_WORDS
from gpuhash.keccak import RATE_BYTES
from gpuhash.lanes import AVX512, INT64, VECTOR_BITS, Lanes, intrinsic
from gpuhash.reference import Algorithm
from gpuhash.sharing import share

FORMULA = "measured vector operations/s * lanes / operations per hash"
CHAINS = 12  # independent chains: more than ports times latency of any CPU
STEPS = 8
ROUNDS = 40_000
REPEATS = 7
# A rotation without an instruction of its own costs two shifts and an OR.
ROTATION_OPERATIONS = 1 if AVX512 else 3


@intrinsic
def _spin(_typing: Any, rounds: Any, state: Any) -> Any:
    """Emit code that does rounds * CHAINS * STEPS * 2 vector operations, all in registers.

    `state` is the address of u32[CHAINS][lanes], which is loaded before and stored after.
    """

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        rounds, state = arguments
        lanes = Lanes(builder, 32)
        before = [INT64(0), *(lanes.load(state, i) for i in range(CHAINS))]
        start, loop = builder.block, builder.append_basic_block("spin")
        end = builder.append_basic_block("spun")
        builder.branch(loop)
        builder.position_at_end(loop)
        carried = [builder.phi(value.type) for value in before]
        chains = carried[1:]
        for step in range(STEPS):
            # An addition and an XOR in turn: the compiler cannot merge them into one operation.
            chains = [
                lanes.xor(lanes.add(chain, lanes.constant(0x9E3779B9 + step)), lanes.constant(0x55555555))
                for chain in chains
            ]
        after = [builder.add(carried[0], INT64(1)), *chains]
        for phi, first, next_value in zip(carried, before, after, strict=True):
            phi.add_incoming(first, start)
            phi.add_incoming(next_value, loop)
        builder.cbranch(builder.icmp_signed("<", after[0], rounds), loop, end)
        builder.position_at_end(end)
        for i, chain in enumerate(chains):
            lanes.store(chain, state, i)
        return context.get_dummy_value()

    return types.void(rounds, state), generate


@compiled
def _spin_often(rounds: int, state: Any) -> Any:
    _spin(rounds, state.ctypes.data)


def operations_per_s(thread_count: int) -> float:
    """Measure the vector operations per second of thread_count threads that work at the same time.

    Each thread counts only the CPU time that it got, so other programs do not lower the figure.
    """
    rates: list[float] = []
    share([partial(_measure_thread, rates)] * thread_count, thread_count)
    return sum(rates)


def _measure_thread(rates: list[float]) -> None:
    state = np.zeros((CHAINS, cpu_sha256.LANES), np.uint32)
    _spin_often(1, state)
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.thread_time()
        _spin_often(ROUNDS, state)
        best = min(best, time.thread_time() - begin)
    rates.append(ROUNDS * CHAINS * STEPS * 2 / best)


def operations_per_hash(which: Algorithm | None, length: int) -> int:
    """Return the vector operations that hash one message of `length` bytes in every lane.

    `which` is the algorithm, or None for one step of a header search.
    """
    if which is None:
        return _search_operations()
    if which in (Algorithm.SHA256, Algorithm.SHA256D):
        blocks = -(-(length + cpu_sha256.LENGTH_BYTES) // cpu_sha256.BLOCK_BYTES)
        again = _rehash_operations() if which is Algorithm.SHA256D else 0
        return blocks * _compress_operations() + again
    return length // RATE_BYTES * _permute_operations(STATE_WORDS) + _permute_operations(DIGEST_WORDS)


def lanes_of(which: Algorithm | None) -> int:
    """Return how many messages are hashed together with an algorithm; None stands for the header search."""
    return cpu_keccak.LANES if which in (Algorithm.KECCAK256, Algorithm.SHA3_256) else cpu_sha256.LANES


@cache
def _search_operations() -> int:
    def emit(lanes: Lanes, nonce: list[Any], fixed: list[Any]) -> list[Any]:
        return [cpu_sha256.search_top(lanes, fixed[:8], fixed[8:16], fixed[16:], nonce[0])]

    return _count(emit, bits=32, varying=1, fixed=19)


@cache
def _compress_operations() -> int:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_sha256.Rounds(lanes).compress(words[:8], words[8:])

    return _count(emit, bits=32, varying=24)


@cache
def _rehash_operations() -> int:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_sha256.Rounds(lanes).hash_digest(words)

    return _count(emit, bits=32, varying=8)


@cache
def _permute_operations(wanted: int) -> int:
    def emit(lanes: Lanes, words: list[Any], _fixed: list[Any]) -> list[Any]:
        return cpu_keccak.permute(lanes, words, wanted)

    return _count(emit, bits=64, varying=STATE_WORDS)


def _count(
    emit: Callable[[Lanes, list[Any], list[Any]], list[Any]], *, bits: int, varying: int, fixed: int = 0
) -> int:
    """Count the emitted vector operations that the results need and that depend on a varying word.

    `emit` gets `varying` vectors that differ per message and `fixed` vectors that do not.
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
    users = Counter(map(id, results))
    needed = []
    for instruction in reversed(builder.block.instructions):
        if users[id(instruction)]:
            needed.append(instruction)
            users.update(map(id, instruction.operands))
    # A sum that is only a term of another sum is counted as part of the other sum.
    parts = {
        id(operand)
        for instruction in needed
        for operand in instruction.operands
        if instruction.opname == _opname(operand) == "add" and users[id(operand)] == 1
    }
    return sum(_cost(one, parts, changing) for one in needed if id(one) in changing - parts)


def _cost(instruction: Any, parts: set[int], changing: set[int]) -> int:
    """Return the vector operations of one instruction; all fixed terms of a sum count as one term.

    `parts` and `changing` are ids of instructions: sums counted within other sums, and values that vary.
    """
    if instruction.opname == "call" and "fshl" in instruction.callee.name:
        return ROTATION_OPERATIONS
    if instruction.opname != "add":
        return 1
    terms = _terms(instruction, parts)
    zeros = [0] * instruction.type.count
    varying = [term for term in terms if id(term) in changing]
    fixed = [term for term in terms if id(term) not in changing and getattr(term, "constant", ()) != zeros]
    return len(varying) - 1 + bool(fixed)


def _terms(instruction: Any, parts: set[int]) -> list[Any]:
    """Return the terms of a sum, with the terms of the sums inside it."""
    return [
        term
        for operand in instruction.operands
        for term in (_terms(operand, parts) if id(operand) in parts else [operand])
    ]


def _opname(operand: Any) -> str:
    return getattr(operand, "opname", "")
