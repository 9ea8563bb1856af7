"""Compute the feerate at which a miner took each transaction of a block, with the ancestor-set algorithm.

Before it used clusters, Bitcoin Core built a block as follows. It repeatedly took the transaction that pays
most per vbyte together with its ancestors that are not taken yet: the package. Here the same is done with the
transactions of one finished block. The rate of the package is then the effective feerate of its transactions:
a parent that a child paid for (CPFP) gets the rate of the package, and no child gets a higher rate than a
parent that was taken before it. This is the second algorithm of mempool/mempool
(backend/src/api/mini-miner.ts, makeBlockTemplate), without sigops.
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
        ("stamp", np.int64),  # number of the last search that visited it
        ("is_seen", np.bool_),  # it belongs to a cluster that was collected
        ("is_taken", np.bool_),
    ]
)


class BlockGraph(NamedTuple):
    """Holds the transactions of one block, with edges to parents and children, and scratch arrays."""

    vsizes_vb: Integers
    fees_sat: Integers
    rates: Floats  # the result
    limits: Integers  # parents of k: parents[limits[k]:limits[k + 1]]
    parents: Integers
    child_limits: Integers
    children: Integers
    work: Records
    members: Integers  # scratch: the transactions of one cluster
    package: Integers  # scratch: the transactions of one package
    descendants: Integers  # scratch: the descendants of one transaction, itself first


def effective_feerates(
    blocks: Records, vsizes_vb: Integers, fees_sat: Integers, limits: Integers, parents: Integers
) -> Floats:
    """Return the feerate (sat/vB) at which each transaction of the blocks was taken, with its ancestors.

    The feerate is NaN where a transaction among the relatives lacks a fee. `limits` and `parents` come from
    `parents.in_block_parents`. Of two packages with equal feerate, the package of the earlier transaction is
    taken first.
    """
    rates = np.full(len(vsizes_vb), np.nan)
    largest = int(blocks["n_tx"].max(initial=1))
    graph = BlockGraph(
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
        descendants=np.empty(largest, np.int64),
    )
    rate_blocks(blocks, graph)
    return rates


@compiled
def rate_blocks(blocks: Records, graph: BlockGraph) -> None:
    """Compute the effective feerates of the transactions of every block and write them to `graph.rates`."""
    for i in range(len(blocks)):
        first = blocks[i].first_tx
        end = first + blocks[i].n_tx
        _rate_block(
            BlockGraph(
                graph.vsizes_vb[first:end],
                graph.fees_sat[first:end],
                graph.rates[first:end],
                graph.limits[first : end + 1],
                graph.parents,
                graph.child_limits,
                graph.children,
                graph.work,
                graph.members,
                graph.package,
                graph.descendants,
            )
        )


@compiled
def _rate_block(graph: BlockGraph) -> None:
    """Compute the feerates of one block into `graph.rates`: lone transactions directly, others by cluster."""
    n_tx = len(graph.rates)
    _invert_edges(graph)
    for k in range(n_tx):
        graph.work[k].is_seen = graph.work[k].is_taken = False
        graph.work[k].bound = np.inf
        graph.work[k].stamp = -1
    stamp = 0
    for k in range(n_tx):
        has_parents = graph.limits[k] < graph.limits[k + 1]
        if not has_parents and graph.child_limits[k] == graph.child_limits[k + 1]:
            if graph.fees_sat[k] != UNKNOWN:
                graph.rates[k] = graph.fees_sat[k] / graph.vsizes_vb[k]
        elif not graph.work[k].is_seen:
            n_members = _collect_cluster(graph, k)
            if _has_all_fees(graph, n_members):
                stamp = _rate_cluster(graph, n_members, stamp)


@compiled
def _invert_edges(graph: BlockGraph) -> None:
    """Fill `children` and `child_limits` of a block's graph with the edges from parents to children."""
    n_tx = len(graph.rates)
    limits, child_limits = graph.limits, graph.child_limits
    child_limits[: n_tx + 1] = 0
    if limits[0] == limits[n_tx]:
        return
    for edge in range(limits[0], limits[n_tx]):
        child_limits[graph.parents[edge]] += 1
    for k in range(1, n_tx + 1):
        child_limits[k] += child_limits[k - 1]
    # Each limit is the end of its part now. Filling each part from its end moves the limit to the beginning.
    for child in range(n_tx - 1, -1, -1):
        for edge in range(limits[child], limits[child + 1]):
            parent = graph.parents[edge]
            child_limits[parent] -= 1
            graph.children[child_limits[parent]] = child


@compiled
def _collect_cluster(graph: BlockGraph, start: int) -> int:
    """Write the cluster of `start` (its direct and indirect relatives) to `members`; return their number.

    `members` is also the queue of the search.
    """
    graph.members[0] = start
    graph.work[start].is_seen = True
    n_members, at = 1, 0
    while at < n_members:
        here = graph.members[at]
        at += 1
        n_members = _add_neighbours(graph, graph.limits, graph.parents, here, n_members)
        n_members = _add_neighbours(graph, graph.child_limits, graph.children, here, n_members)
    return n_members


@compiled
def _add_neighbours(graph: BlockGraph, limits: Integers, edges: Integers, here: int, n_members: int) -> int:
    """Add one transaction's parents or children that were not visited yet to `members`.

    Returns the new number of members.
    """
    for edge in range(limits[here], limits[here + 1]):
        there = edges[edge]
        if not graph.work[there].is_seen:
            graph.work[there].is_seen = True
            graph.members[n_members] = there
            n_members += 1
    return n_members


@compiled
def _has_all_fees(graph: BlockGraph, n_members: int) -> bool:
    """Return whether the fee of every transaction in `members` is known."""
    n_unknown = 0
    for m in range(n_members):
        n_unknown += graph.fees_sat[graph.members[m]] == UNKNOWN
    return n_unknown == 0


@compiled
def _collect_ancestors(graph: BlockGraph, start: int, stamp: int) -> int:
    """Write the transaction `start` and its ancestors not yet rated to `package`; return how many.

    The search stops at a transaction that is rated: all its ancestors are. `stamp` is a number that no
    earlier search used.
    """
    graph.package[0] = start
    graph.work[start].stamp = stamp
    n_found, at = 1, 0
    while at < n_found:
        here = graph.package[at]
        at += 1
        for edge in range(graph.limits[here], graph.limits[here + 1]):
            there = graph.parents[edge]
            if graph.work[there].stamp != stamp and not graph.work[there].is_taken:
                graph.work[there].stamp = stamp
                graph.package[n_found] = there
                n_found += 1
    return n_found


@compiled
def _collect_descendants(graph: BlockGraph, start: int, stamp: int) -> int:
    """Write the transaction `start` and its descendants to `descendants`; return how many there are.

    `stamp` is a number that no earlier search used.
    """
    graph.descendants[0] = start
    graph.work[start].stamp = stamp
    n_found, at = 1, 0
    while at < n_found:
        here = graph.descendants[at]
        at += 1
        for edge in range(graph.child_limits[here], graph.child_limits[here + 1]):
            there = graph.children[edge]
            if graph.work[there].stamp != stamp:
                graph.work[there].stamp = stamp
                graph.descendants[n_found] = there
                n_found += 1
    return n_found


@compiled
def _rate_cluster(graph: BlockGraph, n_members: int, stamp: int) -> int:
    """Write the feerates (sat/vB) of one cluster of a block into `graph`, the best package first.

    `stamp` marks what a search has visited, and each search takes the next number. Returns the last one used.
    """
    for m in range(n_members):
        stamp += 1
        _sum_package(graph, graph.members[m], stamp)
    n_left = n_members
    while True:
        best, n_left, best_rate = _best_package(graph, n_left)
        if not n_left:
            return stamp
        rate = min(best_rate, graph.work[best].bound)
        stamp += 1
        n_package = _collect_ancestors(graph, best, stamp)
        for p in range(n_package):
            graph.work[graph.package[p]].is_taken = True
            graph.rates[graph.package[p]] = rate
        for p in range(n_package):
            stamp += 1
            _subtract_from_descendants(graph, graph.package[p], rate, stamp)


@compiled
def _sum_package(graph: BlockGraph, start: int, stamp: int) -> None:
    """Store fee and vsize of a transaction's package: itself and its ancestors that are not yet rated."""
    n_found = _collect_ancestors(graph, start, stamp)
    fee_sat = vsize_vb = 0
    for a in range(n_found):
        fee_sat += graph.fees_sat[graph.package[a]]
        vsize_vb += graph.vsizes_vb[graph.package[a]]
    graph.work[start].package_fee_sat = fee_sat
    graph.work[start].package_vsize_vb = vsize_vb


@compiled
def _subtract_from_descendants(graph: BlockGraph, taken: int, rate: float, stamp: int) -> None:
    """Subtract a rated transaction from its descendants' packages; limit the descendants' rate to `rate`."""
    for d in range(1, _collect_descendants(graph, taken, stamp)):
        work = graph.work[graph.descendants[d]]
        work.package_fee_sat -= graph.fees_sat[taken]
        work.package_vsize_vb -= graph.vsizes_vb[taken]
        work.bound = min(work.bound, rate)


@compiled
def _best_package(graph: BlockGraph, n_left: int) -> tuple[int, int, float]:
    """Find the package with the highest feerate, the earliest of equals, among the first `n_left` members.

    Returns the transaction of that package, the number of members left, and the feerate. Members that are
    rated are dropped from the list.
    """
    best, best_rate, kept = -1, -np.inf, 0
    for m in range(n_left):
        here = graph.members[m]
        work = graph.work[here]
        if work.is_taken:
            continue
        graph.members[kept] = here
        kept += 1
        rate = work.package_fee_sat / work.package_vsize_vb
        if rate > best_rate or (rate == best_rate and here < best):
            best, best_rate = here, rate
    return best, kept, best_rate
