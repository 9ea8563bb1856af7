"""Fill a block in ways that collector.regtest.block_assembly lacks, each written as its definition says.

An order is a list of packages, as there. They are slow, and meant for mempools of some hundred transactions.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from collector.regtest.block_assembly import MempoolView, Order, feerate_order

EXTRA_WU = 3  # a byte of an envelope weighs 1, and Bitcoin Knots counts it as 4


def chunk_order(view: MempoolView) -> Order:
    """Return the chunks of all families, highest feerate by weight first, as Bitcoin Core 31 does.

    The next chunk of a family is found by trying every set that holds its ancestors, so families are small.
    """
    chunks = []
    for family in families(view):
        left = sorted(family, key=lambda txid: view[txid].arrival)
        while left:
            best = max(closed_sets(view, left), key=lambda txids: (feerate(view, txids), -len(txids)))
            chunks.append((feerate(view, best), best))
            left = [txid for txid in left if txid not in best]
    return [txids for _, txids in sorted(chunks, key=lambda each: -each[0])]


def data_cost_order(view: MempoolView, envelope_bytes: Mapping[str, int]) -> Order:
    """Return ancestor sets in which each byte of an envelope counts as a whole vbyte."""

    def size(txid: str) -> int:
        return -(-(view[txid].weight_wu + EXTRA_WU * envelope_bytes.get(txid, 0)) // 4)

    return feerate_order({txid: replace(entry, vsize_vb=size(txid)) for txid, entry in view.items()})


def plain_order(view: MempoolView) -> Order:
    """Return transactions by their own feerate; one whose parent waits is passed over until it is taken."""
    return parents_first(view, lambda txid: -view[txid].fee_sat / view[txid].vsize_vb)


def name_order(view: MempoolView) -> Order:
    """Return transactions by txid: an order that has nothing to do with fees or time."""
    return parents_first(view, lambda txid: txid)


def parents_first(view: MempoolView, key: Callable[[str], Any]) -> Order:
    """Return next, of the transactions whose parents are taken, always the one with the lowest key."""
    missing = {txid: entry.parents & view.keys() for txid, entry in view.items()}
    children: dict[str, list[str]] = {}
    for txid, parents in missing.items():
        for parent in parents:
            children.setdefault(parent, []).append(txid)
    ready = [(key(txid), txid) for txid, parents in missing.items() if not parents]
    heapq.heapify(ready)
    order: Order = []
    while ready:
        _, taken = heapq.heappop(ready)
        order.append([taken])
        for child in children.get(taken, ()):
            missing[child] -= {taken}
            if not missing[child]:
                heapq.heappush(ready, (key(child), child))
    return order


def families(view: MempoolView) -> list[set[str]]:
    """Return the sets of transactions that are linked by parent and child."""
    family_of: dict[str, set[str]] = {}
    for txid, entry in view.items():
        linked = {txid}.union(*(family_of.get(parent, {parent}) for parent in entry.parents & view.keys()))
        linked |= family_of.get(txid, set())
        family_of |= dict.fromkeys(linked, linked)
    return list({id(family): family for family in family_of.values()}.values())


def closed_sets(view: MempoolView, txids: Collection[str]) -> Iterator[list[str]]:
    """Yield every set of these transactions that holds the parents of its members which are among them."""
    for n in range(1, len(txids) + 1):
        for chosen in itertools.combinations(txids, n):
            if all(not (view[txid].parents & set(txids)) - set(chosen) for txid in chosen):
                yield list(chosen)


def feerate(view: MempoolView, txids: Collection[str]) -> float:
    """Return the feerate of a set by weight, in sat/WU."""
    return sum(view[txid].fee_sat for txid in txids) / sum(view[txid].weight_wu for txid in txids)
