"""Test the schedules of simulated workers on graphs that can be worked out by hand."""

import pytest

from analysis.catalog import load_catalog
from tests.bench.replay import Node, graph_makespan_s, lengthened, makespan_s, nodes, replays

FIRST = Node("first", [4.0], frozenset(), is_ranged=False)
RANGES = Node("ranges", [2.0, 2.0, 2.0], frozenset({"first"}), is_ranged=True)
APART = Node("apart", [5.0], frozenset(), is_ranged=False)
GRAPH = [FIRST, RANGES, APART]


def test_each_part_goes_to_the_worker_that_is_free_first() -> None:
    """Parts of 3, 3, 2, 2 and 2 seconds end after 7 s on two workers, and after 12 s on one."""
    assert makespan_s([3, 3, 2, 2, 2], 2) == 7
    assert makespan_s([3, 3, 2, 2, 2], 1) == 12


def test_a_part_waits_for_the_marts_that_it_reads() -> None:
    """Ranges start after the mart that they read; what reads nothing fills the time beside it."""
    assert graph_makespan_s(GRAPH, 1) == 15
    assert graph_makespan_s(GRAPH, 2) == 8
    assert graph_makespan_s(GRAPH, 9) == 6


def test_efficiency_counts_the_process_that_schedules() -> None:
    """It works 3 s alone and 2 s beside 15 s of parts: two workers take 11 s by graph, one takes 18 s.

    In turn they take 18 s where one takes 20 s, and 4 s for the ranges alone, 6 s of work.
    """
    found = replays(GRAPH, 3, 2, 2)

    assert found == pytest.approx({"ranges": 6 / 8, "in_turn": 20 / 36, "by_graph": 18 / 22})
    assert replays(GRAPH, 3, 100, 2)["by_graph"] == 0.5


def test_a_longer_history_has_more_ranges_and_larger_marts() -> None:
    """Twice the history has twice as many ranges, and as a whole a mart that costs twice as much."""
    assert lengthened(RANGES, 2).parts_s == [2.0] * 6
    assert lengthened(APART, 2).parts_s == [10.0]
    assert lengthened(Node("inclusion_factors", [3.0], frozenset(), is_ranged=False), 2).parts_s == [3.0]
    sample = Node("inclusion_sample", [3.0, 1.0], frozenset(), is_ranged=True)
    assert lengthened(sample, 2).parts_s == [1.0] * 4


def test_every_stored_mart_is_in_the_graph_after_what_it_reads() -> None:
    """The graph has all measured marts, each behind those that it reads directly or through a view."""
    stored = [model.name for model in load_catalog().layer("marts") if not model.is_view]
    graph = nodes({name: [1.0] for name in ["pool_candidates", *stored]})

    done: set[str] = set()
    for node in graph:
        assert node.after <= done
        done.add(node.name)
    assert done == {"pool_candidates", *stored}
    assert next(node for node in graph if node.name == "mempool_packages").after >= {"mempool_residence"}
