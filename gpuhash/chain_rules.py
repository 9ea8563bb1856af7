"""Compute the proof-of-work target that a header must state: the limit of its chain, and the retargets.

The rules are those of Bitcoin Core's `pow.cpp` and `kernel/chainparams.cpp`. Every 2,016 blocks the target is
multiplied by the time that the last 2,016 blocks took over two weeks, at most by 4 and at least by 1/4. The
test networks allow the easiest target 20 minutes after the block before; the block after such a block goes
back to the last target that was not the easiest. On testnet4 a retarget starts from the first target of the
period, and its first header must not be more than 10 minutes older than the header before it (BIP 94).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gpuhash.errors import InvalidInputError
from gpuhash.search import target_from_bits

PERIOD: Final = 2016  # blocks between two retargets
SPACING_S: Final = 600
PERIOD_S: Final = PERIOD * SPACING_S
MOST_CHANGE: Final = 4
EASY_AFTER_S: Final = 2 * SPACING_S
MAX_TIMEWARP_S: Final = 600
MEDIAN_HEADERS: Final = 11

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRules:
    """Describes the proof of work of one chain: its first block and how its targets change."""

    name: str
    genesis_hash: str  # in display order
    limit_bits: int  # compact form of the easiest target
    retargets: bool = True
    easy_after_20_minutes: bool = False
    starts_from_first_of_period: bool = False  # BIP 94

    @property
    def limit(self) -> int:
        """Return the easiest target that a header of this chain may state."""
        return target_from_bits(self.limit_bits)


CHAINS: Final = {
    rules.name: rules
    for rules in (
        ChainRules(
            name="main",
            genesis_hash="000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f",
            limit_bits=0x1D00FFFF,
        ),
        ChainRules(
            name="testnet",
            genesis_hash="000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943",
            limit_bits=0x1D00FFFF,
            easy_after_20_minutes=True,
        ),
        ChainRules(
            name="testnet4",
            genesis_hash="00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043",
            limit_bits=0x1D00FFFF,
            easy_after_20_minutes=True,
            starts_from_first_of_period=True,
        ),
        ChainRules(
            name="signet",
            genesis_hash="00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6",
            limit_bits=0x1E0377AE,
        ),
        ChainRules(
            name="regtest",
            genesis_hash="0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206",
            limit_bits=0x207FFFFF,
            retargets=False,
            easy_after_20_minutes=True,
        ),
    )
}


def rules_of(chain: str) -> ChainRules:
    """Return the proof-of-work rules of a chain by its name; Bitcoin Core's RPC calls testnet `test`.

    Raises InvalidInputError for another name.
    """
    name = "testnet" if chain == "test" else chain
    if name not in CHAINS:
        raise InvalidInputError(f"no chain {chain!r}; there are {', '.join(CHAINS)}")
    return CHAINS[name]


def bits_from_target(target: int) -> int:
    """Return a target in a header's compact form, which drops digits, as Bitcoin Core's `GetCompact` does."""
    n_bytes = (target.bit_length() + 7) // 8
    mantissa = target >> 8 * (n_bytes - 3) if n_bytes > 3 else target << 8 * (3 - n_bytes)  # noqa: PLR2004 - a mantissa has 3 bytes
    if mantissa & 0x00800000:  # would read as a sign
        mantissa, n_bytes = mantissa >> 8, n_bytes + 1
    return n_bytes << 24 | mantissa


def retargeted(rules: ChainRules, bits: int, took_s: int) -> int:
    """Return the compact target after a retarget period that took `took_s` seconds and stated `bits`."""
    took_s = min(max(took_s, PERIOD_S // MOST_CHANGE), PERIOD_S * MOST_CHANGE)
    return bits_from_target(min(target_from_bits(bits) * took_s // PERIOD_S, rules.limit))


def required_bits(rules: ChainRules, first_height: int, times: Numbers, bits: Numbers) -> Numbers:
    """Return the compact target that each header must state; -1 where earlier headers are needed.

    `times` int64[n] and `bits` int64[n] are those of consecutive headers from `first_height` on. Only the
    headers before it decide what a header must state, so after a wrong header the result may be wrong too.
    """
    n = len(bits)
    heights = first_height + np.arange(n)
    needed = np.full(n, -1, np.int64)
    if n == 0:
        return needed
    if first_height == 0:
        needed[0] = rules.limit_bits
    needed[1:] = bits[:-1]
    if rules.easy_after_20_minutes:
        needed[1:] = _last_hard_bits(rules, heights, bits)[:-1]
        is_late = np.zeros(n, np.bool_)
        is_late[1:] = times[1:] > times[:-1] + EASY_AFTER_S
        needed[is_late] = rules.limit_bits
    for at in np.flatnonzero(heights % PERIOD == 0):
        if at == 0:
            continue
        begin = at - PERIOD
        if not rules.retargets:
            needed[at] = bits[at - 1]
        elif begin < 0:
            needed[at] = -1
        else:
            start_bits = bits[begin] if rules.starts_from_first_of_period else bits[at - 1]
            needed[at] = _retargeted_or_unknown(rules, int(start_bits), int(times[at - 1] - times[begin]))
    return needed


def _retargeted_or_unknown(rules: ChainRules, bits: int, took_s: int) -> int:
    """Return what `retargeted` returns, or -1 where `bits` are impossible.

    Impossible bits are a fault of their own header.
    """
    try:
        return retargeted(rules, bits, took_s)
    except InvalidInputError:
        return -1


def _last_hard_bits(rules: ChainRules, heights: Numbers, bits: Numbers) -> Numbers:
    """Return, for each header, the compact target to use after a testnet block of the easiest target.

    It is the last target, up to and including this header, that is not the easiest. The first header of a
    period ends the search, whatever target it states. The result is -1 where the input starts too late to
    tell.
    """
    ends = (heights % PERIOD == 0) | (bits != rules.limit_bits)
    positions = np.maximum.accumulate(np.where(ends, np.arange(len(bits)), -1))
    return np.where(positions < 0, -1, bits[np.maximum(positions, 0)])


def median_times_past(times: Numbers, *, is_from_first: bool) -> Numbers:
    """Return the median time of the 11 headers before each header, int64[n]; -1 where it is not known.

    Where fewer than 11 are given, it is known only if the first of them is the first block of the chain
    (`is_from_first`). Of an even number the later one of the middle two counts.
    Source: Bitcoin Core, src/chain.h, CBlockIndex::GetMedianTimePast.
    """
    past = np.full(len(times), -1, np.int64)
    if is_from_first:
        for n_before in range(1, min(MEDIAN_HEADERS, len(times))):
            past[n_before] = np.sort(times[:n_before])[n_before // 2]
    if len(times) > MEDIAN_HEADERS:
        windows = np.lib.stride_tricks.sliding_window_view(times[:-1], MEDIAN_HEADERS)
        past[MEDIAN_HEADERS:] = np.partition(windows, MEDIAN_HEADERS // 2, axis=1)[:, MEDIAN_HEADERS // 2]
    return past
