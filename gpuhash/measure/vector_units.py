"""Measure how many operations per second the vector units of this CPU do.

No program that uses these vectors can do more. Every unit can do additions and XORs; rotations need a unit
that shifts, of which many CPUs have fewer. One chain in which every operation waits for the one before gives
the clock divided by the latency. Each thread counts only the CPU time that it got.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from gpuhash import cpu_sha256
from gpuhash.compiled import compiled
from gpuhash.lanes import INT64, Lanes, intrinsic
from gpuhash.measure.cpu_operations import ROTATION_SHIFTS
from gpuhash.sharing import share

CHAINS = 12  # independent chains: more than ports times latency of any CPU
STEPS = 8
ROUNDS = 40_000
REPEATS = 7
# Emit two operations on a vector; the last operand is a vector that the compiler does not know.
Step = Callable[[Lanes, Any, Any], Any]


def _add_and_xor(lanes: Lanes, vector: Any, unknown: Any) -> Any:
    """Emit an addition and an XOR, which every vector unit can do; return the vector.

    The compiler cannot merge operations that alternate so. Both take the same operand, so that with the
    chains all fits 16 registers and no operation waits for memory.
    """
    return lanes.xor(lanes.add(vector, unknown), unknown)


def _rotate_twice(lanes: Lanes, vector: Any, unknown: Any) -> Any:
    """Emit two rotations by a distance that the compiler does not know, so that it cannot merge them.

    Returns the vector.
    """
    return lanes.rotate_left_by(lanes.rotate_left_by(vector, unknown), unknown)


def _generate_spin(context: Any, builder: ir.IRBuilder, operands: Any, n_chains: int, emit: Step) -> Any:
    """Emit code that does rounds * n_chains * STEPS * 2 vector operations, all in registers.

    The operands are `rounds` and `state`, the address of u32[n_chains][lanes], loaded first and stored last.
    """
    rounds, state = operands
    lanes = Lanes(builder, 32)
    unknown = lanes.splat(builder.trunc(rounds, lanes.word))
    before = [INT64(0), *(lanes.load(state, i) for i in range(n_chains))]
    start, loop = builder.block, builder.append_basic_block("spin")
    end = builder.append_basic_block("spun")
    builder.branch(loop)
    builder.position_at_end(loop)
    carried = [builder.phi(value.type) for value in before]
    chains = carried[1:]
    for _ in range(STEPS):
        chains = [emit(lanes, chain, unknown) for chain in chains]
    after = [builder.add(carried[0], INT64(1)), *chains]
    for phi, first, next_value in zip(carried, before, after, strict=True):
        phi.add_incoming(first, start)
        phi.add_incoming(next_value, loop)
    builder.cbranch(builder.icmp_signed("<", after[0], rounds), loop, end)
    builder.position_at_end(end)
    for i, chain in enumerate(chains):
        lanes.store(chain, state, i)
    return context.get_dummy_value()


@intrinsic
def _spin(_typing: Any, rounds: Any, state: Any) -> Any:
    """Emit CHAINS chains of operations that do not wait for each other, so that all vector units are busy."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return _generate_spin(context, builder, arguments, CHAINS, _add_and_xor)

    return types.void(rounds, state), generate


@intrinsic
def _spin_chain(_typing: Any, rounds: Any, state: Any) -> Any:
    """Emit one chain of vector operations, in which each waits for the one before."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return _generate_spin(context, builder, arguments, 1, _add_and_xor)

    return types.void(rounds, state), generate


@intrinsic
def _spin_rotations(_typing: Any, rounds: Any, state: Any) -> Any:
    """Emit CHAINS chains of rotations that do not wait for each other, so that all units that shift work."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
        return _generate_spin(context, builder, arguments, CHAINS, _rotate_twice)

    return types.void(rounds, state), generate


@compiled
def _spin_often(rounds: int, state: Any) -> Any:
    _spin(rounds, state.ctypes.data)


@compiled
def _spin_chain_often(rounds: int, state: Any) -> Any:
    _spin_chain(rounds, state.ctypes.data)


@compiled
def _spin_rotations_often(rounds: int, state: Any) -> Any:
    _spin_rotations(rounds, state.ctypes.data)


def operations_per_s(thread_count: int) -> float:
    """Measure and return the vector operations per second of `thread_count` threads that work together.

    Each thread counts only the CPU time that it got, so other programs do not lower the figure.
    """
    return _sum_of_threads(thread_count, _spin_often, CHAINS)


def chained_operations_per_s(thread_count: int) -> float:
    """Measure and return the vector operations per second of threads in which each waits for the one before.

    For one thread this is the clock divided by the latency of an operation.
    """
    return _sum_of_threads(thread_count, _spin_chain_often, 1)


def shifts_per_s(thread_count: int) -> float:
    """Measure and return the shifts per second that vector units can do, on `thread_count` threads.

    A rotation counts as ROTATION_SHIFTS shifts.
    """
    return _sum_of_threads(thread_count, _spin_rotations_often, CHAINS) * ROTATION_SHIFTS


def _sum_of_threads(thread_count: int, spin: Callable[..., None], n_chains: int) -> float:
    state = np.zeros((n_chains, cpu_sha256.LANES), np.uint32)
    return rounds_per_s(thread_count, spin, ROUNDS, state) * n_chains * STEPS * 2


def rounds_per_s(
    thread_count: int, spin: Callable[[int, Any], None], rounds: int, state: npt.NDArray[np.uint32]
) -> float:
    """Return how many rounds per second of CPU time a loop does on all threads together.

    `spin(n, state)` does n rounds and begins and ends with `state`, of which each thread gets a copy.
    """
    rates: list[float] = []
    task = partial(_measure_thread, rates, spin, rounds, state)
    share([task] * thread_count, thread_count)
    return sum(rates)


def _measure_thread(
    rates: list[float], spin: Callable[[int, Any], None], rounds: int, state: npt.NDArray[np.uint32]
) -> None:
    own = state.copy()
    spin(1, own)
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.thread_time()
        spin(rounds, own)
        best = min(best, time.thread_time() - begin)
    rates.append(rounds / best)
