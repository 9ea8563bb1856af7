"""The cpu backend: compiled vector loops on every core.

The loops of cpu_sha256 and cpu_keccak release the GIL, so plain threads use all cores. They are compiled
when first used and kept in numba's cache on disk. Mixed lengths are sorted by their number of blocks, so
that the lanes of a group end together; a group in which they would not (one huge message among small
ones) is hashed by hashlib instead, which is faster on a single message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuhash import cpu_keccak, cpu_sha256, reference, sha256
from gpuhash.groups import sort_into_groups
from gpuhash.keccak import KECCAK_DOMAIN, RATE_BYTES, SHA3_DOMAIN
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes
from gpuhash.reference import Algorithm
from gpuhash.sharing import share, wanted_threads

Messages = npt.NDArray[np.int64]  # numbers of messages in a batch
Call = tuple[Callable[..., Any], tuple[Any, ...]]

# Work for one trip of a thread: large enough to hide the trip, small enough to share the end fairly.
LEAST_CHUNK_BYTES = 1 << 17
MOST_CHUNK_BYTES = 1 << 21
CHUNKS_PER_THREAD = 8
CHUNK_NONCES = 1 << 18
MESSAGE_COST_BYTES = 64  # what a message costs beyond its bytes: padding, digest
# A group keeps its lanes when they are busy for at least this part of the time; below, hashlib wins.
# Keccak is not much faster there, so it stays.
BUSY_RATIO = {cpu_sha256.BLOCK_BYTES: 0.4, RATE_BYTES: 0.0}
NOTHING: Messages = np.empty(0, np.int64)
NO_ORDER: Messages = np.empty((0, 0), np.int64)  # the compiled loops take messages as they come


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which messages are hashed together, and what is one piece of work."""

    order: Messages  # int64[groups, lanes], -1 for an idle place; empty: as they come
    alone: Messages  # messages for hashlib
    ranges: list[tuple[int, int]]  # of groups, the dearest first


class CpuBackend:
    """Hashes on thread_count threads; without one, $GPUHASH_THREADS or one per usable CPU decides."""

    name = "cpu"

    def __init__(self, thread_count: int | None = None) -> None:
        self.thread_count = thread_count or wanted_threads()

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return uint8[n, 32], row i the digest of message i."""
        digests = np.empty((batch.count, DIGEST_BYTES), np.uint8)
        share(self.tasks(which, batch, digests), self.thread_count)
        return digests

    def tasks(self, which: Algorithm, batch: Batch, digests: Bytes) -> list[Callable[[], None]]:
        """Return the work of hash_batch in pieces, which threads may do in any order and again."""
        if which in (Algorithm.SHA256, Algorithm.SHA256D):
            plan = self._plan(batch, cpu_sha256.LANES, cpu_sha256.BLOCK_BYTES, cpu_sha256.LENGTH_BYTES)
            calls = _sha256_calls(which, batch, plan, digests)
        else:
            plan = self._plan(batch, cpu_keccak.LANES, RATE_BYTES, 1)
            calls = _keccak_calls(which, batch, plan, digests)
        # A call knows its messages and digests by address; they are kept for as long as it is.
        tasks: list[Callable[[], None]] = [partial(_run, *call, (batch, digests)) for call in calls]
        if len(plan.alone):
            tasks.insert(0, partial(_hash_alone, which, batch, plan.alone, digests))
        return tasks

    def _plan(self, batch: Batch, lanes: int, block_bytes: int, least_padding: int) -> "Plan":
        """Arrange messages in groups and groups in ranges."""
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
        """Arrange messages of different lengths so that the lanes of a group end together.

        Messages whose group would keep its lanes busy for less than BUSY_RATIO of the time go alone.
        """
        groups = -(-(len(limits) - 1) // lanes)
        order = np.full((groups, lanes), -1, np.int64)
        longest, busy = np.empty((2, groups), np.int64)
        sort_into_groups(limits, block_bytes, least_padding, order, longest, busy)
        # Short messages cost less in lanes than the way to hashlib, however few they are.
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
        """How much of a batch one task takes."""
        if self.thread_count == 1:
            return MOST_CHUNK_BYTES
        share_of_thread = total // (CHUNKS_PER_THREAD * self.thread_count)
        return min(max(share_of_thread, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return nonces in [start, start + count) whose hash may be at most target, rising."""
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
    """Cut groups into ranges of about chunk_bytes; the dearest groups, which are the last, come first.

    costs are those of each group and all before it.
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
    return [
        (
            cpu_sha256.hash_groups,
            (flat, limits, length, plan.order, first, last, twice, target, batch.count),
        )
        for first, last in plan.ranges
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
    # All groups, or the last one, whose lanes are not all taken.
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
    """Offsets and length as the compiled loops take them: one of the two is void."""
    if batch.limits is not None:
        return batch.limits, -1
    return NOTHING, batch.length or 0


def _search(job: sha256.HeaderJob, first: int, last: int, found: list[int]) -> None:
    nonces = np.empty(last - first, np.uint32)
    midstate, early, tail = (
        tuple(np.uint32(word) for word in words) for words in (job.midstate, job.early, job.tail)
    )
    top = np.uint32(job.target_top)
    hits = cpu_sha256.search_nonces(midstate, early, tail, top, first, last, nonces)
    found.extend(nonces[:hits].tolist())
