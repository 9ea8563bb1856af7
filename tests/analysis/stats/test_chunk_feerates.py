"""Compare chunk feerates with a search through all sets, and their runs with a computation per cut."""

from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.chunk_feerates import Member, chunk_feerates, chunk_runs

Fees = dict[int, int]
Parents = dict[int, list[int]]


def chunks_by_trying(fees: Fees, sizes: Fees, parents: Parents) -> dict[int, Fraction]:
    """Compute chunk feerates by taking again and again the best of all sets that hold their ancestors."""
    left, found = set(fees), {}
    while left:
        best: tuple[Fraction, set[int]] | None = None
        for n in range(1, len(left) + 1):
            for chosen in map(set, combinations(sorted(left), n)):
                if any(set(parents[key]) & left - chosen for key in chosen):
                    continue
                rate = Fraction(sum(fees[key] for key in chosen), sum(sizes[key] for key in chosen))
                if best is None or rate > best[0]:
                    best = (rate, chosen)
        assert best is not None
        found.update(dict.fromkeys(best[1], best[0]))
        left -= best[1]
    return found


@st.composite
def clusters(draw: st.DrawFn, most: int = 7) -> tuple[Fees, Fees, Parents]:
    """Draw a few transactions, each with some parents among those before it."""
    n = draw(st.integers(1, most))
    numbers = st.integers(1, 9)
    fees = {key: draw(st.integers(0, 30)) for key in range(n)}
    sizes = {key: draw(numbers) for key in range(n)}
    parents = {
        key: sorted(draw(st.sets(st.integers(0, key - 1), max_size=3)) if key else []) for key in range(n)
    }
    return fees, sizes, parents


@given(clusters())
def test_chunks_are_those_of_the_best_order(cluster: tuple[Fees, Fees, Parents]) -> None:
    """Every transaction has the chunk feerate that a search through all sets gives."""
    expected = {key: float(rate) for key, rate in chunks_by_trying(*cluster).items()}

    assert chunk_feerates(*cluster) == expected


@given(clusters(most=12))
def test_chunks_hold_all_fees_and_no_child_is_above_its_parent(cluster: tuple[Fees, Fees, Parents]) -> None:
    """Chunk feerates times sizes add up to the fees; no child's chunk feerate is above its parent's."""
    fees, sizes, parents = cluster

    rates = chunk_feerates(fees, sizes, parents)
    assert abs(sum(rates[key] * sizes[key] for key in fees) - sum(fees.values())) < 1e-9
    assert all(rates[key] <= rates[parent] for key in fees for parent in parents[key])


def test_two_children_pay_for_one_parent_together() -> None:
    """Two children lift a parent's chunk to 5 sat/vB, which neither does alone; the ancestor score is 4."""
    fees, sizes, parents = {0: 0, 1: 8, 2: 7}, {0: 1, 1: 1, 2: 1}, {1: [0], 2: [0]}

    assert chunk_feerates(fees, sizes, parents) == dict.fromkeys(range(3), 5.0)


def test_a_parent_that_has_left_counts_no_more() -> None:
    """A parent that is not in the cluster counts as confirmed."""
    assert chunk_feerates({1: 8}, {1: 2}, {1: [0]}) == {1: 4.0}


stays = st.tuples(st.integers(1, 6), st.integers(0, 4))


@given(clusters(), st.lists(stays, min_size=7, max_size=7))
def test_runs_say_the_same_as_looking_at_every_cut(
    cluster: tuple[Fees, Fees, Parents], spans: list[tuple[int, int]]
) -> None:
    """At every cut, each waiting transaction has one run, with the chunk feerate of that cut alone."""
    fees, sizes, parents = cluster
    members = [Member(spans[key][0], sum(spans[key]), fees[key], sizes[key]) for key in fees]
    links = [(key, parent) for key in fees for parent in parents[key]]

    found: dict[tuple[int, int], float] = {}
    for run in chunk_runs(members, links):
        for cut_no in range(run.first_cut_no, run.last_cut_no + 1):
            assert (run.member, cut_no) not in found
            found[run.member, cut_no] = run.feerate
    expected = {}
    for cut_no in range(12):
        here = [key for key in fees if members[key].first_cut_no <= cut_no <= members[key].last_cut_no]
        rates = chunk_feerates({key: fees[key] for key in here}, sizes, parents)
        expected |= {(key, cut_no): rate for key, rate in rates.items()}
    assert found == expected
