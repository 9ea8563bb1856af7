"""Compute how long a build would take on many workers, from measured times of its pieces.

It does what a build does: workers read the files of raw tables; then each part goes to a free worker as soon
as the marts that it reads are done; then workers run the checks. The process that schedules works beside the
parts, and alone before the first and after the last. Moving data and starting workers takes no time here.
"""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analysis.catalog import load_catalog
from analysis.late import early_name
from tests.bench.part_times import names_in_ranges

# These draw a sample of the same size from a history of any length.
SAMPLES: Final = frozenset(
    {"inclusion_factors", "inclusion_fit", "inclusion_sample", early_name("inclusion_sample")}
)
N_NAMED: Final = 10


@dataclass(frozen=True)
class Node:
    """Holds the seconds of the parts of one mart, and the names of the marts that must be done before."""

    name: str
    parts_s: Sequence[float]
    after: frozenset[str]
    is_ranged: bool


def nodes(parts: Mapping[str, Sequence[float]]) -> list[Node]:
    """Return the measured marts in the order of a build, each with the measured marts that it reads."""
    catalog = load_catalog()
    ranged = names_in_ranges()
    behind: dict[str, frozenset[str]] = {name: frozenset([name]) for name in parts}
    found: list[Node] = []
    for model in catalog.models:
        after = frozenset[str]().union(*(behind.get(name, frozenset()) for name in model.references))
        early = early_name(model.name)
        if early in parts:
            found.append(Node(early, parts[early], after, early in ranged))
            after = frozenset({early})
        if model.is_view or model.name not in parts:
            behind[model.name] = after
            continue
        found.append(Node(model.name, parts[model.name], after, model.name in ranged))
    return found


def lengthened(node: Node, factor: float) -> Node:
    """Return the node in a history that is `factor` times as long: more ranges, or one larger part."""
    n_parts = max(1, round(len(node.parts_s) * factor)) if node.is_ranged else 1
    if node.name in SAMPLES:
        return replace(node, parts_s=[sum(node.parts_s) / n_parts] * n_parts)
    if not node.is_ranged:
        return replace(node, parts_s=[node.parts_s[0] * factor])
    return replace(node, parts_s=list(itertools.islice(itertools.cycle(node.parts_s), n_parts)))


def longer_files(files: Sequence[float], factor: float) -> list[float]:
    """Return the times of the files of raw tables in a history that is `factor` times as long."""
    return sorted(itertools.islice(itertools.cycle(files), round(len(files) * factor)), reverse=True)


def longer_checks(checks: Mapping[str, Sequence[float]], factor: float) -> list[float]:
    """Return the times of the queries of all checks in a history that is `factor` times as long.

    A check that has several queries looks at some files by each, and has more of them then; one that has a
    single query takes longer.
    """
    found: list[float] = []
    for times in checks.values():
        if len(times) == 1:
            found.append(times[0] * factor)
        else:
            found += itertools.islice(itertools.cycle(times), round(len(times) * factor))
    return sorted(found, reverse=True)


@dataclass(frozen=True)
class Build:
    """Holds the times of what workers do in a build: marts, files of raw tables, queries of checks.

    `alone_s` is what the process that schedules does before and after all parts, `beside_s` what it does
    while the workers make parts.
    """

    graph: list[Node]
    files: Sequence[float]
    checks: Sequence[float]
    alone_s: float
    beside_s: float

    def makespan_s(self, n_workers: int) -> float:
        """Return how long the build takes with so many workers."""
        parts_s = max(self.beside_s, graph_makespan_s(self.graph, n_workers))
        around_s = makespan_s(self.files, n_workers) + makespan_s(self.checks, n_workers)
        return self.alone_s + around_s + parts_s

    def efficiency(self, n_workers: int) -> float:
        """Return the time of one worker over `n_workers` times their time."""
        return self.makespan_s(1) / (n_workers * self.makespan_s(n_workers))


def parts_efficiency(graph: list[Node], n_workers: int) -> float:
    """Return the efficiency of making the parts alone, without the process that schedules."""
    return graph_makespan_s(graph, 1) / (n_workers * graph_makespan_s(graph, n_workers))


def makespan_s(parts_s: Sequence[float], n_workers: int) -> float:
    """Return when the last of independent parts ends, each on the worker that is free first."""
    free_s = [0.0] * n_workers
    for part_s in parts_s:
        heapq.heapreplace(free_s, free_s[0] + part_s)
    return max(free_s)


def graph_makespan_s(graph: list[Node], n_workers: int) -> float:
    """Return when the last part ends if parts start once their marts are ready, the longest way first.

    The way counts marts, as that of a build does (analysis/schedule.py).
    """
    ways = longest_ways(graph)
    n_open = {node.name: len(node.after) for node in graph}
    n_left = {node.name: len(node.parts_s) for node in graph}
    readers = {node.name: [other for other in graph if node.name in other.after] for node in graph}
    ready = [
        (-ways[node.name], node.name, part_s) for node in graph if not node.after for part_s in node.parts_s
    ]
    heapq.heapify(ready)
    running: list[tuple[float, str]] = []
    now_s = 0.0
    while ready or running:
        while ready and len(running) < n_workers:
            _, name, part_s = heapq.heappop(ready)
            heapq.heappush(running, (now_s + part_s, name))
        now_s, name = heapq.heappop(running)
        n_left[name] -= 1
        if n_left[name]:
            continue
        for reader in readers[name]:
            n_open[reader.name] -= 1
            if not n_open[reader.name]:
                for part_s in reader.parts_s:
                    heapq.heappush(ready, (-ways[reader.name], reader.name, part_s))
    return now_s


def longest_ways(graph: list[Node]) -> dict[str, int]:
    """Map each mart to the number of marts on the longest way from it to one that nobody reads."""
    ways: dict[str, int] = {}
    for node in reversed(graph):
        ways[node.name] = 1 + max(
            (ways[other.name] for other in graph if node.name in other.after), default=0
        )
    return ways


def largest_whole(graph: list[Node]) -> dict[str, float]:
    """Return the marts that are made as a whole and cost most: what keeps many workers waiting."""
    whole = {node.name: node.parts_s[0] for node in graph if not node.is_ranged}
    return dict(sorted(whole.items(), key=lambda item: -item[1])[:N_NAMED])
