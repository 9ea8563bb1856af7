"""Estimate how far the clock of one collector is ahead of another's, from what both saw.

Both stamp the same transactions and blocks. The difference of the two stamps is the offset of the clocks plus
the difference of the two delays in the network. Where both nodes are equally well connected, each is first
half of the time, and the median of the differences is the offset. If each is first at least a quarter of the
time, the offset lies between the quartiles of the differences. A node that is always later by some time
cannot be told from a clock that is ahead by that time.

Between two offsets a clock drifts. Where it was set it jumps, and offsets from before the step say nothing
about the time after it. `coverage` tells where a clock was set forward while nodes were watched. Between two
sessions it may have been set unseen: there it is taken to jump if the offsets before and after contradict
each other, that is, differ by more than their errors and `MAX_DRIFT`. Both hold for the reference collector's
clock, too.

Where offsets contradict each other and no such place is between them, each has an error as large as the
difference. So it is with a clock that was set back in a session: it shows some moments twice, and its stamps
do not say which is meant.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import pairwise
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
MAX_DRIFT: Final = 50e-6  # of a clock that runs freely; what changes faster was set


class Gap(NamedTuple):
    """Holds the last moment before and the first one after something, on one collector's clock, in us."""

    begin_us: int
    end_us: int

    @property
    def middle_us(self) -> int:
        """Return a moment between the two."""
        return (self.begin_us + self.end_us) // 2


class Gaps(NamedTuple):
    """Holds where one collector's clock was set forward, and where it may have been set unseen."""

    steps: Sequence[Gap] = ()
    pauses: Sequence[Gap] = ()

    def within(self, begin_us: int, end_us: int) -> list[int]:
        """Return a moment in each gap, ascending, of those whose moment is in a span of time."""
        moments = {gap.middle_us for gap in (*self.steps, *self.pauses)}
        return sorted(each for each in moments if begin_us <= each <= end_us)


class Watcher(NamedTuple):
    """Holds one collector's dataset, and the gaps in its clock."""

    dataset: Dataset
    gaps: Gaps


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

        A step is a moment at which the offset jumps, on this clock, in microseconds; `steps_between` finds
        them. Between two offsets with no step between them the clock is taken to drift evenly; before the
        first of them and after the last, not at all. Where two contradict each other and the moment of the
        jump is not known, `error_us` of both becomes at least their difference.
        """
        ordered = sorted(offsets)
        self._at_us = np.array([each.at_us for each in ordered], np.float64)
        self._offset_us = np.array([each.offset_us for each in ordered], np.float64)
        self._steps = np.array(sorted(steps), np.int64)
        self._part = self._part_of(self._at_us)
        self.offsets: Sequence[ClockOffset] = self._with_honest_errors(ordered)

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

    def _with_honest_errors(self, offsets: Sequence[ClockOffset]) -> list[ClockOffset]:
        """Return the offsets; each error is at least the distance from a neighbour that contradicts it."""
        errors_us = [each.error_us for each in offsets]
        for index, (before, after) in enumerate(pairwise(offsets)):
            n_steps = self._part[index + 1] - self._part[index]
            if n_steps != 1 and _contradict(before, after):
                jump_us = abs(after.offset_us - before.offset_us)
                errors_us[index] = max(errors_us[index], jump_us)
                errors_us[index + 1] = max(errors_us[index + 1], jump_us)
        return [each._replace(error_us=error_us) for each, error_us in zip(offsets, errors_us, strict=True)]

    def _part_of(self, at_us: NDArray[Any]) -> NDArray[np.int64]:
        """Return for each moment how many steps came before it."""
        return np.searchsorted(self._steps, at_us, side="right")

    def _known_in(self, part: int) -> NDArray[np.bool_]:
        """Return which offsets are those of a part of the time between two steps; all where it has none."""
        known = self._part == part
        return known if known.any() else np.ones_like(known)


def steps_between(offsets: Iterable[ClockOffset], own: Gaps, reference: Gaps) -> list[int]:
    """Return the moments on a collector's clock, in us, ascending, at which its offset jumps.

    Its own steps forward are among them. The reference's steps, and the pauses of both, are if the offsets
    before and after contradict each other.
    """
    found = {gap.middle_us for gap in own.steps}
    for before, after in pairwise(sorted(offsets)):
        if not _contradict(before, after):
            continue
        found.update(own.within(before.at_us, after.at_us))
        for gap in (*reference.steps, *reference.pauses):
            if before.at_us - before.offset_us < gap.middle_us < after.at_us - after.offset_us:
                here = Gap(gap.begin_us + before.offset_us, gap.end_us + after.offset_us)
                found.add(min(max(here.middle_us, before.at_us + 1), after.at_us))
    return sorted(found)


def _contradict(before: ClockOffset, after: ClockOffset) -> bool:
    """Return whether two offsets differ by more than their errors and the drift of a clock."""
    drift_us = MAX_DRIFT * (after.at_us - before.at_us)
    return abs(after.offset_us - before.offset_us) > before.error_us + after.error_us + drift_us


def find_gaps(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> Gaps:
    """Return where a collector's clock was set forward, and the pauses between its sessions."""
    return Gaps(_steps_forward(connection, dataset), _pauses(connection, dataset))


def _pauses(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> list[Gap]:
    """Return the spans between the sessions of all nodes, ascending: no process watched the clock then."""
    rows = connection.execute(f"""
        SELECT min(epoch_us(from_at)) AS from_us, max(epoch_us(to_at))
        FROM {contract_rows(COVERAGE, dataset.paths(COVERAGE))} WHERE topic <> 'mempool'
        GROUP BY node, session ORDER BY from_us
    """).fetchall()  # noqa: S608 - names are the contract's
    pauses: list[Gap] = []
    watched_us: int | None = None
    for from_us, to_us in rows:
        if watched_us is not None and from_us > watched_us:
            pauses.append(Gap(watched_us, from_us))
        watched_us = to_us if watched_us is None else max(watched_us, to_us)
    return pauses


def _steps_forward(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> list[Gap]:
    """Return each gap that a collector's clock left out because it was set forward, ascending.

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
    gaps: list[Gap] = []
    for to_us, next_us in rows:
        # Of another topic or node: the same step.
        if gaps and to_us < gaps[-1].end_us and next_us > gaps[-1].begin_us:
            gaps[-1] = Gap(max(to_us, gaps[-1].begin_us), min(next_us, gaps[-1].end_us))
        else:
            gaps.append(Gap(to_us, next_us))
    return gaps


class DayCuts(NamedTuple):
    """Holds the moments in the gaps of both clocks that part what was seen on one day, each on its clock."""

    own: list[int]
    reference: list[int]  # also of the day before and the day after


def cuts_of_day(day: dt.date, own: Gaps, reference: Gaps) -> DayCuts:
    """Return the moments of a day, in us, at which `offsets_of_day` parts what both collectors saw."""
    begin_us, end_us = _span_us(day)
    day_us = end_us - begin_us
    return DayCuts(own.within(begin_us, end_us), reference.within(begin_us - day_us, end_us + day_us))


def offsets_of_day(
    connection: duckdb.DuckDBPyConnection, member: Watcher, reference: Watcher, day: dt.date
) -> list[ClockOffset]:
    """Estimate by how much one collector's clock was ahead on one day: once per hour, or once for the day.

    An hour has its own offset if enough was seen by both. An hour or a day in which a clock was set, or may
    have been, is two or more of them; where each of these would have too few, pauses do not count. What the
    member's nodes announced on that day is compared with what the reference's announced on that day, the day
    before and the day after, so a clock that is wrong by hours is found. Returns an empty list where the two
    saw fewer than three things in common.
    """
    cuts = cuts_of_day(day, member.gaps, reference.gaps)
    surer = cuts_of_day(day, Gaps(member.gaps.steps), Gaps(reference.gaps.steps))
    rows = _estimates(connection, _differences(member.dataset, reference.dataset, day, cuts))
    if not rows and cuts != surer:
        rows = _estimates(connection, _differences(member.dataset, reference.dataset, day, surer))
    return rows


def _estimates(connection: duckdb.DuckDBPyConnection, differences: str) -> list[ClockOffset]:
    """Return an offset per part and hour, or per part, of the query `differences` (see `_differences`)."""
    rows = connection.execute(f"""
        WITH differences AS (
            {differences}
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


def _differences(member: Dataset, reference: Dataset, day: dt.date, cuts: DayCuts) -> str:
    """Return a SQL query for what both saw on a day: `at_us`, `ahead_us`, and the `part` between two cuts."""
    near = [day + dt.timedelta(days=distance) for distance in (-1, 0, 1)]
    return f"""
        SELECT
            at_us, at_us - there_us AS ahead_us,
            struct_pack(own_us := own.cut_us, reference_us := others.cut_us) AS part
        FROM (
            SELECT here.at_us, there.at_us AS there_us
            FROM ({_sightings(member, [day])}) AS here
            JOIN ({_sightings(reference, near)}) AS there USING (key)
        ) AS seen
        ASOF LEFT JOIN (SELECT unnest({cuts.own}::BIGINT[]) AS cut_us) AS own ON at_us >= own.cut_us
        ASOF LEFT JOIN (SELECT unnest({cuts.reference}::BIGINT[]) AS cut_us) AS others
            ON there_us >= others.cut_us
    """  # noqa: S608 - numbers and queries of ours


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
