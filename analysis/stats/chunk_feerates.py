"""Compute the chunk feerates of clusters of transactions in the mempool.

As SQL function:

    chunk_runs(first, last, fee, size, children, parents)    the chunk feerate of each transaction over time

A cut is a moment at which the mempool is looked at; cuts have numbers in order of time. A run is a range of
cuts over which the chunk feerate of one transaction stays the same.

Transactions that are linked by unconfirmed parents form a cluster. Its best order of mining falls into chunks
of falling feerate. The first chunk is the set with the highest feerate among the sets that hold all their
ancestors; the next chunk is that of the remaining transactions, and so on. The chunk feerates are the
isotonic regression of the transactions' own feerates, weighted by size, under "no child above its parent".
They are found by splitting. If a part of a set that holds its ancestors has a higher feerate than the whole
set, the set is split at the best such part (a maximum closure, found by minimum cut). A set without such a
part is one chunk, or several of equal feerate. All numbers are integers, so only the last division rounds.

Why not scipy.sparse.csgraph.maximum_flow: it finds the same sets, but its capacities are 32-bit integers, and
fee times size of a cluster exceeds them (100,000 sat in a cluster of 100,000 vB is 10^10). One cut takes it
0.39 ms for 3 transactions and 0.49 ms for 60; this module takes 0.01 ms and 0.30 ms. Most clusters are small.

Sources: J. C. Picard, 1976, doi:10.1287/mnsc.22.11.1268 (closure by minimum cut); W. L. Maxwell and J. A.
Muckstadt, 1985, doi:10.1287/opre.33.6.1316 (division into sets); Bitcoin Core, src/cluster_linearize.h.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from analysis.stats.sql_functions import SqlFunction

RUN: Final = pa.struct(
    [
        ("member", pa.int64()),
        ("first_cut_no", pa.int64()),
        ("last_cut_no", pa.int64()),
        ("feerate", pa.float64()),
    ]
)
RUN_SQL: Final = "STRUCT(member BIGINT, first_cut_no BIGINT, last_cut_no BIGINT, feerate DOUBLE)[]"

Links = Mapping[int, Sequence[int]]


class Member(NamedTuple):
    """Describes one transaction: the first and last cut at which it waits, its fee (sat), its size (vB).

    A cut is one of several moments at which the mempool is looked at, by number.
    """

    first_cut_no: int
    last_cut_no: int
    fee: int
    size: int


class Run(NamedTuple):
    """Describes a range of cuts (numbered moments) in which a transaction's chunk feerate (sat/vB) is equal.

    `member` is the number of the transaction in its list.
    """

    member: int
    first_cut_no: int
    last_cut_no: int
    feerate: float


def chunk_feerates(
    fees: Mapping[int, int], sizes: Mapping[int, int], parents: Mapping[int, Iterable[int]]
) -> dict[int, float]:
    """Return the chunk feerate in sat/vB of each transaction of one cluster.

    `fees` are in sat, `sizes` in vB and above zero. `parents` maps each transaction to its direct parents; a
    parent that is not a key of `fees` counts as confirmed. Fees may be negative, as fees modified by
    prioritisetransaction are.
    """
    links = {key: [parent for parent in parents.get(key, ()) if parent in fees] for key in fees}
    if all(
        fees[key] * sizes[parent] <= fees[parent] * sizes[key] for key in links for parent in links[key]
    ):  # no child pays more than a parent: each is a chunk of its own
        return {key: fees[key] / sizes[key] for key in fees}
    found: dict[int, float] = {}
    open_sets = [sorted(fees)] if fees else []
    while open_sets:
        members = open_sets.pop()
        fee, size = sum(fees[key] for key in members), sum(sizes[key] for key in members)
        gains = {key: fees[key] * size - fee * sizes[key] for key in members}
        best = _maximum_closure(gains, links) if any(gains.values()) else set()
        if sum(gains[key] for key in best) > 0:
            open_sets += [sorted(best), [key for key in members if key not in best]]
        else:
            found.update(dict.fromkeys(members, fee / size))
    return found


def chunk_runs(members: Sequence[Member], links: Iterable[tuple[int, int]]) -> Iterator[Run]:
    """Yield each range of cuts (numbered moments) over which a transaction's chunk feerate stays the same.

    `links` are pairs of indices in `members`: child, parent. At each cut, only those clusters are computed
    that a transaction has entered or left since the previous cut, so the work grows with the number of
    changes.
    """
    parents, relatives = defaultdict(list), defaultdict(list)
    for child, parent in links:
        parents[child].append(parent)
        relatives[child].append(parent)
        relatives[parent].append(child)
    entering, leaving = defaultdict(list), defaultdict(list)
    for key, member in enumerate(members):
        entering[member.first_cut_no].append(key)
        leaving[member.last_cut_no + 1].append(key)
    open_runs: dict[int, tuple[int, float]] = {}
    for cut_no in sorted(entering.keys() | leaving.keys()):
        changed = set(entering[cut_no])
        for key in leaving[cut_no]:
            since, feerate = open_runs.pop(key)
            yield Run(key, since, cut_no - 1, feerate)
            changed.update(relatives[key])
        open_runs |= dict.fromkeys(entering[cut_no], (cut_no, -1.0))
        for cluster in _clusters(changed & open_runs.keys(), relatives, open_runs):
            for key, feerate in _feerates(cluster, members, parents).items():
                since, before = open_runs[key]
                if feerate != before:
                    if since < cut_no:
                        yield Run(key, since, cut_no - 1, before)
                    open_runs[key] = (cut_no, feerate)


def _clusters(seeds: set[int], relatives: Links, waiting: Mapping[int, Any]) -> Iterator[list[int]]:
    """Yield each cluster of waiting transactions that contains one of the seeds, as a list of its members.

    `relatives` maps each transaction to its parents and children; `waiting` has the waiting ones as keys. The
    set `seeds` is emptied.
    """
    while seeds:
        cluster = {seeds.pop()}
        edge = list(cluster)
        while edge:
            new = {other for other in relatives[edge.pop()] if other in waiting} - cluster
            cluster |= new
            edge += new
        seeds -= cluster
        yield list(cluster)


def _feerates(cluster: list[int], members: Sequence[Member], parents: Links) -> dict[int, float]:
    """Return the chunk feerate in sat/vB of each transaction of one cluster.

    One or two transactions need no search.
    """
    fees, sizes = {key: members[key].fee for key in cluster}, {key: members[key].size for key in cluster}
    if len(cluster) == 1:
        return {key: fees[key] / sizes[key] for key in cluster}
    if len(cluster) == 2:  # noqa: PLR2004 - a pair
        child, parent = cluster if cluster[1] in parents[cluster[0]] else cluster[::-1]
        if fees[child] * sizes[parent] <= fees[parent] * sizes[child]:
            return {key: fees[key] / sizes[key] for key in cluster}
        return dict.fromkeys(cluster, sum(fees.values()) / sum(sizes.values()))
    return chunk_feerates(fees, sizes, parents)


def _maximum_closure(gains: Mapping[int, int], links: Links) -> set[int]:
    """Return the set of transactions, with all their ancestors, whose gains have the greatest sum.

    The set is empty if no sum is positive. `links` maps each transaction to its parents. Gains flow from
    members with a positive gain to ancestors with a negative one along augmenting paths, which may also take
    back earlier flow. Members that still have a positive gain afterwards, and all that can be reached from
    them, are the set (maximum flow, minimum cut).
    """
    spare = dict(gains)
    flow: defaultdict[tuple[int, int], int] = defaultdict(int)  # from child to parent
    sources: defaultdict[int, set[int]] = defaultdict(set)
    for source in [key for key in gains if gains[key] > 0]:
        while spare[source] > 0:
            before = _reached(source, gains, links, flow, sources)
            sink = next((key for key in before if spare[key] < 0), None)
            if sink is None:
                break
            path = [sink]
            while path[-1] != source:
                path.append(before[path[-1]])
            steps = list(zip(path[1:], path[:-1], strict=True))
            back = [flow[to, at] for at, to in steps if to not in links[at]]
            amount = min([spare[source], -spare[sink], *back])
            for at, to in steps:
                if to in links[at]:
                    flow[at, to] += amount
                    sources[to].add(at)
                else:
                    flow[to, at] -= amount
            spare[source] -= amount
            spare[sink] += amount
    best: set[int] = set()
    for source in (key for key in gains if spare[key] > 0):
        if source not in best:
            best |= _reached(source, gains, links, flow, sources).keys()
    return best


def _reached(
    source: int,
    gains: Mapping[int, int],
    links: Links,
    flow: Mapping[tuple[int, int], int],
    sources: Mapping[int, set[int]],
) -> dict[int, int]:
    """Return the transactions that flow from `source` can reach, each with the one before it on the way."""
    before = {source: source}
    edge = [source]
    for at in edge:
        back = [child for child in sources[at] if flow[child, at] > 0]
        for to in [*links[at], *back]:
            if to in gains and to not in before:
                before[to] = at
                edge.append(to)
    return before


def _chunk_runs_column(  # noqa: PLR0917 - DuckDB calls by position
    first: pa.ChunkedArray,
    last: pa.ChunkedArray,
    fee: pa.ChunkedArray,
    size: pa.ChunkedArray,
    children: pa.ChunkedArray,
    parents: pa.ChunkedArray,
) -> pa.Array:
    """Return for each row the list of runs: ranges of cuts in which a transaction's chunk feerate is equal.

    Each argument is a column of lists with one item per transaction (cuts, fees, sizes) or per link (child,
    parent).
    """
    offsets: list[int] = [0]
    runs: list[Run] = []
    for *columns, child, parent in zip(first, last, fee, size, children, parents, strict=True):
        members = [Member(*values) for values in zip(*map(_list, columns), strict=True)]
        runs += chunk_runs(members, zip(_list(child), _list(parent), strict=True))
        offsets.append(len(runs))
    values = list(zip(*runs, strict=True)) or [()] * RUN.num_fields
    arrays = [pa.array(value, field.type) for value, field in zip(values, RUN, strict=True)]
    content = pa.StructArray.from_arrays(arrays, fields=list(RUN))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), content)


def _list(cell: Any) -> list[int]:
    """Return the numbers of one cell of an Arrow list column; a null cell gives an empty list."""
    return [] if cell.values is None else cell.values.to_numpy(zero_copy_only=False).tolist()


FUNCTIONS: Final = (SqlFunction("chunk_runs", _chunk_runs_column, ["BIGINT[]"] * 6, RUN_SQL),)
