"""Measure which share of its limit a loop of the cpu backend reaches: python -m tests.gpuhash.bench_share.

The loop and the vector units of one thread are timed in turn, both in the CPU time of the thread, so that
other programs disturb the share less than a rate. Printed are the median and the quartiles of ROUNDS pairs.
"""

import statistics
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np

from gpuhash import cpu, cpu_sha256, cpu_sha_extensions
from gpuhash.cpu import CpuBackend
from gpuhash.measure import ceiling, sha_units, vector_units
from gpuhash.measure.cpu_operations import lanes_of, operations_per_hash
from gpuhash.packing import DIGEST_BYTES, pack
from gpuhash.reference import Algorithm

ROUNDS = 60
NONCES = 1 << 17
MESSAGES = 1 << 13
MESSAGE_BYTES = 64
UNIT_ROUNDS = 20_000
SHA_ROUNDS = 100_000


def thread_s(work: Callable[[], object]) -> float:
    """Return the CPU time that a call takes."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def work_of(which: Algorithm | None) -> Callable[[], None]:
    """Return a call that hashes MESSAGES messages on one thread; for None one that searches NONCES nonces."""
    backend = CpuBackend(thread_count=1)
    batch = pack(np.random.default_rng(1).integers(0, 256, (MESSAGES, MESSAGE_BYTES), np.uint8))
    digests = np.empty((MESSAGES, DIGEST_BYTES), np.uint8)
    tasks = [] if which is None else backend.tasks(which, batch, digests)

    def hash_all() -> None:
        if which is None:
            backend.search(bytes(80), 0, 0, NONCES)
        for task in tasks:
            task()

    return hash_all


def main() -> None:
    """Print one line per loop; for SHA-256 both kinds of loops, if this CPU has SHA instructions."""
    for loops in (cpu_sha256, *([cpu_sha_extensions] if cpu_sha_extensions.HAS_SHA else [])):
        for which in (None, Algorithm.SHA256D, Algorithm.SHA256):
            measure(which, loops)
    for which in (Algorithm.KECCAK256, Algorithm.SHA3_256):
        measure(which, cpu.sha256_loops)


def measure(which: Algorithm | None, loops: ModuleType) -> None:
    """Time a loop and the units in turn, and print the share; `which` is None for a header search."""
    cpu.sha256_loops = loops
    name = loops.__name__.removeprefix("gpuhash.") if which in ceiling.BY_SHA_256 else "cpu_keccak"
    hash_all = work_of(which)
    spin, hashes_of_spin = units(which)
    hashes = NONCES if which is None else MESSAGES
    shares, rates = [], []
    for work in (hash_all, spin):
        work()
    for _ in range(ROUNDS):
        most = hashes_of_spin / thread_s(spin)
        rates.append(hashes / thread_s(hash_all))
        shares.append(rates[-1] / most)
    lower, median, upper = statistics.quantiles(shares, n=4)
    print(
        f"{which or 'header search'}, {name}: {statistics.median(rates) / 1e6:.1f} MH/s on a thread, "
        f"{median:.0%} of the limit of the units (quartiles {lower:.0%} and {upper:.0%})"
    )


def units(which: Algorithm | None) -> tuple[Callable[[], None], float]:
    """Return a loop that keeps the units busy, and how many hashes its work would be at most."""
    if ceiling.uses_sha_instructions(which):
        state = np.ones((sha_units.CHAINS, 4), np.uint32)
        spin = sha_units.spin_of(which, MESSAGE_BYTES)
        return lambda: spin(SHA_ROUNDS, state), SHA_ROUNDS
    lanes = np.zeros((vector_units.CHAINS, cpu_sha256.LANES), np.uint32)
    operations = UNIT_ROUNDS * vector_units.CHAINS * vector_units.STEPS * 2
    hashes = operations * lanes_of(which) / operations_per_hash(which, MESSAGE_BYTES)
    return lambda: vector_units._spin_often(UNIT_ROUNDS, lanes), hashes


if __name__ == "__main__":
    main()
