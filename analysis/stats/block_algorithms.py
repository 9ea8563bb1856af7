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
from itertools import chain
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
Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Describes the n transactions of a block, in their order, without the coinbase.

    `entered` are times of entry in any unit, NaN where unknown. `parents` has the places (0 to n - 1) of the
    parents that are in the block, for each transaction that has such parents, in rising order of places.
    """

    fees_sat: Integers  # int64[n], like the next three
    vsizes_vb: Integers
    weights_wu: Integers
    envelopes_bytes: Integers
    entered: Numbers  # float64[n]
    parents: Links


class OrderScores(NamedTuple):
    """Holds the numbers of pairs of a block, and the score of each algorithm in nats against an own order.

    `n_telling` near pairs are ones on which the four algorithms that go by feerate disagree.
    """

    n_near: int
    n_far: int
    n_telling: int
    scores: tuple[float, ...]  # as in ALGORITHMS


def order_scores(block: Block, max_error_ratio: float) -> OrderScores:
    """Score each algorithm on the transactions of one block."""
    families = _families(len(block.fees_sat), block.parents)
    near, far = _pairs(families, 1), _half_apart(families)
    keys = _keys(block, families)
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


def _keys(block: Block, families: Integers) -> dict[str, Numbers]:
    """Return the sort keys that each algorithm gives the transactions of a block, by algorithm: float64[n].

    NaN stands for an unknown key. A transaction without relatives in the block has its own feerate.
    """
    in_full = -(-(block.weights_wu + ENVELOPE_EXTRA_WU * block.envelopes_bytes) // 4)
    adjusted = np.where(block.envelopes_bytes > 0, in_full, block.vsizes_vb)
    sizes = {"ancestor_sets": block.vsizes_vb, "chunks": block.weights_wu, "data_cost": adjusted}
    found = {name: block.fees_sat / size for name, size in sizes.items()}
    found["plain"] = found["ancestor_sets"].copy()
    for key, parents in block.parents.items():  # parents stand before their children
        found["plain"][key] = min(found["plain"][[key, *parents]])
    for members in _members(block.parents, families):
        fees = dict(zip(members, block.fees_sat[members].tolist(), strict=True))
        links = {key: block.parents.get(key, ()) for key in members}
        for name, of_all in sizes.items():
            of_members = dict(zip(members, of_all[members].tolist(), strict=True))
            keys_of = chunk_feerates if name == "chunks" else ancestor_set_keys
            keys = keys_of(fees, of_members, links)
            found[name][members] = [keys[key] for key in members]
    return {**found, "first_come": -block.entered}


def _families(n_txs: int, parents: Links) -> Integers:
    """Return for each transaction the place of the one that stands for its family: int64[n_txs].

    A family is all transactions that are linked by parents and children.
    """
    leader = list(range(n_txs))

    def find(key: int) -> int:
        while leader[key] != key:
            leader[key] = key = leader[leader[key]]
        return key

    for key, of_key in parents.items():
        for parent in of_key:
            leader[find(key)] = find(parent)
    for key in _related(parents):
        leader[key] = find(key)
    return np.array(leader, np.int64)


def _related(parents: Links) -> set[int]:
    """Return the places of all transactions that have a parent or a child in the block."""
    return {*parents, *chain.from_iterable(parents.values())}


def _members(parents: Links, families: Integers) -> Iterable[list[int]]:
    """Return the transactions of each family that has two or more, in the order of the block."""
    members: dict[int, list[int]] = {}
    for key in sorted(_related(parents)):
        members.setdefault(int(families[key]), []).append(key)
    return members.values()


def _ancestors(links: Links) -> dict[int, set[int]]:
    """Return the ancestors of each transaction, itself included; parents must come before children."""
    found: dict[int, set[int]] = {}
    for key in sorted(links):
        found[key] = {key}.union(*(found[parent] for parent in links[key]))
    return found


def _half_apart(families: Integers) -> Integers:
    """Pair each transaction of a block's first half with the one half a block later; return the pairs.

    Pairs within one family are left out.
    """
    half = len(families) // 2
    return _pairs(families, half)[:half] if half else _pairs(families, 1)


def _pairs(families: Integers, apart: int) -> Integers:
    """Return the pairs of positions (first, second) that lie `apart` and are not of one family."""
    first = np.arange(max(len(families) - apart, 0))
    pairs: Integers = np.stack([first, first + apart], axis=1)
    kept: Integers = pairs[families[pairs[:, 0]] != families[pairs[:, 1]]]
    return kept


@cache
def _error_logs(max_error_ratio: float) -> tuple[Numbers, Numbers]:
    """Return ln(e) and ln(1 - e) for each probability of error e that a score considers."""
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
    for *cells, most in zip(*columns, max_error_ratio, strict=True):
        found = order_scores(_block(*cells), most.as_py())
        rows.append(dict(zip(SCORES.names, (*found[:3], *found.scores), strict=True)))
    return pa.array(rows, SCORES)


def _block(  # noqa: PLR0917 - as DuckDB gives them
    places: pa.Scalar,
    fees: pa.Scalar,
    sizes: pa.Scalar,
    weights: pa.Scalar,
    envelopes: pa.Scalar,
    parents: pa.Scalar,
    entries: pa.Scalar,
) -> Block:
    """Return the block of one row, whose lists have one item per transaction, by rising place.

    Only entries may be null. `parents` are lists of places. Parents that are not among the places are left
    out. Raises ValueError for lists of unequal lengths, and for places that do not rise.
    """
    if not places.is_valid:
        none = np.empty(0, np.int64)
        return Block(none, none, none, none, np.empty(0), {})
    known = places.values.to_numpy()
    lengths = {len(cell.values) for cell in (places, fees, sizes, weights, envelopes, parents, entries)}
    if len(lengths) > 1 or (np.diff(known) <= 0).any():
        raise ValueError("order_scores needs lists of one length, in the order of rising places")
    links = parents.values
    children = np.repeat(np.arange(len(links)), links.value_lengths().to_numpy())
    named = links.flatten().to_numpy()
    at = np.searchsorted(known, named)
    is_inside = known[np.minimum(at, len(known) - 1)] == named
    in_block: dict[int, list[int]] = {}
    for child, parent in zip(children[is_inside].tolist(), at[is_inside].tolist(), strict=True):
        in_block.setdefault(child, []).append(parent)
    return Block(
        fees_sat=fees.values.to_numpy(),
        vsizes_vb=sizes.values.to_numpy(),
        weights_wu=weights.values.to_numpy(),
        envelopes_bytes=envelopes.values.to_numpy(),
        entered=entries.values.to_numpy(zero_copy_only=False),
        parents=in_block,
    )


FUNCTIONS: Final[tuple[SqlFunction, ...]] = (
    SqlFunction(
        "order_scores",
        _order_scores_column,
        [*["BIGINT[]"] * 5, "BIGINT[][]", "DOUBLE[]", "DOUBLE"],
        SCORES_SQL,
    ),
)
