"""Find which algorithm a pool builds its blocks with, how sure that is, and after which block it changed.

As SQL functions:

    orders_left_open(scores)                             the algorithms that one block leaves open
    order_segments(scores, stray_ratio, change_ratio)    the pieces of a pool's blocks, with their algorithms

The scores of a block are those of `order_scores` (analysis/stats/block_algorithms.py): the logarithm of the
likelihood of each algorithm against an own order, which scores 0. Beforehand each algorithm and the own order
are equally probable.

The model of a pool: all blocks of a piece follow one algorithm, but each block is a stray one with the
probability `stray_ratio`, and then each algorithm is as probable as any other. So no single block decides.
After each block the pool changes its algorithm with the probability `change_ratio`. The pieces are the most
probable ones of this hidden Markov model, found by Viterbi's algorithm. A change lies at any block between
the middle blocks of its two pieces with the probability that the scores give it; its interval has 95 %.

Why not ruptures: its costs fit means or lines to numbers, and a piece here is one of six given models.

Sources: A. J. Viterbi, 1967, doi:10.1109/TIT.1967.1054010; L. R. Rabiner, 1989, doi:10.1109/5.18626.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from analysis.stats.block_algorithms import ALGORITHMS
from analysis.stats.intervals import CONFIDENCE
from analysis.stats.sql_functions import Numbers, SqlFunction

OWN: Final = "own"
ORDERS: Final = (*ALGORITHMS, OWN)
AS_GOOD: Final = 1e-9  # probabilities that differ by less are equal
SEGMENT: Final = pa.struct(
    [
        ("first_no", pa.int64()),
        ("last_no", pa.int64()),
        ("first_low_no", pa.int64()),
        ("first_high_no", pa.int64()),
        ("n_against", pa.int64()),
        ("left_open", pa.list_(pa.string())),
        *((name, pa.float64()) for name in ORDERS),
    ]
)
SEGMENT_SQL: Final = (
    "first_no BIGINT, last_no BIGINT, first_low_no BIGINT, first_high_no BIGINT, n_against BIGINT, "
    "left_open VARCHAR[], " + ", ".join(f"{name} DOUBLE" for name in ORDERS)
)


class Segment(NamedTuple):
    """Describes a piece of a pool's blocks with one algorithm; blocks are numbered from 1 in order of height.

    `first_low` to `first_high` is the interval of its first block. `left_open` are the orders that the piece
    leaves open. Some of its blocks may exclude each of these; `n_against` is the smallest number of such
    blocks. `probabilities` are those of ORDERS.
    """

    first: int
    last: int
    first_low: int | None
    first_high: int | None
    n_against: int
    left_open: list[str]
    probabilities: Numbers


def posterior(scores: Numbers) -> Numbers:
    """Return the posterior probabilities of the ways to order a block from their log likelihoods.

    The ways are along the last axis.
    """
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Numbers = weights / weights.sum(axis=-1, keepdims=True)
    return found


def left_open_of(probabilities: Numbers) -> list[str]:
    """Return the most probable orders up to a total of 95 %, and those that tie with the last of them."""
    order = np.argsort(-probabilities, kind="stable")
    sums = probabilities[order].cumsum()
    least = probabilities[order[int(np.searchsorted(sums, CONFIDENCE - AS_GOOD))]] - AS_GOOD
    return [name for name, each in zip(ORDERS, probabilities, strict=True) if each >= least]


def segments(scores: Numbers, stray_ratio: float, change_ratio: float) -> list[Segment]:
    """Split a pool's blocks into pieces, each explained by one algorithm, and return the pieces.

    `scores` has a row per block and a column per algorithm.
    """
    by_block = posterior(np.column_stack([scores, np.zeros(len(scores))]))
    logs = np.log((1 - stray_ratio) * by_block + stray_ratio / len(ORDERS))
    left_open = [left_open_of(each) for each in by_block]
    labels = _most_probable_labels(logs, change_ratio)
    starts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist()]
    ends = [*starts[1:], len(labels)]
    found = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        low = high = None
        if number:
            before = starts[number - 1]
            low, high = _interval_of_change(logs[before:end], labels[before], labels[start], start - before)
            low, high = low + before + 1, high + before + 1
        probabilities = posterior(logs[start:end].sum(axis=0))
        still_open = left_open_of(probabilities)
        n_against = min(sum(name not in each for each in left_open[start:end]) for name in still_open)
        found.append(Segment(start + 1, end, low, high, n_against, still_open, probabilities))
    return found


def _most_probable_labels(logs: Numbers, change_ratio: float) -> Sequence[int]:
    """Return the most probable order (its number) of each block, by Viterbi's algorithm."""
    n_orders = logs.shape[1]
    stay, change = np.log1p(-change_ratio), np.log(change_ratio / (n_orders - 1))
    best = logs[0].copy()
    came_from = np.tile(np.arange(n_orders), (len(logs), 1))
    for number in range(1, len(logs)):
        leader = int(best.argmax())
        changes = best[leader] + change > best + stay
        came_from[number, changes] = leader
        best = np.where(changes, best[leader] + change, best + stay) + logs[number]
    labels = [int(best.argmax())]
    for number in range(len(logs) - 1, 0, -1):
        labels.append(int(came_from[number, labels[-1]]))
    return labels[::-1]


def _interval_of_change(logs: Numbers, before: int, after: int, start: int) -> tuple[int, int]:
    """Return the 95 % interval of the number of blocks before a change between two orders.

    `start` is the most probable number. The change lies between the middles of the two pieces.
    """
    first, last = max(start // 2, 1), start + (len(logs) - start) // 2
    gains = np.concatenate([[0.0], (logs[:, before] - logs[:, after]).cumsum()])[first : last + 1]
    sums = posterior(gains).cumsum()
    tail = (1 - CONFIDENCE) / 2
    low = first + int(np.searchsorted(sums, tail))
    high = first + int(np.searchsorted(sums, 1 - tail))
    return min(low, start), max(min(high, last), start)


def _left_open_column(scores: pa.ChunkedArray) -> pa.Array:
    """Return for each block the names of its most probable orders, up to a total probability of 95 %.

    `scores` has one list per block.
    """
    rows = [left_open_of(posterior(np.array([*each, 0.0]))) for each in scores.to_pylist()]
    return pa.array(rows, pa.list_(pa.string()))


def _segments_column(
    scores: pa.ChunkedArray, stray_ratio: pa.ChunkedArray, change_ratio: pa.ChunkedArray
) -> pa.Array:
    """Return for each row, a pool, the pieces of its blocks; `scores` are a list per block, by height."""
    rows = []
    for blocks, stray, change in zip(
        scores.to_pylist(), stray_ratio.to_pylist(), change_ratio.to_pylist(), strict=True
    ):
        found = segments(np.array(blocks), stray, change)
        rows.append(
            [
                dict(zip(SEGMENT.names, (*each[:6], *each.probabilities.tolist()), strict=True))
                for each in found
            ]
        )
    return pa.array(rows, pa.list_(SEGMENT))


FUNCTIONS: Final = (
    SqlFunction("orders_left_open", _left_open_column, ["DOUBLE[]"], "VARCHAR[]"),
    SqlFunction(
        "order_segments",
        _segments_column,
        ["DOUBLE[][]", "DOUBLE", "DOUBLE"],
        f"STRUCT({SEGMENT_SQL})[]",
    ),
)
