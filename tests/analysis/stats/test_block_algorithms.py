"""Test the keys of each algorithm and how a block in its order scores."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from analysis.stats.block_algorithms import (
    ALGORITHMS,
    Block,
    OrderScores,
    ancestor_set_keys,
    order_scores,
)
from tests.collector.codec.test_feerates import blocks

MOST = 0.25


@dataclass(frozen=True, kw_only=True)
class Tx:
    """Holds the facts of one transaction; by default it has 100 vB, no parents and no time of entry."""

    fee_sat: int
    vsize_vb: int = 100
    weight_wu: int = 400
    envelope_bytes: int = 0
    parents: Sequence[int] = ()
    entered: float = math.nan


def block_of(txs: Sequence[Tx]) -> Block:
    """Make a block of transactions in this order."""
    names = ("fee_sat", "vsize_vb", "weight_wu", "envelope_bytes")
    numbers = [np.array([getattr(tx, name) for tx in txs], np.int64) for name in names]
    parents = {place: tx.parents for place, tx in enumerate(txs) if tx.parents}
    return Block(*numbers, np.array([tx.entered for tx in txs], np.float64), parents)


def scores(found: OrderScores) -> dict[str, float]:
    """Return the scores of a block by algorithm."""
    return dict(zip(ALGORITHMS, found.scores, strict=True))


def score_of(n_good: int, n_bad: int) -> float:
    """Integrate over the error by Simpson's rule: ln(mean of e^bad (1 - e)^good) + (good + bad) ln 2."""

    def density(error: float) -> float:
        return error**n_bad * (1 - error) ** n_good

    width = MOST / 2000
    inner = sum((4 if step % 2 else 2) * density(step * width) for step in range(1, 2000))
    mean = (density(0) + inner + density(MOST)) * width / 3 / MOST
    return math.log(mean) + (n_good + n_bad) * math.log(2)


def by_definition(sizes: list[int], fees: list[int], parents: list[list[int]]) -> list[float]:
    """Take the package with the best score again and again, in exact numbers, and keep the lowest score."""

    def package(of: int) -> set[int]:
        return {of}.union(*(package(parent) for parent in parents[of] if parent not in taken))

    taken: dict[int, Fraction] = {}
    lowest = Fraction(10**9)
    while len(taken) < len(fees):
        packages = {i: package(i) for i in range(len(fees)) if i not in taken}
        rates = {
            i: min(
                Fraction(fees[i], sizes[i]),
                Fraction(sum(fees[j] for j in members), sum(sizes[j] for j in members)),
            )
            for i, members in packages.items()
        }
        best = max(rates, key=lambda i: (rates[i], -i))
        lowest = min(lowest, rates[best])
        taken |= dict.fromkeys(packages[best], lowest)
    return [float(taken[i]) for i in range(len(fees))]


@settings(max_examples=200, deadline=None)
@given(blocks())
def test_ancestor_set_keys_keep_the_definition(block: tuple[list[int], list[int], list[list[int]]]) -> None:
    """Over a family, the keys are those of the plain way: look at all packages before each step."""
    sizes, fees, parents = block
    joined = [[*links, 0] if place and 0 not in links else links for place, links in enumerate(parents)]

    found = ancestor_set_keys(dict(enumerate(fees)), dict(enumerate(sizes)), dict(enumerate(joined)))

    assert [found[place] for place in range(len(fees))] == by_definition(sizes, fees, joined)


@pytest.mark.parametrize(("n_good", "n_bad"), [(20, 0), (17, 3), (10, 10)])
def test_a_score_is_the_mean_likelihood_over_all_errors(n_good: int, n_bad: int) -> None:
    """Far pairs alone count for first come: so many stand in order of entry, so many do not."""
    n = n_good + n_bad
    entered = [float(i) for i in range(n)] + [float(i + (-1000 if i < n_bad else 1000)) for i in range(n)]
    block = [Tx(fee_sat=100, entered=time) for time in entered]

    found = order_scores(block_of(block), MOST)

    assert (found.n_near, found.n_far) == (2 * n - 1, n)
    assert scores(found) == pytest.approx(
        dict.fromkeys(ALGORITHMS[:-1], 0) | {"first_come": score_of(n_good, n_bad)}, abs=1e-4
    )


def test_equal_keys_and_unknown_entries_say_nothing() -> None:
    """A block in which all pay the same leaves everything open."""
    block = [Tx(fee_sat=700)] * 39

    assert order_scores(block_of(block), MOST).scores == pytest.approx([0] * 5)


def test_members_of_one_family_are_not_compared() -> None:
    """A block that is one chain has no pair at all, in whatever order it pays."""
    block = [Tx(fee_sat=100 * place, parents=[place - 1] if place else []) for place in range(20)]

    assert order_scores(block_of(block), MOST) == OrderScores(0, 0, 0, (0.0,) * 5)


def test_a_block_without_transactions_has_no_pairs() -> None:
    """An empty block leaves everything open."""
    assert order_scores(block_of([]), MOST) == OrderScores(0, 0, 0, (0.0,) * 5)


def pays_for_two(draw: random.Random, feerate: float) -> list[int]:
    """Return fees of a parent and two children whose chunk pays `feerate` and holds all three."""
    parent = round(draw.uniform(1, feerate / 3) * 100)
    child = (round(feerate * 300) - parent) // 2
    return [parent, child, child]


def plant(draw: random.Random, key_of: Callable[[list[int]], float]) -> list[Tx]:
    """Make a block of single transactions and families of three, by falling key of the whole family."""
    units = [[round(draw.uniform(1, 100) * 100)] for _ in range(60)]
    units += [pays_for_two(draw, draw.uniform(5, 60)) for _ in range(12)]
    units.sort(key=key_of, reverse=True)
    block: list[Tx] = []
    for fees in units:
        first = len(block)
        block += [Tx(fee_sat=fee, parents=[first] if i else []) for i, fee in enumerate(fees)]
    return block


@pytest.mark.parametrize(
    ("name", "key_of"),
    [
        ("chunks", lambda fees: sum(fees) / len(fees)),
        ("ancestor_sets", lambda fees: sum(fees[:2]) / len(fees[:2])),
        ("plain", lambda fees: fees[0]),
    ],
)
def test_a_block_scores_highest_for_the_algorithm_that_made_it(
    name: str, key_of: Callable[[list[int]], float]
) -> None:
    """Families stand where their chunk, the best ancestor set, or the parent alone would stand."""
    seed = random.SystemRandom().randrange(1_000_000)

    found = scores(order_scores(block_of(plant(random.Random(seed), key_of)), MOST))  # noqa: S311 - a repeatable world

    rest = {key: value for key, value in found.items() if key != name}
    if name == "ancestor_sets":
        assert rest.pop("data_cost") == found[name], f"seed {seed}"
    assert found[name] > max(rest.values()) + 5, f"seed {seed}: {found}"
    assert found["first_come"] == 0


def test_an_envelope_counts_in_full_for_data_cost() -> None:
    """A transaction of 500 vB with 1,000 bytes in an envelope pays 10 sat/vB, or 4 with data in full."""
    block = [Tx(fee_sat=2100 - 100 * place) for place in range(1, 18)]
    block.append(Tx(fee_sat=5000, vsize_vb=500, weight_wu=2000, envelope_bytes=1000))
    block += [Tx(fee_sat=290), Tx(fee_sat=240)]

    found = scores(order_scores(block_of(block), MOST))

    assert found["data_cost"] > found["ancestor_sets"] + 2
    assert found["ancestor_sets"] == found["chunks"] == found["plain"]
