"""Assign messages to groups and SIMD lanes: compiled loops that both hashes of the cpu backend share."""

from typing import Any

import numpy as np
from numba import njit

from gpuhash.compiled import compiled

# Rows of places, int64[3, lanes]: address of the message, its length, address of its digest.
STARTS, LENGTHS, TARGETS = 0, 1, 2
BINS = 4096  # sorting distinguishes this many block counts
IDLE = -(1 << 40)  # the length of a lane without a message: far below any real length


@compiled
def sort_into_groups(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    limits: Any, block_bytes: Any, least_padding: Any, order: Any, longest: Any, busy: Any
) -> Any:
    """Sort messages into groups with about the same number of blocks, fewest first.

    Message i is the bytes from limits[i] to limits[i + 1]. order, int64[groups, lanes] and full of -1, gets
    their numbers; longest and busy, int64[groups], the blocks of the longest message of a group and of all
    its messages together. Messages of BINS blocks and more count as equally long.
    """
    lane_count = order.shape[1]
    places = order.reshape(-1)
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
        places[ends[length]] = message
    longest[:] = 0
    busy[:] = 0
    for group in range(len(longest)):
        for place in range(group * lane_count, min((group + 1) * lane_count, len(blocks))):
            longest[group] = max(longest[group], blocks[places[place]])
            busy[group] += blocks[places[place]]


@njit(nogil=True)
def assign_lanes(  # noqa: PLR0917 - a compiled loop takes what it needs by position
    places: Any,
    flat: int,
    offsets: Any,
    length: Any,
    order: Any,
    group: Any,
    digests: int,
    count: int,
    nowhere: int,
) -> Any:
    """Enter in places which messages a group holds; return the greatest length.

    flat, digests and nowhere are addresses, the last of 32 bytes to which lanes without a message write.
    """
    lane_count = places.shape[1]
    longest = 0
    for lane in range(lane_count):
        message = order[group, lane] if order.size else group * lane_count + lane
        if 0 <= message < count:
            start = offsets[message] if length < 0 else message * length
            size = offsets[message + 1] - start if length < 0 else length
            places[STARTS, lane] = flat + start
            places[LENGTHS, lane] = size
            places[TARGETS, lane] = digests + 32 * message
            longest = max(longest, size)
        else:
            places[STARTS, lane] = flat
            places[LENGTHS, lane] = IDLE
            places[TARGETS, lane] = nowhere
    return longest


@njit(nogil=True)
def shortest_length(places: Any) -> Any:
    """Return the smallest length of any lane; it is below 0 when a lane is idle."""
    shortest = places[LENGTHS, 0]
    for lane in range(1, places.shape[1]):
        shortest = min(shortest, places[LENGTHS, lane])
    return shortest


@njit(nogil=True)
def some_end_before(places: Any, limit: Any) -> Any:
    """Return whether a lane that still has to write its digest has a length below limit."""
    found = False
    for lane in range(places.shape[1]):
        found |= IDLE < places[LENGTHS, lane] < limit
    return found


@njit(nogil=True)
def retire_lanes(places: Any, limit: Any, nowhere: int) -> Any:
    """Make lanes with a length below limit idle: their digest is written, and later blocks are not theirs."""
    for lane in range(places.shape[1]):
        if places[LENGTHS, lane] < limit:
            places[LENGTHS, lane] = IDLE
            places[TARGETS, lane] = nowhere
