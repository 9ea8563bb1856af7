"""Assign messages to groups and to SIMD lanes: compiled loops that SHA-256 and Keccak on the CPU share.

A group is the messages that are hashed together, one per lane of a vector register.
"""

from typing import Any

import numpy as np
from numba import njit

from gpuhash.compiled import compiled

# Rows of a lane table, int64[3, lanes]: address of each lane's message, its length, address of its digest.
STARTS, LENGTHS, TARGETS = 0, 1, 2
BINS = 4096  # sorting tells this many different block counts apart
IDLE = -(1 << 40)  # the length of a lane without a message: far below any real length


@compiled
def sort_into_groups(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    limits: Any, block_bytes: Any, least_padding: Any, order: Any, longest: Any, busy: Any
) -> Any:
    """Sort messages into groups of about equal numbers of blocks, the shortest messages first.

    Message i is the bytes from limits[i] to limits[i + 1]. The results go into three arrays: order,
    int64[groups, lanes], which the caller has filled with -1, gets the message numbers; longest,
    int64[groups], gets the number of blocks of the longest message of each group; busy, int64[groups], gets
    the number of blocks of all its messages together. Messages of BINS blocks and more are sorted as equally
    long.
    """
    lane_count = order.shape[1]
    sorted_messages = order.reshape(-1)
    blocks = np.empty(len(limits) - 1, np.int64)
    ends = np.zeros(BINS, np.int64)
    for message in range(len(blocks)):
        blocks[message] = (limits[message + 1] - limits[message] + least_padding - 1) // block_bytes + 1
        ends[min(blocks[message], BINS - 1)] += 1
    for length in range(1, BINS):
        ends[length] += ends[length - 1]
    for message in range(len(blocks) - 1, -1, -1):
        length = min(blocks[message], BINS - 1)
        ends[length] -= 1
        sorted_messages[ends[length]] = message
    longest[:] = 0
    busy[:] = 0
    for group in range(len(longest)):
        for position in range(group * lane_count, min((group + 1) * lane_count, len(blocks))):
            longest[group] = max(longest[group], blocks[sorted_messages[position]])
            busy[group] += blocks[sorted_messages[position]]


@njit(nogil=True)
def assign_lanes(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    lane_table: Any,
    flat: int,
    offsets: Any,
    length: Any,
    order: Any,
    group: Any,
    digests: int,
    count: int,
    discard: int,
) -> Any:
    """Write into `lane_table` which message each SIMD lane of a group hashes; return the longest length.

    `flat`, `digests` and `discard` are addresses. `discard` is that of 32 bytes to which lanes without a
    message write. The other arguments are those of `cpu_sha256.hash_groups`.
    """
    lane_count = lane_table.shape[1]
    longest = 0
    for lane in range(lane_count):
        message = order[group, lane] if order.size else group * lane_count + lane
        if 0 <= message < count:
            start = offsets[message] if length < 0 else message * length
            size = offsets[message + 1] - start if length < 0 else length
            lane_table[STARTS, lane] = flat + start
            lane_table[LENGTHS, lane] = size
            lane_table[TARGETS, lane] = digests + 32 * message
            longest = max(longest, size)
        else:
            lane_table[STARTS, lane] = flat
            lane_table[LENGTHS, lane] = IDLE
            lane_table[TARGETS, lane] = discard
    return longest


@njit(nogil=True)
def shortest_length(lane_table: Any) -> Any:
    """Return the smallest message length in bytes of any SIMD lane; it is below 0 when a lane is idle."""
    shortest = lane_table[LENGTHS, 0]
    for lane in range(1, lane_table.shape[1]):
        shortest = min(shortest, lane_table[LENGTHS, lane])
    return shortest


@njit(nogil=True)
def some_end_before(lane_table: Any, limit: Any) -> Any:
    """Return whether a SIMD lane whose digest is not yet written has a message shorter than `limit` bytes."""
    found = False
    for lane in range(lane_table.shape[1]):
        found |= IDLE < lane_table[LENGTHS, lane] < limit
    return found


@njit(nogil=True)
def retire_lanes(lane_table: Any, limit: Any, discard: int) -> Any:
    """Make each SIMD lane idle whose message is shorter than `limit` bytes: its digest has been written."""
    for lane in range(lane_table.shape[1]):
        if lane_table[LENGTHS, lane] < limit:
            lane_table[LENGTHS, lane] = IDLE
            lane_table[TARGETS, lane] = discard
