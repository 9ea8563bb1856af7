"""Test the schedules of simulated workers on graphs that can be worked out by hand."""

from dataclasses import replace

import pytest

from analysis.catalog import load_catalog
from tests.bench.bench_workers import on_days
from tests.bench.replay import (
    Build,
    Node,
    graph_makespan_s,
    lengthened,
    longer_checks,
    longer_files,
    makespan_s,
    nodes,
    parts_efficiency,
)

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
    """It works 3 s alone and 2 s beside 15 s of parts; files take 4 s, checks 6 s, a check of 5 s among them.

    One worker takes 28 s. Two take 3 s, 2 s for the files, 8 s for the parts and 5 s for the checks.
    """
    build = Build(GRAPH, files=[1.0] * 4, checks=[5.0, 1.0], alone_s=3, beside_s=2)

    assert (build.makespan_s(1), build.makespan_s(2)) == (28, 18)
    assert build.efficiency(2) == pytest.approx(28 / 36)
    assert replace(build, beside_s=100).makespan_s(2) == 110
    assert parts_efficiency(GRAPH, 2) == pytest.approx(15 / 16)


def test_a_longer_history_has_more_files_and_longer_checks() -> None:
    """A check of one query takes longer, one of several has more of them."""
    assert longer_files([1.0, 3.0], 2) == [3.0, 3.0, 1.0, 1.0]
    assert longer_checks({"one": [2.0], "several": [1.0, 0.5]}, 2) == [4.0, 1.0, 1.0, 0.5, 0.5]


def test_time_beside_the_workers_has_a_fixed_part() -> None:
    """2 s on a day and 6 s on five days are 1 s and 1 s per day; less on more days counts as the same."""
    assert on_days(2.0, 6.0, 5, 365) == pytest.approx(366.0)
    assert on_days(6.5, 6.0, 5, 365) == pytest.approx(6.0)


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
    graph = nodes({name: [1.0] for name in stored})

    done: set[str] = set()
    for node in graph:
        assert node.after <= done
        done.add(node.name)
    assert done == set(stored)
    assert next(node for node in graph if node.name == "mempool_packages").after >= {"mempool_residence"}
