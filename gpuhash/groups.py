"""Which message is in which lane: what the compiled loops of the cpu backend share."""

from typing import Any

from numba import njit

# Rows of places, int64[3, lanes]: address of the message, its length, address of its digest.
STARTS, LENGTHS, TARGETS = 0, 1, 2
IDLE = -(1 << 40)  # the length of a lane without a message: it has ended long ago


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
    """Say in places which messages a group holds; return the greatest length.

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
    """Return the least length of any lane: below 0 when one is idle."""
    shortest = places[LENGTHS, 0]
    for lane in range(1, places.shape[1]):
        shortest = min(shortest, places[LENGTHS, lane])
    return shortest


@njit(nogil=True)
def some_end_before(places: Any, limit: Any) -> Any:
    """Say whether any lane that still has a digest to write has a length below limit."""
    found = False
    for lane in range(places.shape[1]):
        found |= IDLE < places[LENGTHS, lane] < limit
    return found


@njit(nogil=True)
def retire_lanes(places: Any, limit: Any, nowhere: int) -> Any:
    """Make lanes with a length below limit idle: their digest is written, what follows is not theirs."""
    for lane in range(places.shape[1]):
        if places[LENGTHS, lane] < limit:
            places[LENGTHS, lane] = IDLE
            places[TARGETS, lane] = nowhere
