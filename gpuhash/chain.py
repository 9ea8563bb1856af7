"""Check a chain of block headers: work, links, targets and times."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuhash.chain_rules import (
    MAX_TIMEWARP_S,
    MEDIAN_HEADERS,
    PERIOD,
    ChainRules,
    median_times_past,
    required_bits,
)
from gpuhash.errors import InvalidInputError
from gpuhash.hashing import HEADER_BYTES, sha256d_headers
from gpuhash.packing import Bytes
from gpuhash.search import target_from_bits

HASH_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFault:
    """Names one fault of one block header: the header's position in the list and the reason."""

    index: int  # position in the input, from 0
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Says where a list of headers begins: the rules of its chain, and the height of the first header."""

    rules: ChainRules
    first_height: int = 0


def header_faults(
    headers: Bytes, *, linked: bool = True, at: Position | None = None, backend: str = "auto"
) -> list[HeaderFault]:
    """Check headers uint8[n, 80] and return every fault found, in the order of the headers.

    A header is at fault if its hash is above the target that it states, or if that target is impossible. With
    `linked`, it is also at fault if it does not name the hash of the header before it. With `at`, the first
    block of the chain must be the right one, no target may be easier than the chain's limit, and linked
    headers must state the target and have a time that the headers before them demand. Where earlier headers
    that are not given would decide, nothing is checked: the target until the first whole period has passed,
    and the time of the first 11 headers of a list that does not begin with the first block. Raises
    InvalidInputError for an array of another shape.
    """
    hashes = sha256d_headers(headers, backend=backend)
    found = list(_work_faults(headers, hashes))
    if linked:
        found += _link_faults(headers, hashes)
    if at is not None:
        found += _limit_faults(headers, hashes, at)
    if linked and at is not None:
        found += _target_faults(headers, at)
        found += _time_faults(headers, at)
    return sorted(found, key=lambda fault: fault.index)


def header_numbers(headers: Bytes, begin: int) -> npt.NDArray[np.int64]:
    """Return the little-endian 4-byte number at byte `begin` of each header as int64[n].

    The time is at byte 68, the target (bits) at byte 72.
    """
    return np.ascontiguousarray(headers[:, begin : begin + 4]).view("<u4").reshape(-1).astype(np.int64)


def split_headers(data: Bytes) -> Bytes:
    """Return bytes uint8[80 n] as headers uint8[n, 80] without a copy.

    Raises InvalidInputError if the last header is cut off.
    """
    if len(data) % HEADER_BYTES:
        raise InvalidInputError(f"a header has {HEADER_BYTES} bytes, and {len(data)} is no multiple of it")
    return data.reshape(-1, HEADER_BYTES)


def _work_faults(headers: Bytes, hashes: Bytes) -> Iterator[HeaderFault]:
    """Yield a fault for each header whose target is impossible, or whose hash is above its target."""
    stated, which = np.unique(header_numbers(headers, 72), return_inverse=True)
    targets = np.zeros((len(stated), HASH_BYTES), np.uint8)
    impossible: dict[int, str] = {}
    for number, bits in enumerate(stated):
        try:
            targets[number] = np.frombuffer(target_from_bits(int(bits)).to_bytes(HASH_BYTES, "big"), np.uint8)
        except InvalidInputError as error:
            impossible[number] = str(error)
    is_above = _is_greater(hashes[:, ::-1], targets[which])
    for index in np.flatnonzero(is_above):
        display = hashes[index].tobytes()[::-1].hex()
        reason = impossible.get(int(which[index])) or f"hash {display} is above its target"
        yield HeaderFault(index=int(index), reason=reason)


def _is_greater(left: Bytes, right: Bytes) -> npt.NDArray[np.bool_]:
    """Return for each row whether `left` is greater than `right`: bool[n].

    Both are numbers uint8[n, 32], highest byte first.
    """
    differs = left != right
    first = differs.argmax(axis=1)
    rows = np.arange(len(left))
    is_greater: npt.NDArray[np.bool_] = left[rows, first] > right[rows, first]
    return is_greater


def _link_faults(headers: Bytes, hashes: Bytes) -> Iterator[HeaderFault]:
    for index in np.flatnonzero((headers[1:, 4:36] != hashes[:-1]).any(axis=1)) + 1:
        yield HeaderFault(index=int(index), reason="does not name the hash of the header before it")


def _limit_faults(headers: Bytes, hashes: Bytes, at: Position) -> Iterator[HeaderFault]:
    """Yield a fault for a first block that is not the chain's, and for targets easier than the limit."""
    rules = at.rules
    if at.first_height == 0 and len(hashes):
        display = hashes[0].tobytes()[::-1].hex()
        if display != rules.genesis_hash:
            reason = f"hash {display} is not that of the first block of {rules.name}, {rules.genesis_hash}"
            yield HeaderFault(index=0, reason=reason)
    stated, which = np.unique(header_numbers(headers, 72), return_inverse=True)
    too_easy = np.array([_is_easier(int(bits), rules.limit) for bits in stated], np.bool_)
    for index in np.flatnonzero(too_easy[which]) if len(stated) else ():
        bits = int(stated[which[index]])
        reason = f"target {bits:#010x} is easier than the limit of {rules.name}, {rules.limit_bits:#010x}"
        yield HeaderFault(index=int(index), reason=reason)


def _is_easier(bits: int, limit: int) -> bool:
    try:
        return target_from_bits(bits) > limit
    except InvalidInputError:  # _work_faults reports an impossible target
        return False


def _target_faults(headers: Bytes, at: Position) -> Iterator[HeaderFault]:
    bits = header_numbers(headers, 72)
    needed = required_bits(at.rules, at.first_height, header_numbers(headers, 68), bits)
    for index in np.flatnonzero((needed >= 0) & (needed != bits)):
        reason = f"target {int(bits[index]):#010x} is stated, {int(needed[index]):#010x} is required"
        if index and (at.first_height + index) % PERIOD == 0:
            reason += " by the retarget"
        yield HeaderFault(index=int(index), reason=reason)


def _time_faults(headers: Bytes, at: Position) -> Iterator[HeaderFault]:
    times = header_numbers(headers, 68)
    past = median_times_past(times, is_from_first=at.first_height == 0)
    for index in np.flatnonzero(times <= past):
        n_before = min(index, MEDIAN_HEADERS)
        reason = (
            f"time {times[index]} is not after the median of the {n_before} headers before, {past[index]}"
        )
        yield HeaderFault(index=int(index), reason=reason)
    if at.rules.starts_from_first_of_period:
        heights = at.first_height + np.arange(1, len(times))
        is_old = (heights % PERIOD == 0) & (times[1:] < times[:-1] - MAX_TIMEWARP_S)
        for index in np.flatnonzero(is_old) + 1:
            reason = (
                f"time {times[index]} is more than {MAX_TIMEWARP_S} s before that of the header before it"
            )
            yield HeaderFault(index=int(index), reason=reason)
