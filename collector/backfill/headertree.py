"""Find the height of every block from the headers: build their tree and find the branch with most work.

When files are missing, a branch may not reach down to the first block of the chain. The height is then taken
from the coinbases of some of its lowest blocks (BIP 34), by majority.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

import gpuhash
from collector.codec.arrays import Bytes, Flags, Integers

VOTES: Final = 11  # blocks per branch whose coinbase is read
UNKNOWN_HEIGHT: Final = -1
NO_PARENT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTree:
    """Holds the height and the branch of each block as the headers show them, in arrays by position.

    `is_whole` says that the ancestors reach the first block; `is_active` that the block is in the active
    chain; `tip` is the position of the active chain's last block.
    """

    heights: Integers  # UNKNOWN_HEIGHT where it could not be found
    is_whole: Flags  # its branch reaches down to the first block
    is_active: Flags  # on the branch of most work
    tip: int  # the last block of that branch; NO_PARENT when there are no blocks


def build_tree(headers: Bytes, hashes: Bytes, stated_height: Callable[[int], int | None]) -> HeaderTree:
    """Find the height and branch of every block from the headers uint8[n, 80] and their hashes uint8[n, 32].

    The hashes must be distinct. `stated_height` returns the height in the coinbase of the block at a
    position: UNKNOWN_HEIGHT when it states none, None when the block cannot be read any more. The active
    branch is the one with most work among those that reach the first block, or among all if none does; of
    equal branches it is the one found first, as in the node. Where a block in the middle is missing, the
    branches above it continue the active one.
    """
    parents = _parents(headers, hashes)
    order, roots, depths = _from_the_roots(parents)
    is_first = np.all(headers[:, 4:36] == 0, axis=1)  # its parent is written as zeros
    bases = _bases(order, roots, depths, is_first, stated_height)
    is_whole = is_first[roots]
    heights = np.where(bases[roots] == UNKNOWN_HEIGHT, UNKNOWN_HEIGHT, bases[roots] + depths)
    tips = _active_tips(_branches(headers, parents, order, roots), is_whole, heights)
    is_active = np.zeros(len(headers), np.bool_)
    for tip in tips:
        at = tip
        while at != NO_PARENT:
            is_active[at] = True
            at = int(parents[at])
    highest = max(tips, key=lambda i: heights[i], default=NO_PARENT)
    return HeaderTree(heights=heights, is_whole=is_whole, is_active=is_active, tip=highest)


def _parents(headers: Bytes, hashes: Bytes) -> Integers:
    """Return the position of each block's parent, or NO_PARENT where the parent is not among the blocks."""
    # Sorted by the first eight bytes, of which no two hashes that cost work have ever been the same.
    keys = np.ascontiguousarray(hashes[:, :8]).view(np.uint64)[:, 0]
    wanted = np.ascontiguousarray(headers[:, 4:12]).view(np.uint64)[:, 0]
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
    found = order[places]
    return np.where(np.all(hashes[found] == headers[:, 4:36], axis=1), found, NO_PARENT)


def _from_the_roots(parents: Integers) -> tuple[list[int], Integers, Integers]:
    """Return three things: positions with parents before children, and each block's root and depth.

    A root is a block without a parent among the blocks; the depth counts blocks from the root.
    """
    by_parent = np.argsort(parents, kind="stable")
    limits = np.searchsorted(parents[by_parent], np.arange(-1, len(parents) + 1)).tolist()
    children = by_parent.tolist()
    roots, depths = np.arange(len(parents)), np.zeros(len(parents), np.int64)
    order = children[: limits[1]]
    for here in order:  # grows while it is walked
        for child in children[limits[here + 1] : limits[here + 2]]:
            roots[child], depths[child] = roots[here], depths[here] + 1
            order.append(child)
    return order, roots, depths


def _bases(
    order: list[int],
    roots: Integers,
    depths: Integers,
    is_first: Flags,
    stated_height: Callable[[int], int | None],
) -> Integers:
    """Return the height of each root (a block whose parent is missing); entries of other blocks are void.

    The height comes from the first block, or from most of the heights that coinbases above the root state.
    """
    bases = np.where(is_first, 0, UNKNOWN_HEIGHT)
    votes: dict[int, Counter[int]] = {}
    for i in order:
        root = int(roots[i])
        own = votes.setdefault(root, Counter())
        if not is_first[root] and own.total() < VOTES:
            stated = stated_height(i)
            if stated is None:  # the blocks above tell it
                continue
            depth = int(depths[i])
            own[stated - depth if stated >= depth else UNKNOWN_HEIGHT] += 1
    for root, own in votes.items():
        base, count = max(own.items(), key=lambda item: item[1], default=(UNKNOWN_HEIGHT, 0))
        if not is_first[root] and 2 * count > own.total():
            bases[root] = base
    return bases


def _branches(
    headers: Bytes, parents: Integers, order: list[int], roots: Integers
) -> list[tuple[int, int, int]]:
    """Return for each root (a block whose parent is missing) its heaviest branch as (work, last block, root).

    Blocks are given by position; work is the expected number of hashes.
    """
    bits = np.ascontiguousarray(headers[:, 72:76]).view("<u4")[:, 0].tolist()
    above, bases = parents.tolist(), roots.tolist()
    work = [0] * len(headers)
    tips: dict[int, int] = {}
    for i in order:
        work[i] = _work(bits[i]) + (work[above[i]] if above[i] != NO_PARENT else 0)
        other = tips.setdefault(bases[i], i)
        if (work[i], -i) > (work[other], -other):
            tips[bases[i]] = i
    return [(work[tip], tip, root) for root, tip in tips.items()]


def _active_tips(branches: list[tuple[int, int, int]], is_whole: Flags, heights: Integers) -> list[int]:
    """Return the positions of the last blocks of the branches that make up the active chain.

    The heaviest branch that reaches the first block comes first. Above missing blocks, branches without
    ancestors follow: the heaviest first, and each only if it overlaps none of those taken before.
    """

    def rank(branch: tuple[int, int, int]) -> tuple[bool, bool, int, int]:
        work, tip, _ = branch
        return bool(is_whole[tip]), bool(heights[tip] != UNKNOWN_HEIGHT), work, -tip

    tips: list[int] = []
    lows: list[int] = []
    highs: list[int] = []
    for _, tip, root in sorted(branches, key=rank, reverse=True):
        low, high = int(heights[root]), int(heights[tip])
        place = bisect_right(lows, high)
        if not tips or (low != UNKNOWN_HEIGHT and (place == 0 or highs[place - 1] < low)):
            tips.append(tip)
            lows.insert(place, low)
            highs.insert(place, high)
    return tips


@cache
def _work(bits: int) -> int:
    """Return how many hashes it takes on average to meet a target, given as the header's `bits` field."""
    return (1 << 256) // (gpuhash.target_from_bits(bits) + 1)
