"""The feerate at which a miner took each transaction of a block: the ancestor-set template algorithm.

Until it gave way to clusters, Bitcoin Core built blocks by repeatedly taking the transaction that together
with its unconfirmed ancestors pays most per vbyte, ancestors first. Running that on the transactions of one
block tells at which package feerate each was worth taking: a parent that a child paid for (CPFP) gets the
package's rate, and no child gets more than a parent that was taken before it. This is the second algorithm
of mempool/mempool (backend/src/api/mini-miner.ts, makeBlockTemplate), without sigops.
"""

from typing import Final, NamedTuple

import numpy as np

from collector.codec.arrays import Floats, Integers, Records
from gpuhash.compiled import compiler

compiled = compiler(__package__)

UNKNOWN: Final = np.iinfo(np.int64).min

WORK: Final = np.dtype(
    [
        ("package_fee_sat", np.int64),  # of it and its ancestors that are not taken yet
        ("package_vsize_vb", np.int64),
        ("bound", np.float64),  # lowest rate at which an ancestor was taken
        ("stamp", np.int64),  # the last search that came by
        ("is_seen", np.bool_),  # its cluster is done
        ("is_taken", np.bool_),
    ]
)


class Family(NamedTuple):
    """The transactions of one block, by position in it, and room to work."""

    vsizes_vb: Integers
    fees_sat: Integers
    rates: Floats  # the result
    limits: Integers  # parents of k: parents[limits[k]:limits[k + 1]]
    parents: Integers
    child_limits: Integers
    children: Integers
    work: Records
    members: Integers  # of the cluster at hand
    package: Integers  # what is being taken together
    below: Integers  # descendants of one of these


def effective_feerates(
    blocks: Records, vsizes_vb: Integers, fees_sat: Integers, limits: Integers, parents: Integers
) -> Floats:
    """Feerate in sat/vB at which each transaction is taken; NaN where it or its cluster has an UNKNOWN fee.

    limits and parents are those of `families.in_block_parents`. Of two packages with equal feerate the one of
    the earlier transaction is taken first.
    """
    rates = np.full(len(vsizes_vb), np.nan)
    largest = int(blocks["n_tx"].max(initial=1))
    room = Family(
        vsizes_vb,
        fees_sat,
        rates,
        limits,
        parents,
        child_limits=np.empty(largest + 1, np.int64),
        children=np.empty(max(len(parents), 1), np.int64),
        work=np.empty(largest, WORK),
        members=np.empty(largest, np.int64),
        package=np.empty(largest, np.int64),
        below=np.empty(largest, np.int64),
    )
    rate_blocks(blocks, room)
    return rates


@compiled
def rate_blocks(blocks: Records, room: Family) -> None:
    """Fill in `room.rates`, block by block."""
    for i in range(len(blocks)):
        first = blocks[i].first_tx
        end = first + blocks[i].n_tx
        _rate_block(
            Family(
                room.vsizes_vb[first:end],
                room.fees_sat[first:end],
                room.rates[first:end],
                room.limits[first : end + 1],
                room.parents,
                room.child_limits,
                room.children,
                room.work,
                room.members,
                room.package,
                room.below,
            )
        )


@compiled
def _rate_block(block: Family) -> None:
    """Rate lone transactions at once, the others cluster by cluster."""
    n_tx = len(block.rates)
    _turn(block)
    for k in range(n_tx):
        block.work[k].is_seen = block.work[k].is_taken = False
        block.work[k].bound = np.inf
        block.work[k].stamp = -1
    stamp = 0
    for k in range(n_tx):
        has_parents = block.limits[k] < block.limits[k + 1]
        if not has_parents and block.child_limits[k] == block.child_limits[k + 1]:
            if block.fees_sat[k] != UNKNOWN:
                block.rates[k] = block.fees_sat[k] / block.vsizes_vb[k]
        elif not block.work[k].is_seen:
            n_members = _collect(block, k)
            if _is_known(block, n_members):
                stamp = _mine(block, n_members, stamp)


@compiled
def _turn(block: Family) -> None:
    """Turn the edges from child to parents into edges from parent to children."""
    n_tx = len(block.rates)
    limits, child_limits = block.limits, block.child_limits
    child_limits[: n_tx + 1] = 0
    if limits[0] == limits[n_tx]:
        return
    for edge in range(limits[0], limits[n_tx]):
        child_limits[block.parents[edge]] += 1
    for k in range(1, n_tx + 1):
        child_limits[k] += child_limits[k - 1]
    # Each limit is the end of its part now; filling the part from behind brings it to the beginning.
    for child in range(n_tx - 1, -1, -1):
        for edge in range(limits[child], limits[child + 1]):
            parent = block.parents[edge]
            child_limits[parent] -= 1
            block.children[child_limits[parent]] = child


@compiled
def _collect(block: Family, start: int) -> int:
    """Collect the cluster of start in members, which is also the queue of what is still to visit."""
    block.members[0] = start
    block.work[start].is_seen = True
    n_members, at = 1, 0
    while at < n_members:
        here = block.members[at]
        at += 1
        n_members = _join(block, block.limits, block.parents, here, n_members)
        n_members = _join(block, block.child_limits, block.children, here, n_members)
    return n_members


@compiled
def _join(block: Family, limits: Integers, edges: Integers, here: int, n_members: int) -> int:
    for edge in range(limits[here], limits[here + 1]):
        there = edges[edge]
        if not block.work[there].is_seen:
            block.work[there].is_seen = True
            block.members[n_members] = there
            n_members += 1
    return n_members


@compiled
def _is_known(block: Family, n_members: int) -> bool:
    n_unknown = 0
    for m in range(n_members):
        n_unknown += block.fees_sat[block.members[m]] == UNKNOWN
    return n_unknown == 0


@compiled
def _ancestors(block: Family, start: int, stamp: int) -> int:
    """Collect in package start and its ancestors that are not taken: those of a taken one are all taken."""
    block.package[0] = start
    block.work[start].stamp = stamp
    n_found, at = 1, 0
    while at < n_found:
        here = block.package[at]
        at += 1
        for edge in range(block.limits[here], block.limits[here + 1]):
            there = block.parents[edge]
            if block.work[there].stamp != stamp and not block.work[there].is_taken:
                block.work[there].stamp = stamp
                block.package[n_found] = there
                n_found += 1
    return n_found


@compiled
def _descendants(block: Family, start: int, stamp: int) -> int:
    """Collect in below start and its descendants."""
    block.below[0] = start
    block.work[start].stamp = stamp
    n_found, at = 1, 0
    while at < n_found:
        here = block.below[at]
        at += 1
        for edge in range(block.child_limits[here], block.child_limits[here + 1]):
            there = block.children[edge]
            if block.work[there].stamp != stamp:
                block.work[there].stamp = stamp
                block.below[n_found] = there
                n_found += 1
    return n_found


@compiled
def _mine(block: Family, n_members: int, stamp: int) -> int:
    """Take every transaction of one cluster, best package first; returns the last stamp used."""
    for m in range(n_members):
        stamp += 1
        _sum_package(block, block.members[m], stamp)
    n_left = n_members
    while True:
        best, n_left, best_rate = _best(block, n_left)
        if not n_left:
            return stamp
        rate = min(best_rate, block.work[best].bound)
        stamp += 1
        n_package = _ancestors(block, best, stamp)
        for p in range(n_package):
            block.work[block.package[p]].is_taken = True
            block.rates[block.package[p]] = rate
        for p in range(n_package):
            stamp += 1
            _take_from_below(block, block.package[p], rate, stamp)


@compiled
def _sum_package(block: Family, start: int, stamp: int) -> None:
    n_found = _ancestors(block, start, stamp)
    fee_sat = vsize_vb = 0
    for a in range(n_found):
        fee_sat += block.fees_sat[block.package[a]]
        vsize_vb += block.vsizes_vb[block.package[a]]
    block.work[start].package_fee_sat = fee_sat
    block.work[start].package_vsize_vb = vsize_vb


@compiled
def _take_from_below(block: Family, taken: int, rate: float, stamp: int) -> None:
    for b in range(1, _descendants(block, taken, stamp)):
        below = block.work[block.below[b]]
        below.package_fee_sat -= block.fees_sat[taken]
        below.package_vsize_vb -= block.vsizes_vb[taken]
        below.bound = min(below.bound, rate)


@compiled
def _best(block: Family, n_left: int) -> tuple[int, int, float]:
    """Find the package that pays most, the earliest of equals; drops what is taken from members.

    Returns its transaction, how many members are left, and its rate.
    """
    best, best_rate, kept = -1, -np.inf, 0
    for m in range(n_left):
        here = block.members[m]
        work = block.work[here]
        if work.is_taken:
            continue
        block.members[kept] = here
        kept += 1
        rate = work.package_fee_sat / work.package_vsize_vb
        if rate > best_rate or (rate == best_rate and here < best):
            best, best_rate = here, rate
    return best, kept, best_rate
