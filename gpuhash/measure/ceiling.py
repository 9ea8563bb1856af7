"""Compute the most hashes that this machine can do, so that a benchmark can print the share it reached."""

from dataclasses import dataclass
from functools import cache

from gpuhash.cpu import CpuBackend
from gpuhash.cuda_device import CudaDevice, devices
from gpuhash.kernel_calls import FAST_LENGTH
from gpuhash.measure import cpu_operations, limits, vector_units
from gpuhash.reference import Algorithm

CPU_FORMULA = "measured vector operations/s * lanes / operations per hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Holds the most hashes per second that a backend can do, and the formula that gives this number."""

    hashes_per_s: float
    formula: str


def of(backend: str, which: Algorithm | None, message_bytes: int) -> Ceiling | None:
    """Return the most hashes per second that a backend can do on this machine, and the formula.

    `which` is the algorithm, or None for a header search. The result is None where there is no model: for the
    reference backend, and for some GPUs and message lengths.
    """
    if backend == "cpu":
        operations = cpu_operations.operations_per_hash(which, message_bytes)
        rate = _vector_operations_per_s() * cpu_operations.lanes_of(which) / operations
        return Ceiling(hashes_per_s=rate, formula=CPU_FORMULA)
    if backend == "cuda":
        return _of_device(devices()[0], which, message_bytes)
    return None


def _of_device(device: CudaDevice, which: Algorithm | None, message_bytes: int) -> Ceiling | None:
    kernel = _kernel(which, message_bytes)
    if kernel is None or not device.capability.isdigit():
        return None
    architecture = limits.nearest(int(device.capability))
    for limit in limits.for_architecture(architecture):
        if limit.kernel == kernel and limit.variant == device.variant(limit.module).name:
            return Ceiling(
                hashes_per_s=limit.hashes_per_s(device.sm_count, device.clock_mhz),
                formula=f"{limits.FORMULA}; {device.sm_count} SMs, {device.clock_mhz:.0f} MHz",
            )
    return None


def _kernel(which: Algorithm | None, message_bytes: int) -> str | None:
    """Return the name of the kernel whose instructions were counted for this case; None if there is none."""
    if which is None:
        return "search"
    if message_bytes != FAST_LENGTH or which is Algorithm.SHA256:
        return None
    return "merkle_nodes" if which is Algorithm.SHA256D else "hash_64_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuBounds:
    """Holds three bounds of this CPU for one algorithm, in hashes per second: units, shifts, waiting."""

    name: str
    operations: int  # per message in every lane
    shifts: int  # of these, those that shift or rotate
    chain: int  # operations of which each waits for the one before
    by_units: float
    by_shifts: float
    by_chain: float  # if a step began only when the one before has ended


def of_cpu() -> list[CpuBounds]:
    """Return the bounds of this CPU, measured on all threads, for a header search and for Keccak-256."""
    cpu_threads = CpuBackend().thread_count
    shifted = vector_units.shifts_per_s(cpu_threads)
    chained = vector_units.chained_operations_per_s(cpu_threads)
    search = (cpu_operations.search_shifts(), cpu_operations.search_chain())
    keccak = (cpu_operations.permutation_shifts(), cpu_operations.permutation_chain())
    cases = (
        ("header search", None, 80, *search),
        ("keccak256, 64 bytes", Algorithm.KECCAK256, FAST_LENGTH, *keccak),
    )
    return [
        CpuBounds(
            name=name,
            operations=(operations := cpu_operations.operations_per_hash(which, length)),
            shifts=shifts,
            chain=chain,
            by_units=_vector_operations_per_s() * (lanes := cpu_operations.lanes_of(which)) / operations,
            by_shifts=shifted * lanes / shifts,
            by_chain=chained * lanes / chain,
        )
        for name, which, length, shifts, chain in cases
    ]


@cache
def _vector_operations_per_s() -> float:
    return vector_units.operations_per_s(CpuBackend().thread_count)
