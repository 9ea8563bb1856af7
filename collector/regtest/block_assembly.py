"""Choose which transactions of a mempool a pool mines, and in which order.

An order is a list of packages. A package is mined whole or not at all. Each parent of a transaction stands
before it in the same package, or in an earlier package.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final

Order = list[list[str]]

OUTSIDE_FACTOR: Final = 2  # "outside the top 2X"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Describes a transaction in the mempool as a pool of a scenario sees it; `txid` is in display order."""

    txid: str  # display order
    raw: bytes
    fee_sat: int
    vsize_vb: int
    weight_wu: int
    parents: frozenset[str]  # unconfirmed when it was sent; some may be confirmed by now
    arrival: int  # position in the order of entry; a new one when a block that held it has lost
    is_planted: bool  # a low-feerate transaction somebody paid for out of band
    has_anchor: bool = False  # an output that pays to anchor (P2A)


MempoolView = Mapping[str, Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Counts how many of a block's X transactions were among the best X of the mempool sorted by feerate.

    It also counts those beyond the best 2X. X does not count the coinbase.
    """

    n_tx: int  # X
    n_mempool: int
    n_top_taken: int  # of the best X
    n_outside: int  # beyond the best 2X
    n_outside_taken: int

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the counts of taken transactions and two ratios as a dict; a ratio of nothing is None."""
        n_top = min(self.n_tx, self.n_mempool)
        return {
            **asdict(self),
            "top_ratio": self.n_top_taken / n_top if n_top else None,
            "outside_ratio": self.n_outside_taken / self.n_outside if self.n_outside else None,
        }


def first_come_order(view: MempoolView) -> Order:
    """Return transactions in order of their entry into the mempool, oldest first, as packages of one.

    A child may have entered before its parent if a losing block held the parent; `fill` leaves out such a
    child.
    """
    return [[candidate.txid] for candidate in sorted(view.values(), key=lambda candidate: candidate.arrival)]


def out_of_band_order(view: MempoolView) -> Order:
    """Return packages of txids in a pool's order: planted transactions first, then the others by feerate.

    The planted ones are ordered oldest first, each after its ancestors.
    """
    ancestors = _ancestors(view)
    planted = sorted((e for e in view.values() if e.is_planted), key=lambda candidate: candidate.arrival)
    first: Order = []
    taken: set[str] = set()
    for candidate in planted:
        package = _in_topological_order(ancestors[candidate.txid] - taken, ancestors)
        taken.update(package)
        if package:
            first.append(package)
    return first + feerate_order(view, taken=taken)


def feerate_order(view: MempoolView, *, taken: Collection[str] = ()) -> Order:
    """Return all that `feerate_packages` yields."""
    return list(feerate_packages(view, taken=taken))


def feerate_packages(view: MempoolView, *, taken: Collection[str] = ()) -> Iterator[list[str]]:
    """Yield packages of txids in an unmodified node's order: highest ancestor feerate always next.

    This is the algorithm of Bitcoin Core's BlockAssembler::addPackageTxs, without its size limit. The node
    itself cannot be asked: it answers getblocktemplate from a cache of up to five seconds when another
    client, such as the collector, has asked for the same tip before. Transactions in `taken` are left out.
    """
    ancestors = _ancestors(view)
    descendants: dict[str, list[str]] = {txid: [] for txid in view}
    for txid, family in ancestors.items():
        for ancestor in family:
            descendants[ancestor].append(txid)
    done = set(taken)
    own = {txid: candidate.fee_sat / candidate.vsize_vb for txid, candidate in view.items()}
    # Of each transaction with its ancestors that are not taken yet.
    left = {txid: family - done for txid, family in ancestors.items()} if done else ancestors
    fees_sat, sizes_vb = _sums(view, left)
    ties = {txid: _tie_break(txid) for txid in view}

    def score(txid: str) -> float:
        return min(own[txid], fees_sat[txid] / sizes_vb[txid])

    best = [(-score(txid), ties[txid], txid) for txid in view if txid not in done]
    heapq.heapify(best)
    while best:
        negative_score, _, txid = heapq.heappop(best)
        if txid in done or -negative_score != score(txid):
            continue  # an ancestor was taken meanwhile; the new score is in the heap too
        package = _in_topological_order(ancestors[txid] - done, ancestors)
        done.update(package)
        yield package
        for member in package:
            for each in descendants[member]:
                fees_sat[each] -= view[member].fee_sat
                sizes_vb[each] -= view[member].vsize_vb
        for changed in {each for member in package for each in descendants[member]} - done:
            heapq.heappush(best, (-score(changed), ties[changed], changed))


ORDERS: Final[dict[str, Callable[[MempoolView], Order]]] = {
    "feerate": feerate_order,
    "empty_after_fast": feerate_order,
    "out_of_band": out_of_band_order,
    "first_come": first_come_order,
}


def fill(view: MempoolView, order: Iterable[list[str]], *, weight_wu: int) -> list[Candidate]:
    """Return a block's transactions: the packages of `order` that fit into `weight_wu` and lack no parent."""
    chosen: dict[str, Candidate] = {}
    left_wu = weight_wu
    least_wu = min((candidate.weight_wu for candidate in view.values()), default=0)
    for package in order:
        if left_wu < least_wu:  # no package fits any more
            break
        candidates = [view[txid] for txid in package]
        needed_wu = sum(candidate.weight_wu for candidate in candidates)
        if needed_wu <= left_wu and all(
            parent in chosen or parent in package
            for candidate in candidates
            for parent in candidate.parents
            if parent in view
        ):
            chosen.update((candidate.txid, candidate) for candidate in candidates)
            left_wu -= needed_wu
    return list(chosen.values())


def without_anchors(view: MempoolView) -> MempoolView:
    """Return the mempool `view` without transactions that have P2A outputs, and their descendants."""
    return {
        txid: view[txid]
        for txid, family in _ancestors(view).items()
        if not any(view[member].has_anchor for member in family)
    }


def plain_ranking(view: MempoolView, mined: Collection[str] = ()) -> list[str]:
    """Return txids by falling feerate of the transaction alone; ties are ordered as `_best_first` says."""
    return _best_first(view, {txid: _feerate(view, [txid]) for txid in view}, mined)


def ancestor_ranking(view: MempoolView, mined: Collection[str] = ()) -> list[str]:
    """Return txids by falling feerate with all ancestors; ties are ordered as `_best_first` says."""
    return _best_first(
        view, {txid: _feerate(view, family) for txid, family in _ancestors(view).items()}, mined
    )


def package_ranking(view: MempoolView, mined: Collection[str] = ()) -> list[str]:
    """Return txids by falling package feerate; ties are ordered as `_best_first` says.

    The mining score of a transaction is the lower of its own feerate and of the feerate of it with all its
    ancestors; its package feerate is the highest score among it and its descendants in the mempool.
    """
    best = dict.fromkeys(view, 0.0)
    for txid, family in _ancestors(view).items():
        score = min(_feerate(view, [txid]), _feerate(view, family))
        for member in family:
            best[member] = max(best[member], score)
    return _best_first(view, best, mined)


def acceptance(ranking: Sequence[str], mined: Collection[str]) -> Acceptance:
    """Count how many of the txids `mined` are among the best X of `ranking`, and how many beyond the best 2X.

    X is the number of transactions in `mined`.
    """
    taken = set(mined)
    n_tx = len(taken)
    outside = ranking[OUTSIDE_FACTOR * n_tx :] if n_tx else []
    return Acceptance(
        n_tx=n_tx,
        n_mempool=len(ranking),
        n_top_taken=len(taken.intersection(ranking[:n_tx])),
        n_outside=len(outside),
        n_outside_taken=len(taken.intersection(outside)),
    )


def _best_first(view: MempoolView, feerates: Mapping[str, float], mined: Collection[str]) -> list[str]:
    """Return the txids by falling feerate; among equal feerates those in `mined` first, then by entry.

    So a pool that took one of two transactions with equal feerates counts as having taken the better one.
    """
    chosen = set(mined)
    return sorted(view, key=lambda txid: (-feerates[txid], txid not in chosen, view[txid].arrival))


def _ancestors(view: MempoolView) -> dict[str, set[str]]:
    """Map each txid to the set of its ancestors in the mempool, itself included."""
    families = {
        txid: {txid}
        for txid, candidate in view.items()
        if not candidate.parents or not any(parent in view for parent in candidate.parents)
    }

    def family(txid: str) -> set[str]:
        if txid not in families:
            parents = (family(parent) for parent in view[txid].parents if parent in view)
            families[txid] = {txid}.union(*parents)
        return families[txid]

    return {txid: families.get(txid) or family(txid) for txid in view}


def _sums(view: MempoolView, families: Mapping[str, set[str]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the fees and the sizes of families, by the txid of each."""
    fees_sat = {txid: candidate.fee_sat for txid, candidate in view.items()}
    sizes_vb = {txid: candidate.vsize_vb for txid, candidate in view.items()}
    for txid, family in families.items():
        if len(family) != 1:
            fees_sat[txid] = sum(view[each].fee_sat for each in family)
            sizes_vb[txid] = sum(view[each].vsize_vb for each in family)
    return fees_sat, sizes_vb


def _in_topological_order(txids: Collection[str], ancestors: Mapping[str, set[str]]) -> list[str]:
    if len(txids) == 1:
        return list(txids)
    return sorted(txids, key=lambda txid: (len(ancestors[txid]), _tie_break(txid)))


@lru_cache(maxsize=100_000)
def _tie_break(txid: str) -> bytes:
    """Return the sort key of a txid among equal scores: its bytes in internal order, as in the node."""
    return bytes.fromhex(txid)[::-1]


def _feerate(view: MempoolView, txids: Collection[str]) -> float:
    fee_sat = sum(view[txid].fee_sat for txid in txids)
    return fee_sat / sum(view[txid].vsize_vb for txid in txids)
