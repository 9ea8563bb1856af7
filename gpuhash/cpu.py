"""The cpu backend: compiled vector loops on every core.

The loops of cpu_sha256 and cpu_keccak release the GIL, so plain threads use all cores. They are compiled
when first used and kept in numba's cache on disk. Mixed lengths are sorted by their number of blocks, so
that the lanes of a group end together; a group in which they would not (one huge message among small
ones) is hashed by hashlib instead, which is faster on a single message.
"""

import os
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from gpuhash import cpu_keccak, cpu_sha256, reference, sha256
from gpuhash.keccak import KECCAK_DOMAIN, RATE_BYTES, SHA3_DOMAIN
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes
from gpuhash.reference import Algorithm
from gpuhash.sharing import share

Messages = npt.NDArray[np.int64]  # numbers of messages in a batch

# Work for one trip of a thread: large enough to hide the trip, small enough to share the end fairly.
CHUNK_BYTES = 1 << 18
CHUNK_NONCES = 1 << 18
MESSAGE_COST_BYTES = 64  # what a message costs beyond its bytes: padding, digest
# A group keeps its lanes when they are busy for at least this part of the time; below, hashlib wins.
BUSY_RATIO = 0.4
NOTHING: Messages = np.empty(0, np.int64)
NO_ORDER: Messages = np.empty((0, 0), np.int64)  # the compiled loops take messages as they come


class CpuBackend:
    """Hashes on all cores this process may use."""

    name = "cpu"

    def __init__(self, thread_count: int | None = None) -> None:
        self.thread_count = thread_count or _usable_cpus()

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return uint8[n, 32], row i the digest of message i."""
        digests = np.empty((batch.count, DIGEST_BYTES), np.uint8)
        share(self.tasks(which, batch, digests), self.thread_count)
        return digests

    def tasks(self, which: Algorithm, batch: Batch, digests: Bytes) -> list[Callable[[], None]]:
        """Return the work of hash_batch in pieces, which threads may do in any order and again."""
        sha2 = which in (Algorithm.SHA256, Algorithm.SHA256D)
        lanes = cpu_sha256.LANES if sha2 else cpu_keccak.LANES
        work = _sha256_groups if sha2 else _keccak_groups
        if batch.limits is None:
            order, alone = NO_ORDER, NOTHING
            step = max(CHUNK_BYTES // (lanes * ((batch.length or 0) + MESSAGE_COST_BYTES)), 1)
            groups = -(-batch.count // lanes)
            ranges = [(first, min(first + step, groups)) for first in range(0, groups, step)]
        else:
            block_bytes = cpu_sha256.BLOCK_BYTES if sha2 else RATE_BYTES
            least_padding = cpu_sha256.LENGTH_BYTES if sha2 else 1
            blocks = (np.diff(batch.limits) + least_padding - 1) // block_bytes + 1
            order, alone = plan_groups(blocks, lanes, BUSY_RATIO if sha2 else 0)
            # The first message of a group is about as long as the others; no place is idle there.
            ranges = _cut(lanes * (block_bytes * blocks[order[:, 0]] + MESSAGE_COST_BYTES))
        tasks: list[Callable[[], None]] = [
            partial(work, which, batch, order, first, last, digests) for first, last in ranges
        ]
        if len(alone):
            tasks.insert(0, partial(_hash_alone, which, batch, alone, digests))
        return tasks

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


def plan_groups(blocks: npt.NDArray[np.int64], lanes: int, busy_ratio: float) -> tuple[Messages, Messages]:
    """Arrange messages of these block counts in groups, int64[groups, lanes], and say which go alone.

    Idle places of a group hold -1. Messages that go alone are in no group: those whose group would keep
    its lanes busy for less than busy_ratio of the time.
    """
    keys = blocks.astype(np.uint16) if blocks.max(initial=0) < 1 << 16 else blocks  # 16 bits: radix sort
    order = np.full(-(-len(blocks) // lanes) * lanes, -1, np.int64)
    order[: len(blocks)] = np.argsort(keys, kind="stable")
    groups = order.reshape(-1, lanes)
    used = np.where(groups >= 0, blocks[groups], 0)
    longest = used.max(axis=1, initial=0)
    # Short messages cost less in lanes than the way to hashlib, however few they are.
    alone = (used.sum(axis=1) < busy_ratio * lanes * longest) & (longest > lanes)
    return groups[~alone], groups[alone][groups[alone] >= 0]


def _cut(costs: Messages) -> list[tuple[int, int]]:
    """Cut groups into ranges of about CHUNK_BYTES; the dearest groups, which are the last, come first."""
    total = np.cumsum(costs)
    chunks = -(-int(total[-1]) // CHUNK_BYTES) if len(total) else 0
    edges = np.searchsorted(total, np.arange(1, chunks) * CHUNK_BYTES)
    edges = np.unique(np.concatenate(([0], edges, [len(costs)])))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))[::-1]


def _hash_alone(which: Algorithm, batch: Batch, messages: Messages, digests: Bytes) -> None:
    data, limits = batch.flat.data, batch.offsets
    for message in messages.tolist():
        digest = reference.FUNCTIONS[which](data[limits[message] : limits[message + 1]])
        digests[message] = np.frombuffer(digest, np.uint8)


def _sha256_groups(  # noqa: PLR0917 - one task, built by position in hash_batch
    which: Algorithm, batch: Batch, order: Messages, first: int, last: int, digests: Bytes
) -> None:
    limits, length = _layout(batch)
    twice = which is Algorithm.SHA256D
    flat, target = batch.flat.ctypes.data, digests.ctypes.data
    cpu_sha256.hash_groups(flat, limits, length, order, first, last, twice, target, batch.count)


def _keccak_groups(  # noqa: PLR0917 - one task, built by position in hash_batch
    which: Algorithm, batch: Batch, order: Messages, first: int, last: int, digests: Bytes
) -> None:
    limits, length = _layout(batch)
    flat, target = batch.flat.ctypes.data, digests.ctypes.data
    domain = KECCAK_DOMAIN if which is Algorithm.KECCAK256 else SHA3_DOMAIN
    if 0 <= length < RATE_BYTES:
        full = min(last, batch.count // cpu_keccak.LANES)
        padding = cpu_keccak.block_padding(length, domain)
        cpu_keccak.hash_equal_groups(flat, length, padding, first, full, target)
        first = full
    if first < last:
        cpu_keccak.hash_groups(flat, limits, length, order, first, last, domain, target, batch.count)


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


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
