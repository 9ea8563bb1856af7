"""Estimate how far the clock of one collector is ahead of another's, from what both saw.

Both stamp the same transactions and blocks. The difference of the two stamps is the offset of the clocks plus
the difference of the two delays in the network. Where both nodes are equally well connected, each is first
half of the time, and the median of the differences is the offset. If each is first at least a quarter of the
time, the offset lies between the quartiles of the differences. A node that is always later by some time
cannot be told from a clock that is ahead by that time.

Between two offsets a clock drifts. Where it was set forward, which `coverage` tells, it jumps: offsets from
before the step say nothing about the time after it. A clock that was set back shows some moments twice, and
its stamps do not say which is meant; the offset of that hour has an error as large as the step.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import BLOCK_ARRIVALS, COVERAGE, MEMPOOL_TXS, Table

HOUR_US: Final = 3_600_000_000
MIN_OF_HOUR: Final = 20  # shared sightings that give an hour an offset of its own
MIN_OF_DAY: Final = 3  # shared sightings without which a day has no offset


class ClockOffset(NamedTuple):
    """Says how far one collector's clock was ahead of the reference collector's, at about one moment.

    `at_us` is on the collector's own clock, microseconds since 1970 UTC. `offset_us` is the median of the
    differences between stamps, `error_us` its distance from the farther quartile, and `n_shared` the number
    of differences.
    """

    at_us: int
    offset_us: int
    error_us: int
    n_shared: int


class MemberClock:
    """Converts moments of one collector's clock into moments of the reference collector's clock."""

    def __init__(self, offsets: Iterable[ClockOffset], steps: Sequence[int] = ()) -> None:
        """Make the clock of one collector from its offsets, at least one, and its steps forward.

        A step is a moment of this clock that it never showed, in microseconds, because it was set from before
        to after it. Between two offsets with no step between them the clock is taken to drift evenly; before
        the first of them and after the last, not at all.
        """
        self.offsets: Sequence[ClockOffset] = sorted(offsets)
        self._at_us = np.array([each.at_us for each in self.offsets], np.float64)
        self._offset_us = np.array([each.offset_us for each in self.offsets], np.float64)
        self._steps = np.array(sorted(steps), np.int64)
        self._part = self._part_of(self._at_us)

    def reference_us(self, at_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert moments of this collector's clock to the reference clock; both int64[n], microseconds."""
        part = self._part_of(at_us)
        ahead_us = np.zeros(len(at_us))
        for number in np.unique(part):
            known, wanted = self._known_in(number), part == number
            moments = at_us[wanted].astype(np.float64)
            ahead_us[wanted] = np.interp(moments, self._at_us[known], self._offset_us[known])
        return at_us - np.rint(ahead_us).astype(np.int64)

    def around(self, day: dt.date) -> list[ClockOffset | int]:
        """Return the offsets, and the steps, with which `reference_us` converts moments of one day (UTC)."""
        begin_us, end_us = _span_us(day)
        used: list[ClockOffset | int] = [int(each) for each in self._steps if begin_us <= each <= end_us]
        first_part, last_part = self._part_of(np.array([begin_us, end_us]))
        for number in range(first_part, last_part + 1):
            known = np.flatnonzero(self._known_in(number))
            first = int(np.searchsorted(self._at_us[known], begin_us)) - 1
            last = int(np.searchsorted(self._at_us[known], end_us)) + 1
            used += [self.offsets[index] for index in known[max(first, 0) : last]]
        return used

    def _part_of(self, at_us: NDArray[Any]) -> NDArray[np.int64]:
        """Return for each moment how many steps came before it."""
        return np.searchsorted(self._steps, at_us, side="right")

    def _known_in(self, part: int) -> NDArray[np.bool_]:
        """Return which offsets are those of a part of the time between two steps; all where it has none."""
        known = self._part == part
        return known if known.any() else np.ones_like(known)


def steps_forward(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> list[int]:
    """Return a moment in each gap that a collector's clock left out because it was set forward, ascending.

    Each node and topic has an interval of `coverage` that ends with the step, and one that begins after it.
    """
    coverage = contract_rows(COVERAGE, dataset.paths(COVERAGE))
    rows = connection.execute(f"""
        WITH intervals AS (
            SELECT
                end_reason, epoch_us(to_at) AS to_us,
                lead(epoch_us(from_at)) OVER (PARTITION BY node, session, topic ORDER BY from_at) AS next_us
            FROM {coverage} WHERE topic <> 'mempool'
        )
        SELECT to_us, next_us FROM intervals
        WHERE end_reason = 'clock_step' AND next_us > to_us ORDER BY next_us
    """).fetchall()  # noqa: S608 - names are the contract's
    gaps: list[tuple[int, int]] = []
    for to_us, next_us in rows:
        if gaps and to_us < gaps[-1][1] and next_us > gaps[-1][0]:  # of another topic or node: the same step
            gaps[-1] = max(to_us, gaps[-1][0]), min(next_us, gaps[-1][1])
        else:
            gaps.append((to_us, next_us))
    return [(begin_us + end_us) // 2 for begin_us, end_us in gaps]


def offsets_of_day(
    connection: duckdb.DuckDBPyConnection,
    member: Dataset,
    reference: Dataset,
    day: dt.date,
    steps: Sequence[int] = (),
) -> list[ClockOffset]:
    """Estimate by how much one collector's clock was ahead on one day: once per hour, or once for the day.

    An hour has its own offset if enough was seen by both. An hour or a day in which the clock was set, at the
    moments `steps`, is two or more of them. What the member's nodes announced on that day is compared with
    what the reference's announced on that day, the day before and the day after, so a clock that is wrong by
    hours is found. Returns an empty list where the two saw fewer than three things in common.
    """
    near = [day + dt.timedelta(days=distance) for distance in (-1, 0, 1)]
    rows = connection.execute(f"""
        WITH differences AS (
            SELECT
                here.at_us, here.at_us - there.at_us AS ahead_us,
                len(list_filter({list(steps)}::BIGINT[], lambda step: step <= here.at_us)) AS part
            FROM ({_sightings(member, [day])}) AS here
            JOIN ({_sightings(reference, near)}) AS there USING (key)
        ), parted AS (
            SELECT
                *,
                at_us // {HOUR_US} AS hour_no,
                count(*) OVER (PARTITION BY part, at_us // {HOUR_US}) AS n_of_hour
            FROM differences
        ), judged AS (
            SELECT *, max(n_of_hour) OVER (PARTITION BY part) AS most_of_hour FROM parted
        )
        SELECT
            round(median(at_us)), round(median(ahead_us)),
            round(greatest(
                quantile_cont(ahead_us, 0.75) - median(ahead_us),
                median(ahead_us) - quantile_cont(ahead_us, 0.25)
            )),
            count(*)
        FROM judged
        WHERE n_of_hour >= {MIN_OF_HOUR} OR most_of_hour < {MIN_OF_HOUR}
        GROUP BY part, CASE WHEN n_of_hour >= {MIN_OF_HOUR} THEN hour_no END
        HAVING count(*) >= {MIN_OF_DAY}
        ORDER BY 1
    """).fetchall()  # noqa: S608 - numbers and queries of ours
    return [ClockOffset(*map(int, row)) for row in rows]


def _sightings(dataset: Dataset, days: Sequence[dt.date]) -> str:
    """Return a SQL query for what nodes announced on some days: a hash, and its first time in us."""
    transactions = contract_rows(MEMPOOL_TXS, _files(dataset, MEMPOOL_TXS, days))
    arrivals = contract_rows(BLOCK_ARRIVALS, _files(dataset, BLOCK_ARRIVALS, days))
    return f"""
        SELECT txid AS key, min(epoch_us(entered_at)) AS at_us FROM {transactions}
        WHERE first_seen_kind = 'pushed' GROUP BY txid
        UNION ALL
        SELECT block_hash, min(epoch_us(event_at)) FROM {arrivals}
        WHERE event = 'seen' AND kind = 'pushed' AND NOT coalesce(is_catch_up, false) GROUP BY block_hash
    """  # noqa: S608 - names are the contract's


def _files(dataset: Dataset, table: Table, days: Sequence[dt.date]) -> list[Path]:
    folders = {f"date={day.isoformat()}" for day in days}
    return [path for path in dataset.paths(table) if path.parent.name in folders]


def _span_us(day: dt.date) -> tuple[int, int]:
    begin = int(dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()) * 1_000_000
    return begin, begin + 24 * HOUR_US
