"""Compute the most hashes that this machine can do, so that a benchmark can print the share it reached."""

from dataclasses import dataclass
from functools import cache

from gpuhash import cpu, cpu_sha_extensions
from gpuhash.cpu import CpuBackend
from gpuhash.cuda_device import CudaDevice, devices
from gpuhash.kernel_calls import FAST_LENGTH
from gpuhash.measure import cpu_operations, limits, sha_units, vector_units
from gpuhash.reference import Algorithm

BY_UNITS = "measured vector operations/s * lanes / operations per hash (all vector units)"
BY_SHIFTS = "measured shifts/s * lanes / shifts per hash (the vector units that shift)"
BY_SHA = "measured rate of the SHA instructions, additions and shuffles of a hash, none waiting for another"
BY_SHA_256 = (None, Algorithm.SHA256, Algorithm.SHA256D)  # what SHA instructions compute; None: a search


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """Holds the most hashes per second that a backend can do, and the formula that gives this number."""

    hashes_per_s: float
    formula: str


def of(backend: str, which: Algorithm | None, message_bytes: int) -> Ceiling | None:
    """Return the most hashes per second that a backend can do on this machine, and the formula.

    `which` is the algorithm, or None for a header search. On a CPU the result is the lower of two bounds:
    what all vector units allow, and what those units allow that can shift. Where SHA-256 is computed by SHA
    instructions, it is what the units allow for the instructions of a hash. The time that operations wait for
    each other's results is no such bound, because a CPU works on several steps at once; `of_cpu` computes it
    as well. The result is None where there is no model: for the reference backend, and for some GPUs and
    message lengths.
    """
    if backend == "cpu" and uses_sha_instructions(which):
        return Ceiling(hashes_per_s=_by_sha(which, message_bytes), formula=BY_SHA)
    if backend == "cpu":
        bounds = (
            Ceiling(hashes_per_s=_by_units(which, message_bytes), formula=BY_UNITS),
            Ceiling(hashes_per_s=_by_shifts(which, message_bytes), formula=BY_SHIFTS),
        )
        return min(bounds, key=lambda bound: bound.hashes_per_s)
    if backend == "cuda":
        return _of_device(devices()[0], which, message_bytes)
    return None


def uses_sha_instructions(which: Algorithm | None) -> bool:
    """Return whether the cpu backend computes an algorithm (None: a header search) with SHA instructions."""
    return which in BY_SHA_256 and cpu.sha256_loops is cpu_sha_extensions


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
    """Holds the bounds of this CPU for one algorithm, in hashes per second.

    On vector lanes they are `by_units`, what all vector units allow, `by_shifts`, what the units that shift
    allow, and `by_chain`, what waiting for results allows. `by_sha` is the bound of SHA instructions, if the
    CPU has them.
    """

    name: str
    operations: int  # per message in every lane
    shifts: int  # of these, those that shift or rotate
    chain: int  # operations of which each waits for the one before
    by_units: float
    by_shifts: float
    by_chain: float  # if a step began only when the one before has ended
    by_sha: float | None


def of_cpu() -> list[CpuBounds]:
    """Return the bounds of this CPU, measured on all threads, for a header search and for Keccak-256."""
    chained = vector_units.chained_operations_per_s(CpuBackend().thread_count)
    cases = (
        ("header search", None, 80, cpu_operations.search_chain()),
        ("keccak256, 64 bytes", Algorithm.KECCAK256, FAST_LENGTH, cpu_operations.permutation_chain()),
    )
    return [
        CpuBounds(
            name=name,
            operations=cpu_operations.operations_per_hash(which, length),
            shifts=cpu_operations.shifts_per_hash(which, length),
            chain=chain,
            by_units=_by_units(which, length),
            by_shifts=_by_shifts(which, length),
            by_chain=chained * cpu_operations.lanes_of(which) / chain,
            by_sha=_by_sha(which, length) if which is None and cpu_sha_extensions.HAS_SHA else None,
        )
        for name, which, length, chain in cases
    ]


def _by_units(which: Algorithm | None, message_bytes: int) -> float:
    """Return the hashes per second that all vector units of this CPU allow."""
    operations = cpu_operations.operations_per_hash(which, message_bytes)
    return _vector_operations_per_s() * cpu_operations.lanes_of(which) / operations


def _by_shifts(which: Algorithm | None, message_bytes: int) -> float:
    """Return the hashes per second that the vector units which can shift allow on this CPU."""
    shifts = cpu_operations.shifts_per_hash(which, message_bytes)
    return _shifts_per_s() * cpu_operations.lanes_of(which) / shifts


@cache
def _by_sha(which: Algorithm | None, message_bytes: int) -> float:
    """Return the hashes per second that the units of this CPU allow for the SHA instructions of a hash."""
    return sha_units.hashes_per_s(which, message_bytes, CpuBackend().thread_count)


@cache
def _vector_operations_per_s() -> float:
    return vector_units.operations_per_s(CpuBackend().thread_count)


@cache
def _shifts_per_s() -> float:
    return vector_units.shifts_per_s(CpuBackend().thread_count)
