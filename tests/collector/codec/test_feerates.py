"""Test effective feerates by worked examples and by their definition."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec import feerates as packages
from collector.codec.walk import BLOCK


def effective_feerates(
    vsizes: list[int], fees: list[int | None], parents: list[list[int]]
) -> list[float | None]:
    """Rate the transactions of one block."""
    block = np.zeros(1, BLOCK)
    block["n_tx"] = len(vsizes)
    rates = packages.effective_feerates(
        block,
        np.array(vsizes, np.int64),
        np.array([packages.UNKNOWN if fee is None else fee for fee in fees], np.int64),
        np.cumsum([0, *map(len, parents)]).astype(np.int32),
        np.array([parent for each in parents for parent in each], np.int32),
    )
    return [None if np.isnan(rate) else float(rate) for rate in rates]


def by_definition(vsizes: list[int], fees: list[int], parents: list[list[int]]) -> list[float]:
    """Take the best ancestor package again and again, over all transactions each time, in exact numbers."""

    def package(of: int) -> set[int]:
        return {of}.union(*(package(parent) for parent in parents[of] if parent not in taken))

    taken: dict[int, Fraction] = {}
    while len(taken) < len(fees):
        packages = {i: package(i) for i in range(len(fees)) if i not in taken}
        rates = {i: Fraction(sum(fees[j] for j in p), sum(vsizes[j] for j in p)) for i, p in packages.items()}
        best = max(packages, key=lambda i: (rates[i], -i))
        ancestors = {best}
        for _ in parents:
            ancestors |= {parent for i in ancestors for parent in parents[i]}
        rate = min([rates[best], *(taken[i] for i in ancestors if i in taken)])
        taken |= dict.fromkeys(packages[best], rate)
    return [float(taken[i]) for i in range(len(fees))]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]]]:
    """Draw sizes, fees and parents of up to 12 transactions; few distinct numbers, so that packages tie."""
    count = draw(st.integers(1, 12))
    vsizes = draw(st.lists(st.sampled_from([1, 2, 3, 100, 141]), min_size=count, max_size=count))
    fees = draw(st.lists(st.sampled_from([0, 1, 2, 3, 100, 999]), min_size=count, max_size=count))
    parents = [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)]
    return vsizes, fees, parents


@settings(max_examples=300, deadline=None)
@given(blocks())
def test_rates_are_those_of_the_definition(block: tuple[list[int], list[int], list[list[int]]]) -> None:
    """Chains, diamonds, ties and everything between come out as the slow definition says."""
    assert effective_feerates(*block) == pytest.approx(by_definition(*block), rel=1e-12)


@settings(deadline=None)
@given(blocks())
def test_no_transaction_beats_its_parents(block: tuple[list[int], list[int], list[list[int]]]) -> None:
    """A rate above that of a parent could not have been had without the parent."""
    rates = effective_feerates(*block)
    for child, parents in enumerate(block[2]):
        for parent in parents:
            assert rates[child] <= rates[parent]


@pytest.mark.parametrize(
    ("vsizes", "fees", "parents", "rates"),
    [
        ([100], [250], [[]], [2.5]),
        # CPFP: the child pays for its parent, and both go at the package's rate.
        ([100, 100], [100, 900], [[], [0]], [5.0, 5.0]),
        # A cheap child drags nothing down.
        ([100, 100], [900, 100], [[], [0]], [9.0, 1.0]),
        # Two children: the better one lifts the parent, the other goes alone.
        ([100, 100, 100], [100, 900, 200], [[], [0], [0]], [5.0, 5.0, 2.0]),
        # Two equal children: the second could pay 9 alone, but its parent went at 5.
        ([100, 100, 100], [100, 900, 900], [[], [0], [0]], [5.0, 5.0, 5.0]),
        # Diamond: 0 <- 1, 2 <- 3, all lifted by the last.
        ([100, 100, 100, 100], [0, 0, 0, 800], [[], [0], [0], [1, 2]], [2.0] * 4),
        # A chain whose middle pays for what is before it, not for what is behind.
        ([100, 100, 100], [100, 500, 50], [[], [0], [1]], [3.0, 3.0, 0.5]),
        # Free transactions have a rate, too.
        ([100, 100], [0, 0], [[], []], [0.0, 0.0]),
        ([], [], [], []),
    ],
)
def test_worked_examples(
    vsizes: list[int], fees: list[int], parents: list[list[int]], rates: list[float]
) -> None:
    """Packages small enough to do by hand."""
    assert effective_feerates(vsizes, fees, parents) == rates


def test_an_unknown_fee_leaves_its_relatives_without_a_rate() -> None:
    """What is connected with an unknown fee is unknown; the rest of the block is not."""
    parents = [[], [0], [0], [], [3], []]
    assert effective_feerates([100] * 6, [None, 100, 100, 300, 300, 200], parents) == [
        None,
        None,
        None,
        3.0,
        3.0,
        2.0,
    ]


def test_a_long_chain_is_no_trouble() -> None:
    """In a chain of a thousand, each paying a little less, every transaction has its own rate."""
    fees = [10_000 - i for i in range(1000)]
    parents = [[i - 1] if i else [] for i in range(1000)]
    assert effective_feerates([100] * 1000, fees, parents) == [fee / 100 for fee in fees]
    last_pays = [0] * 999 + [100_000]
    assert effective_feerates([100] * 1000, last_pays, parents) == [1.0] * 1000
