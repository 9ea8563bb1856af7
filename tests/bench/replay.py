"""Compute how long a build would take on many workers, from measured times of its parts.

A schedule has one of two forms. `in turn` is what a build does that hands out ranges: one mart after the
other, its ranges on all workers, all else in the process that schedules. `by graph` gives each part to a free
worker as soon as the marts that it reads are done; only what is no part is left to the scheduling process.
Moving data and starting workers takes no time here.
"""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analysis.catalog import load_catalog
from analysis.incremental import CANDIDATES
from analysis.late import early_name
from tests.bench.part_times import names_in_ranges

# These draw a sample of the same size from a history of any length.
SAMPLES: Final = frozenset({"inclusion_factors", "inclusion_sample", early_name("inclusion_sample")})
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
    found = [Node(CANDIDATES, parts[CANDIDATES], frozenset(), is_ranged=False)]
    for model in catalog.models:
        after = frozenset[str]().union(*(behind.get(name, frozenset()) for name in model.references))
        if model.is_view or model.name not in parts:
            behind[model.name] = after
            continue
        early = early_name(model.name)
        if early in parts:
            found.append(Node(early, parts[early], after, early in ranged))
            after |= {early}
        found.append(Node(model.name, parts[model.name], after, model.name in ranged))
    return found


def lengthened(node: Node, factor: float) -> Node:
    """Return the node in a history that is `factor` times as long: more ranges, or one larger part."""
    if node.name in SAMPLES:
        return node
    if not node.is_ranged:
        return replace(node, parts_s=[node.parts_s[0] * factor])
    n_parts = max(1, round(len(node.parts_s) * factor))
    return replace(node, parts_s=list(itertools.islice(itertools.cycle(node.parts_s), n_parts)))


def replays(graph: list[Node], rest_s: float, n_workers: int) -> dict[str, float]:
    """Return the efficiency of each schedule: the work over workers times the length of the schedule.

    `rest_s` is the work of the scheduling process alone. `ranges` is `in turn` of nothing but ranges.
    """
    work_s = sum(sum(node.parts_s) for node in graph) + rest_s
    ranged = [node for node in graph if node.is_ranged]
    ranged_s = sum(makespan_s(node.parts_s, n_workers) for node in ranged)
    turns_s = rest_s + ranged_s + sum(sum(node.parts_s) for node in graph if not node.is_ranged)
    graph_s = rest_s + graph_makespan_s(graph, n_workers)
    return {
        "ranges": sum(sum(node.parts_s) for node in ranged) / (n_workers * ranged_s),
        "in_turn": work_s / (n_workers * turns_s),
        "by_graph": work_s / (n_workers * graph_s),
    }


def makespan_s(parts_s: Sequence[float], n_workers: int) -> float:
    """Return when the last of independent parts ends, each on the worker that is free first."""
    free_s = [0.0] * n_workers
    for part_s in parts_s:
        heapq.heapreplace(free_s, free_s[0] + part_s)
    return max(free_s)


def graph_makespan_s(graph: list[Node], n_workers: int) -> float:
    """Return when the last part ends if parts start once their marts are ready, the longest way first."""
    ways_s = longest_ways_s(graph)
    n_open = {node.name: len(node.after) for node in graph}
    n_left = {node.name: len(node.parts_s) for node in graph}
    readers = {node.name: [other for other in graph if node.name in other.after] for node in graph}
    ready = [
        (-ways_s[node.name], node.name, part_s) for node in graph if not node.after for part_s in node.parts_s
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
                    heapq.heappush(ready, (-ways_s[reader.name], reader.name, part_s))
    return now_s


def longest_ways_s(graph: list[Node]) -> dict[str, float]:
    """Map each mart to the time from its start to the end of all that waits for it, on endless workers."""
    ways_s: dict[str, float] = {}
    for node in reversed(graph):
        behind_s = max((ways_s[other.name] for other in graph if node.name in other.after), default=0.0)
        ways_s[node.name] = max(node.parts_s) + behind_s
    return ways_s


def largest_whole(graph: list[Node]) -> dict[str, float]:
    """Return the marts that are made as a whole and cost most: what keeps many workers waiting."""
    whole = {node.name: node.parts_s[0] for node in graph if not node.is_ranged}
    return dict(sorted(whole.items(), key=lambda item: -item[1])[:N_NAMED])
