"""Score how well each algorithm that builds blocks explains the order of the transactions in one block.

As SQL function:

    order_scores(places, fees, sizes, weights, envelopes, parents, entries, max_error_ratio)

An algorithm gives each transaction a key, and takes them from the highest key to the lowest. Its key is
computed from the transactions of the block alone:

- ancestor_sets: feerate by vsize at which the transaction is taken, when always the one whose ancestors and
  it pay most is next (Bitcoin Core before 31, BlockAssembler::addPackageTxs).
- chunks: feerate by weight of its chunk in the best order of its family (Bitcoin Core 31, cluster mempool).
- data_cost: ancestor sets in which each byte of an envelope takes a whole vB, not a quarter (Bitcoin Knots,
  -datacarriercost=1).
- plain: own feerate by vsize; who has parents in the block waits for them.
- first_come: time of entry, the earliest first.

Two kinds of pairs are compared with the keys. A near pair are neighbours in the block. A far pair are two
transactions half a block apart, and no transaction is in two of them. A pair within one family is left out:
parents must come first, and what else is free inside a chunk says nothing. The model of a pair: the one with
the higher key stands first, but with an unknown probability of error; where keys are equal or unknown, either
may be first. The error is drawn uniformly from 0 to `max_error_ratio`, one for the near pairs of a block and
one for the far pairs. First come has no near pairs, because others see neighbours in another order. An own
order, which no key explains, has either first in each pair. A score is the natural logarithm of the
likelihood of the algorithm divided by that of an own order.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.stats.chunk_feerates import chunk_feerates
from analysis.stats.sql_functions import Numbers, SqlFunction

ALGORITHMS: Final = ("ancestor_sets", "chunks", "data_cost", "plain", "first_come")
SCORES: Final = pa.struct(
    [("n_near", pa.int64()), ("n_far", pa.int64()), ("n_telling", pa.int64())]
    + [(name, pa.float64()) for name in ALGORITHMS]
)
SCORES_SQL: Final = (
    "STRUCT(n_near BIGINT, n_far BIGINT, n_telling BIGINT, "
    + ", ".join(f"{name} DOUBLE" for name in ALGORITHMS)
    + ")"
)
ERROR_STEPS: Final = 500
ENVELOPE_EXTRA_WU: Final = 3  # a witness byte has 1, and is counted as 4

Links = Mapping[int, Sequence[int]]
Pairs = npt.NDArray[np.int64]


class BlockTransaction(NamedTuple):
    """Describes one transaction of a block.

    `place` is its tx_index, `parents` are the places of its parents in the block, `entered` is its time of
    entry in any unit, or None.
    """

    place: int
    fee_sat: int
    vsize_vb: int
    weight_wu: int
    envelope_bytes: int
    parents: Sequence[int]
    entered: float | None


class OrderScores(NamedTuple):
    """Holds the numbers of pairs of a block, and the score of each algorithm in nats against an own order.

    `n_telling` near pairs are ones on which the four algorithms that go by feerate disagree.
    """

    n_near: int
    n_far: int
    n_telling: int
    scores: tuple[float, ...]  # as in ALGORITHMS


def order_scores(block: Sequence[BlockTransaction], max_error_ratio: float) -> OrderScores:
    """Score each algorithm on the transactions of one block, given in their order, without the coinbase."""
    links = _links(block)
    family = _families(links)
    families = np.array([family[each.place] for each in block], np.int64)
    near, far = _pairs(families, 1), _half_apart(families)
    keys = _keys(block, links)
    signs = {name: np.sign(values[near[:, 0]] - values[near[:, 1]]) for name, values in keys.items()}
    by_feerate = np.array([np.nan_to_num(signs[name]) for name in ALGORITHMS[:-1]])
    scores = []
    for name in ALGORITHMS:
        far_signs = np.sign(keys[name][far[:, 0]] - keys[name][far[:, 1]])
        score = _score(far_signs, max_error_ratio)
        if name != "first_come":
            score += _score(signs[name], max_error_ratio)
        scores.append(score)
    n_telling = int((by_feerate != by_feerate[0]).any(axis=0).sum())
    return OrderScores(len(near), len(far), n_telling, tuple(scores))


def ancestor_set_keys(fees: Mapping[int, int], sizes: Mapping[int, int], parents: Links) -> dict[int, float]:
    """Return the feerate at which the ancestor-set algorithm takes each transaction of one family.

    It is the lowest feerate of a package up to that of the transaction: what becomes worth more when its
    parents are taken follows them at once.
    """
    ancestors = _ancestors(parents)
    descendants: dict[int, list[int]] = {key: [] for key in fees}
    for key, found in ancestors.items():
        for ancestor in found:
            descendants[ancestor].append(key)
    taken: dict[int, float] = {}

    def score(key: int) -> float:
        package = ancestors[key] - taken.keys()
        feerate = sum(fees[each] for each in package) / sum(sizes[each] for each in package)
        return min(fees[key] / sizes[key], feerate)

    best = [(-score(key), key) for key in fees]
    heapq.heapify(best)
    lowest = math.inf
    while best:
        negated, key = heapq.heappop(best)
        if key in taken or -negated != score(key):
            continue  # an ancestor was taken meanwhile; the new score is in the heap too
        lowest = min(lowest, -negated)
        package = ancestors[key] - taken.keys()
        taken.update(dict.fromkeys(package, lowest))
        for changed in {each for member in package for each in descendants[member]} - taken.keys():
            heapq.heappush(best, (-score(changed), changed))
    return taken


def _keys(block: Sequence[BlockTransaction], links: Links) -> dict[str, Numbers]:
    """Return the sort keys that each algorithm gives the transactions of a block, by algorithm.

    Each array is in the order of the block; NaN stands for an unknown key.
    """
    fees = {each.place: each.fee_sat for each in block}
    sizes = {each.place: each.vsize_vb for each in block}
    weights = {each.place: each.weight_wu for each in block}
    adjusted = {
        each.place: -(-(each.weight_wu + ENVELOPE_EXTRA_WU * each.envelope_bytes) // 4)
        if each.envelope_bytes
        else each.vsize_vb
        for each in block
    }
    found: dict[str, dict[int, float]] = {
        "ancestor_sets": {key: fees[key] / sizes[key] for key in fees},
        "chunks": {key: fees[key] / weights[key] for key in fees},
        "data_cost": {key: fees[key] / adjusted[key] for key in fees},
        "plain": {},
    }
    for members in _members(_families(links)):
        own = {key: fees[key] for key in members}
        inside = {key: links[key] for key in members}
        found["ancestor_sets"] |= ancestor_set_keys(own, sizes, inside)
        found["chunks"] |= chunk_feerates(own, weights, inside)
        found["data_cost"] |= ancestor_set_keys(own, adjusted, inside)
    for key, fee_sat in fees.items():  # parents stand before their children
        bounds = [found["plain"][parent] for parent in links[key]]
        found["plain"][key] = min([fee_sat / sizes[key], *bounds])
    keys = {name: np.array([values[key] for key in fees]) for name, values in found.items()}
    keys["first_come"] = np.array(
        [math.nan if each.entered is None else -each.entered for each in block], np.float64
    )
    return keys


def _links(block: Sequence[BlockTransaction]) -> dict[int, list[int]]:
    """Return the parents of each transaction that are in the given list, by place in the block.

    In a valid block parents stand before their children.
    """
    places = {each.place for each in block}
    return {each.place: [parent for parent in each.parents if parent in places] for each in block}


def _families(links: Links) -> dict[int, int]:
    """Return for each transaction the one that stands for its family: all that parents and children link."""
    leader = {key: key for key in links}

    def find(key: int) -> int:
        while leader[key] != key:
            leader[key] = key = leader[leader[key]]
        return key

    for key, parents in links.items():
        for parent in parents:
            leader[find(key)] = find(parent)
    return {key: find(key) for key in links}


def _members(family: Mapping[int, int]) -> Iterable[list[int]]:
    """Return the transactions of each family that has two or more."""
    members: dict[int, list[int]] = {}
    for key, name in family.items():
        members.setdefault(name, []).append(key)
    return [keys for keys in members.values() if len(keys) > 1]


def _ancestors(links: Links) -> dict[int, set[int]]:
    """Return the ancestors of each transaction, itself included; parents must come before children."""
    found: dict[int, set[int]] = {}
    for key in sorted(links):
        found[key] = {key}.union(*(found[parent] for parent in links[key]))
    return found


def _half_apart(families: Pairs) -> Pairs:
    """Pair each transaction of a block's first half with the one half a block later; return the pairs.

    Pairs within one family are left out.
    """
    half = len(families) // 2
    return _pairs(families, half)[:half] if half else _pairs(families, 1)


def _pairs(families: Pairs, apart: int) -> Pairs:
    """Return the pairs of positions (first, second) that lie `apart` and are not of one family."""
    first = np.arange(max(len(families) - apart, 0))
    pairs: Pairs = np.stack([first, first + apart], axis=1)
    kept: Pairs = pairs[families[pairs[:, 0]] != families[pairs[:, 1]]]
    return kept


@cache
def _error_logs(max_error_ratio: float) -> tuple[Numbers, Numbers]:
    """Return, for each share of wrong pairs that a score considers, the logarithms of it and of its rest."""
    errors = (np.arange(ERROR_STEPS) + 0.5) * max_error_ratio / ERROR_STEPS
    return np.log(errors), np.log1p(-errors)


def _score(signs: Numbers, max_error_ratio: float) -> float:
    """Return the log likelihood ratio of an algorithm against an own order, from the signs of its pairs.

    A sign is positive for a pair in the algorithm's order, negative for one out of order, else it says
    nothing.
    """
    n_good, n_bad = int((signs > 0).sum()), int((signs < 0).sum())
    of_bad, of_good = _error_logs(max_error_ratio)
    logs = n_bad * of_bad + n_good * of_good
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).mean())) + (n_good + n_bad) * math.log(2)


def _order_scores_column(  # noqa: PLR0917 - DuckDB calls by position
    places: pa.ChunkedArray,
    fees: pa.ChunkedArray,
    sizes: pa.ChunkedArray,
    weights: pa.ChunkedArray,
    envelopes: pa.ChunkedArray,
    parents: pa.ChunkedArray,
    entries: pa.ChunkedArray,
    max_error_ratio: pa.ChunkedArray,
) -> pa.Array:
    """Return the scores of each row; each column but the last has lists with one item per transaction."""
    columns = (places, fees, sizes, weights, envelopes, parents, entries)
    rows = []
    for *cells, most in zip(*(column.to_pylist() for column in (*columns, max_error_ratio)), strict=True):
        lists = zip(*(cell or [] for cell in cells), strict=True)
        block = [BlockTransaction(*values) for values in lists]
        found = order_scores(block, most)
        rows.append(dict(zip(SCORES.names, (*found[:3], *found.scores), strict=True)))
    return pa.array(rows, SCORES)


FUNCTIONS: Final[tuple[SqlFunction, ...]] = (
    SqlFunction(
        "order_scores",
        _order_scores_column,
        [*["BIGINT[]"] * 5, "BIGINT[][]", "DOUBLE[]", "DOUBLE"],
        SCORES_SQL,
    ),
)
