"""Hash batches on the CPU with compiled vector loops, on every core: the cpu backend.

The loops of cpu_sha256 and cpu_keccak release the GIL, so plain threads use all cores. The loops are compiled
at first use and kept in numba's cache on disk. A vector register has several lanes, and a group is the
messages that are hashed together, one per lane. Messages of mixed lengths are sorted by their number of
blocks, so that all lanes of a group end at about the same time. If one message of a group is far longer than
the others, most lanes would be idle: hashlib hashes such a group instead, because hashlib is faster on a
single message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuhash import cpu_keccak, cpu_sha256, cpu_sha_extensions, reference, sha256
from gpuhash.groups import sort_into_groups
from gpuhash.keccak import KECCAK_DOMAIN, RATE_BYTES, SHA3_DOMAIN
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes
from gpuhash.reference import Algorithm
from gpuhash.sharing import share, wanted_threads

Messages = npt.NDArray[np.int64]  # message numbers: positions in a batch
Call = tuple[Callable[..., Any], tuple[Any, ...]]

# Bytes of one task: enough that starting it costs little, few enough that all threads end together.
LEAST_CHUNK_BYTES = 1 << 17
MOST_CHUNK_BYTES = 1 << 21
CHUNKS_PER_THREAD = 8
CHUNK_NONCES = 1 << 18
MESSAGE_COST_BYTES = 64  # what a message costs in addition to its bytes: padding, digest
# A group is hashed on the lanes if they are busy for at least this part of the time; below, hashlib is
# faster. hashlib's Keccak is not much faster than ours, so its groups always stay on the lanes.
BUSY_RATIO = {cpu_sha256.BLOCK_BYTES: 0.4, RATE_BYTES: 0.0}
# The loops for SHA-256: either of SHA instructions or of vector lanes, whichever is faster on this CPU.
sha256_loops: Any = cpu_sha_extensions if cpu_sha_extensions.FASTER else cpu_sha256
NOTHING: Messages = np.empty(0, np.int64)
NO_ORDER: Messages = np.empty(
    (0, 0), np.int64
)  # the compiled loops take the messages in the order of the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Says how a batch is divided: which messages share a group, and which groups make one task of a thread.

    Messages in `alone` are hashed one by one.
    """

    order: Messages  # int64[groups, lanes], -1 for an idle lane; empty: in the order of the batch
    alone: Messages  # messages that hashlib hashes, one at a time
    ranges: list[tuple[int, int]]  # ranges of groups, the dearest first


class CpuBackend:
    """Hashes batches and searches headers on several threads of the CPU.

    The number of threads is `thread_count`; if that is None it is $GPUHASH_THREADS, or else one per usable
    CPU.
    """

    name = "cpu"

    def __init__(self, thread_count: int | None = None) -> None:
        self.thread_count = thread_count or wanted_threads()

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Hash a batch with the algorithm `which`; return uint8[n, 32], one digest per row."""
        digests = np.empty((batch.count, DIGEST_BYTES), np.uint8)
        share(self.tasks(which, batch, digests), self.thread_count)
        return digests

    def tasks(self, which: Algorithm, batch: Batch, digests: Bytes) -> list[Callable[[], None]]:
        """Return the work of `hash_batch` as functions that write their digests into `digests`, uint8[n, 32].

        Threads may run the functions in any order, and more than once.
        """
        if which in (Algorithm.SHA256, Algorithm.SHA256D):
            plan = self._plan(batch, sha256_loops.LANES, cpu_sha256.BLOCK_BYTES, cpu_sha256.LENGTH_BYTES)
            calls = _sha256_calls(which, batch, plan, digests)
        else:
            plan = self._plan(batch, cpu_keccak.LANES, RATE_BYTES, 1)
            calls = _keccak_calls(which, batch, plan, digests)
        # A call holds only the addresses of its messages and digests: the task keeps the arrays alive.
        tasks: list[Callable[[], None]] = [partial(_run, *call, (batch, digests)) for call in calls]
        if len(plan.alone):
            tasks.insert(0, partial(_hash_alone, which, batch, plan.alone, digests))
        return tasks

    def _plan(self, batch: Batch, lanes: int, block_bytes: int, least_padding: int) -> "Plan":
        """Divide a batch into groups of one message per vector lane, and groups into tasks; return the plan.

        `least_padding` is the smallest number of bytes that padding adds to a message.
        """
        if batch.limits is not None:
            return self._plan_mixed(batch.limits, lanes, block_bytes, least_padding)
        length = batch.length or 0
        full, rest = divmod(batch.count, lanes)
        groups, alone = full + (rest > 0), NOTHING
        if rest < BUSY_RATIO[block_bytes] * lanes and length > lanes * block_bytes:
            groups, alone = full, np.arange(batch.count - rest, batch.count)
        group_bytes = lanes * (length + MESSAGE_COST_BYTES)
        step = max(self._chunk_bytes(groups * group_bytes) // group_bytes, 1)
        ranges = [(first, min(first + step, groups)) for first in range(0, groups, step)]
        return Plan(order=NO_ORDER, alone=alone, ranges=ranges)

    def _plan_mixed(self, limits: Messages, lanes: int, block_bytes: int, least_padding: int) -> "Plan":
        """Group messages of different lengths so that all lanes of a group end together; return the plan.

        A group whose lanes would be busy for less than BUSY_RATIO of the time is left to hashlib.
        """
        groups = -(-(len(limits) - 1) // lanes)
        order = np.full((groups, lanes), -1, np.int64)
        longest, busy = np.empty((2, groups), np.int64)
        sort_into_groups(limits, block_bytes, least_padding, order, longest, busy)
        # Even few short messages take less time on the lanes than in calls of hashlib.
        lonely = (busy < BUSY_RATIO[block_bytes] * lanes * longest) & (longest > lanes)
        alone = NOTHING
        if lonely.any():
            alone = order[lonely].reshape(-1)
            alone = alone[alone >= 0]
            order, longest = order[~lonely], longest[~lonely]
        costs = np.cumsum(lanes * (block_bytes * longest + MESSAGE_COST_BYTES))
        total = int(costs[-1]) if len(costs) else 0
        return Plan(order=order, alone=alone, ranges=_cut(costs, self._chunk_bytes(total)))

    def _chunk_bytes(self, total: int) -> int:
        """Return how many bytes one task should hash when the batch has `total` bytes."""
        if self.thread_count == 1:
            return MOST_CHUNK_BYTES
        share_of_thread = total // (CHUNKS_PER_THREAD * self.thread_count)
        return min(max(share_of_thread, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return, rising, the nonces whose hash may reach `target`, judged by its top 32 bits."""
        job = sha256.prepare(header, target)
        found: list[int] = []
        end = start + count
        tasks = [
            partial(_search, job, first, min(first + CHUNK_NONCES, end), found)
            for first in range(start, end, CHUNK_NONCES)
        ]
        share(tasks, self.thread_count)
        return sorted(found)


def _cut(costs: Messages, chunk_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of groups, each of which takes about as long as hashing `chunk_bytes`, the slowest first.

    `costs` are running totals in bytes: the cost of each group plus that of all groups before it. The groups
    are sorted by cost, so the last ones cost most.
    """
    if len(costs) == 0:
        return []
    inner = np.searchsorted(costs, np.arange(chunk_bytes, costs[-1], chunk_bytes)).tolist()
    edges = sorted({0, *inner, len(costs)})
    return list(pairwise(edges))[::-1]


def _hash_alone(which: Algorithm, batch: Batch, messages: Messages, digests: Bytes) -> None:
    data, limits = batch.flat.data, batch.offsets
    for message in messages.tolist():
        digest = reference.FUNCTIONS[which](data[limits[message] : limits[message + 1]])
        digests[message] = np.frombuffer(digest, np.uint8)


def _sha256_calls(which: Algorithm, batch: Batch, plan: Plan, digests: Bytes) -> list[Call]:
    twice = which is Algorithm.SHA256D
    flat, target = batch.flat.ctypes.data, digests.ctypes.data
    limits, length = _layout(batch)
    calls: list[Call] = []
    full = 0
    if length >= 0 and length % cpu_sha256.BLOCK_BYTES == 0:
        full = batch.count // sha256_loops.LANES
        sums = sha256_loops.padding_sums(length)
        calls = [
            (sha256_loops.hash_whole_blocks, (flat, length, sums, first, min(last, full), twice, target))
            for first, last in plan.ranges
        ]
    # Either all groups, or only the last one, some of whose lanes have no message.
    return calls + [
        (
            sha256_loops.hash_groups,
            (flat, limits, length, plan.order, max(first, full), last, twice, target, batch.count),
        )
        for first, last in plan.ranges
        if last > full
    ]


def _keccak_calls(which: Algorithm, batch: Batch, plan: Plan, digests: Bytes) -> list[Call]:
    domain = KECCAK_DOMAIN if which is Algorithm.KECCAK256 else SHA3_DOMAIN
    flat, target = batch.flat.ctypes.data, digests.ctypes.data
    limits, length = _layout(batch)
    calls: list[Call] = []
    full = 0
    if 0 <= length < RATE_BYTES:
        full = batch.count // cpu_keccak.LANES
        padding = cpu_keccak.block_padding(length, domain)
        calls = [
            (cpu_keccak.hash_equal_groups, (flat, length, padding, first, min(last, full), target))
            for first, last in plan.ranges
        ]
    # Either all groups, or only the last one, some of whose lanes have no message.
    return calls + [
        (
            cpu_keccak.hash_groups,
            (flat, limits, length, plan.order, max(first, full), last, domain, target, batch.count),
        )
        for first, last in plan.ranges
        if last > full
    ]


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], _kept: tuple[Batch, Bytes]) -> None:
    function(*arguments)


def _layout(batch: Batch) -> tuple[Messages, int]:
    """Return the offsets and the message length of a batch in the form that the compiled loops take.

    For mixed lengths the length is -1; for equal lengths the offsets are empty.
    """
    if batch.limits is not None:
        return batch.limits, -1
    return NOTHING, batch.length or 0


def _search(job: sha256.HeaderJob, first: int, last: int, found: list[int]) -> None:
    nonces = np.empty(last - first, np.uint32)
    midstate, early, tail = (
        tuple(np.uint32(word) for word in words) for words in (job.midstate, job.early, job.tail)
    )
    top = np.uint32(job.target_top)
    hits = sha256_loops.search_nonces(midstate, early, tail, top, first, last, nonces)
    found.extend(nonces[:hits].tolist())
