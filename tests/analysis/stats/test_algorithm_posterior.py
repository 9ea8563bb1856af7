"""Test what the scores of blocks say of a pool: its algorithm, its changes, and how often both are wrong."""

import itertools
import random

import numpy as np
import pytest

from analysis.stats.algorithm_posterior import ORDERS, Segment, left_open_of, posterior, segments
from analysis.stats.sql_functions import Numbers

STRAY, CHANGE = 0.1, 0.001
ANCESTOR_SETS, CHUNKS, FIRST_COME = 0, 1, 4


def random_source() -> tuple[int, np.random.Generator]:
    """Return a seed that is drawn now, and a generator from it."""
    seed = random.SystemRandom().randrange(1_000_000)
    return seed, np.random.default_rng(seed)


def pool(labels: list[int], by_nats: float = 8.0) -> Numbers:
    """Return scores of blocks, each of which speaks for one algorithm; ancestor sets tie with data cost."""
    by_label = np.full((len(ORDERS), len(ORDERS) - 1), -by_nats)
    np.fill_diagonal(by_label, by_nats)
    tied = [ANCESTOR_SETS, ORDERS.index("data_cost")]
    by_label[np.ix_(tied, tied)] = by_nats
    return by_label[labels]


def found(scores: Numbers) -> list[Segment]:
    """Cut a pool's blocks with the parameters of the mart."""
    return segments(scores, STRAY, CHANGE)


def test_what_ties_stays_open_together() -> None:
    """Two orders that share the evidence are both named, and the own order where nothing else fits."""
    (both,) = found(pool([ANCESTOR_SETS] * 5))
    (own,) = found(pool([len(ORDERS) - 1] * 5))

    assert both.left_open == ["ancestor_sets", "data_cost"]
    assert both.probabilities[ANCESTOR_SETS] == pytest.approx(0.5, abs=1e-3)
    assert own.left_open == ["own"]


def test_no_single_block_decides() -> None:
    """A block that speaks for one algorithm with any strength leaves others open; the second one decides."""
    (one,) = found(pool([CHUNKS], by_nats=500))
    (two,) = found(pool([CHUNKS] * 2, by_nats=500))

    assert len(one.left_open) > 1
    assert two.left_open == ["chunks"]


def test_blocks_that_say_nothing_leave_all_open() -> None:
    """Without evidence the probabilities are those before: one sixth each."""
    (segment,) = found(np.zeros((30, 5)))

    assert segment.probabilities == pytest.approx([1 / 6] * 6)
    assert segment.left_open == list(ORDERS)


def test_the_pieces_are_the_most_probable_ones() -> None:
    """Of all sequences of algorithms for seven blocks, none is more probable than the one that is found."""
    seed, draw = random_source()
    scores = draw.normal(0, 4, (7, 2)) @ np.eye(2, 5)  # the other three tie with an own order
    logs = np.log((1 - STRAY) * posterior(np.column_stack([scores, np.zeros(7)])) + STRAY / 6)
    change = 0.2

    def log_probability(labels: tuple[int, ...]) -> float:
        n_changes = sum(a != b for a, b in itertools.pairwise(labels))
        paid = n_changes * np.log(change / 5) + (6 - n_changes) * np.log1p(-change)
        return float(logs[range(7), labels].sum() + paid)

    pieces = segments(scores, STRAY, change)
    best = max(log_probability(labels) for labels in itertools.product((0, 1, 5), repeat=7))
    reached = max(
        log_probability(tuple(np.repeat(labels, [piece.last - piece.first + 1 for piece in pieces])))
        for labels in itertools.product((0, 1, 5), repeat=len(pieces))
    )
    assert reached == pytest.approx(best), f"seed {seed}"


def test_a_change_is_found_within_its_interval() -> None:
    """200 pools go over to chunks at block 41 of 90, a tenth of them stray: 195 are seen to, 180 in time."""
    seed, draw = random_source()
    n_found = n_inside = 0
    for _ in range(200):
        strays = draw.random(90) < STRAY
        drawn = draw.integers(len(ORDERS), size=90)
        pieces = found(pool(np.where(strays, drawn, [ANCESTOR_SETS] * 40 + [CHUNKS] * 50).tolist()))
        if [piece.left_open for piece in pieces] == [["ancestor_sets", "data_cost"], ["chunks"]]:
            low, high = pieces[1].first_low, pieces[1].first_high
            assert low is not None
            assert high is not None
            n_found += 1
            n_inside += low <= 41 <= high
    assert n_found >= 195, f"seed {seed}"
    assert n_inside >= 180, f"seed {seed}"


def test_pools_that_never_change_have_no_change() -> None:
    """Of 300 pools with 200 blocks, a tenth stray, at most three have a change and no other a wrong name."""
    seed, draw = random_source()
    n_changes = 0
    for _ in range(300):
        own = int(draw.integers(6))
        labels = [own if draw.random() >= STRAY else int(draw.integers(6)) for _ in range(200)]
        pieces = found(pool(labels))
        n_changes += len(pieces) > 1
        assert ORDERS[own] in pieces[-1].left_open or len(pieces) > 1, f"seed {seed}"
    assert n_changes <= 3, f"seed {seed}"


def test_blocks_against_what_is_left_open_are_counted() -> None:
    """Every third block of another make is against, half of two makes; blocks that say nothing are not."""
    (segment,) = found(np.vstack([pool([CHUNKS, CHUNKS, FIRST_COME] * 4), np.zeros((5, 5))]))

    (split,) = found(pool([CHUNKS, FIRST_COME] * 6))

    assert (segment.left_open, segment.n_against) == (["chunks"], 4)
    assert (split.left_open, split.n_against) == (["chunks", "first_come"], 6)


def test_what_is_left_open_holds_at_least_95_percent() -> None:
    """The most probable come first, until they have 95 %; what ties with the last is named as well."""
    assert left_open_of(np.array([0.5, 0.46, 0.01, 0.01, 0.01, 0.01])) == ["ancestor_sets", "chunks"]
    assert left_open_of(np.array([0.90, 0.02, 0.02, 0.02, 0.02, 0.02])) == list(ORDERS)
