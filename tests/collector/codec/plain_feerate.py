"""Compute effective feerates in a slow and plain way, to compare `collector.codec.feerates` with."""

from collections.abc import Collection, Container, Sequence
from heapq import heapify, heappop, heappush
from math import inf

Edges = Sequence[Collection[int]]


def plain_feerates(
    vsizes_vb: Sequence[int], fees_sat: Sequence[int | None], parents: Edges
) -> list[float | None]:
    """Return the effective feerate of each transaction in sat/vB.

    Transactions are known by their position; parents[i] holds the positions of those that i spends from. A
    transaction whose fee is unknown has no feerate, and neither has any that is connected with it. Of two
    packages with equal feerate the one of the earlier transaction is taken first. Time grows with the number
    of pairs of ancestor and descendant.
    """
    children: list[list[int]] = [[] for _ in parents]
    for child, its_parents in enumerate(parents):
        for parent in its_parents:
            children[parent].append(child)
    rates: list[float | None] = [None] * len(parents)
    clustered: set[int] = set()
    for start, fee_sat in enumerate(fees_sat):
        if not parents[start] and not children[start]:
            rates[start] = None if fee_sat is None else fee_sat / vsizes_vb[start]
        elif start not in clustered:
            cluster = _reach(start, parents, children)
            clustered |= cluster
            known = {i: fee for i in cluster if (fee := fees_sat[i]) is not None}
            if len(known) == len(cluster):
                sizes = {i: vsizes_vb[i] for i in cluster}
                for i, rate in _mine(known, sizes, parents, children).items():
                    rates[i] = rate
    return rates


def _mine(fees: dict[int, int], sizes: dict[int, int], parents: Edges, children: Edges) -> dict[int, float]:
    """Take every transaction of one cluster, best package first; return the rate at which each was taken."""
    # Fee and size of each transaction with those of its ancestors that are not taken yet.
    package_fee, package_size = dict(fees), dict(sizes)
    for above, fee_sat in fees.items():
        for below in _reach(above, children) - {above}:
            package_fee[below] += fee_sat
            package_size[below] += sizes[above]
    # Best first, by a rate that is never below the true one: it is corrected when it gets to the front.
    queue = [(-package_fee[i] / package_size[i], i) for i in fees]
    heapify(queue)
    queued = {i: -negative_rate for negative_rate, i in queue}
    bound = dict.fromkeys(fees, inf)  # lowest rate at which an ancestor was taken
    rates: dict[int, float] = {}
    while queue:
        negative_rate, best = heappop(queue)
        if best in rates or -negative_rate != queued[best]:
            continue
        package_rate = package_fee[best] / package_size[best]
        if package_rate < queued[best]:
            queued[best] = package_rate
            heappush(queue, (-package_rate, best))
            continue
        rate = min(package_rate, bound[best])
        package = _reach(best, parents, without=rates)
        rates.update(dict.fromkeys(package, rate))
        changed = set()
        for above in package:
            for below in _reach(above, children) - package:
                package_fee[below] -= fees[above]
                package_size[below] -= sizes[above]
                changed.add(below)
        for below in changed:
            bound[below] = min(bound[below], rate)
            package_rate = package_fee[below] / package_size[below]
            if package_rate > queued[below]:
                queued[below] = package_rate
                heappush(queue, (-package_rate, below))
    return rates


def _reach(start: int, *edges: Edges, without: Container[int] = ()) -> set[int]:
    """Return the transactions that can be reached from `start`, without those left out."""
    reached = {start}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        for leads in edges:
            for there in leads[here]:
                if there not in reached and there not in without:
                    reached.add(there)
                    waiting.append(there)
    return reached
