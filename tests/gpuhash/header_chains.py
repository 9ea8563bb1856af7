"""Mine chains of headers with easy targets, by a plain reading of the rules, one header at a time."""

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpuhash.chain_rules import PERIOD, ChainRules, retargeted
from gpuhash.search import target_from_bits

EASIEST = 0x207FFFFF
BEGIN_S = 1_700_000_000


def rules(**others: bool) -> ChainRules:
    """Return the rules of an invented chain that starts at the easiest target; they name no first block."""
    return ChainRules(name="invented", genesis_hash="", limit_bits=EASIEST, **others)


def hash_of(header: bytes) -> bytes:
    """Hash a header with hashlib."""
    return hashlib.sha256(hashlib.sha256(header).digest()).digest()


def mined(previous: bytes, time_s: int, bits: int) -> bytes:
    """Mine a header that meets its own target, on top of the block with the hash `previous`."""
    start = (1).to_bytes(4, "little") + previous + bytes(32) + time_s.to_bytes(4, "little")
    start += bits.to_bytes(4, "little")
    target = target_from_bits(bits)
    for nonce in range(1 << 32):
        header = start + nonce.to_bytes(4, "little")
        if int.from_bytes(hash_of(header), "little") <= target:
            return header
    raise AssertionError("no nonce")


def needed(rules: ChainRules, times: list[int], bits: list[int], time_s: int) -> int:
    """Return the target that the next header must state, as `GetNextWorkRequired` walks back to find it."""
    height = len(bits)
    if height % PERIOD == 0:
        if not rules.retargets:
            return bits[-1]
        start = bits[-PERIOD] if rules.starts_from_first_of_period else bits[-1]
        return retargeted(rules, start, times[-1] - times[-PERIOD])
    if rules.easy_after_20_minutes:
        if time_s > times[-1] + 1200:
            return rules.limit_bits
        at = height - 1
        while at > 0 and at % PERIOD != 0 and bits[at] == rules.limit_bits:
            at -= 1
        return bits[at]
    return bits[-1]


def mine_chain(
    rules: ChainRules, n: int, gap_s: Callable[[int], int], *, forged: dict[int, int] | None = None
) -> npt.NDArray[np.uint8]:
    """Mine n headers, each `gap_s(height)` after the one before; `forged` states other targets at heights."""
    headers, times, bits = [], [BEGIN_S], [rules.limit_bits]
    headers.append(mined(bytes(32), times[0], bits[0]))
    for height in range(1, n):
        time_s = times[-1] + gap_s(height)
        stated = (forged or {}).get(height) or needed(rules, times, bits, time_s)
        headers.append(mined(hash_of(headers[-1]), time_s, stated))
        times.append(time_s)
        bits.append(stated)
    return np.frombuffer(bytearray(b"".join(headers)), np.uint8).reshape(-1, 80)
