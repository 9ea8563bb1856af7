"""Measure which share of its limit a loop of the cpu backend reaches: python -m tests.gpuhash.bench_share.

The loop and the vector units of one thread are timed in turn, both in the CPU time of the thread, so that
other programs disturb the share less than a rate. Printed are the median and the quartiles of ROUNDS pairs.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from gpuhash.cpu import CpuBackend
from gpuhash.measure import vector_units
from gpuhash.measure.cpu_operations import lanes_of, operations_per_hash
from gpuhash.packing import DIGEST_BYTES, pack
from gpuhash.reference import Algorithm

ROUNDS = 60
NONCES = 1 << 17
MESSAGES = 1 << 13
MESSAGE_BYTES = 64
UNIT_ROUNDS = 20_000


def thread_s(work: Callable[[], object]) -> float:
    """Return the CPU time that a call takes."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def main() -> None:
    """Print one line per loop."""
    backend = CpuBackend(thread_count=1)
    state = np.zeros((vector_units.CHAINS, lanes_of(None)), np.uint32)
    unit_operations = UNIT_ROUNDS * vector_units.CHAINS * vector_units.STEPS * 2
    batch = pack(np.random.default_rng(1).integers(0, 256, (MESSAGES, MESSAGE_BYTES), np.uint8))
    digests = np.empty((MESSAGES, DIGEST_BYTES), np.uint8)
    for which in (None, *Algorithm):
        tasks = [] if which is None else backend.tasks(which, batch, digests)

        def hash_all(tasks: list[Callable[[], None]] = tasks) -> None:
            if not tasks:
                backend.search(bytes(80), 0, 0, NONCES)
            for task in tasks:
                task()

        hashes = MESSAGES if tasks else NONCES
        operations = hashes * operations_per_hash(which, MESSAGE_BYTES) / lanes_of(which)
        shares, rates = [], []
        hash_all()
        for _ in range(ROUNDS):
            units_s = thread_s(lambda: vector_units._spin_often(UNIT_ROUNDS, state))
            loop_s = thread_s(hash_all)
            shares.append(operations / loop_s / (unit_operations / units_s))
            rates.append(hashes / loop_s / 1e6)
        lower, median, upper = statistics.quantiles(shares, n=4)
        print(
            f"{which or 'header search'}: {statistics.median(rates):.1f} MH/s on a thread, "
            f"{median:.0%} of the limit of the units (quartiles {lower:.0%} and {upper:.0%})"
        )


if __name__ == "__main__":
    main()
