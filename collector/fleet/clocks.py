"""Estimate how far the clock of one collector is ahead of another's, from what both saw.

Both stamp the same transactions and blocks. The difference of the two stamps is the offset of the clocks plus
the difference of the two delays in the network. Where both nodes are equally well connected, each is first
half of the time, and the median of the differences is the offset. If each is first at least a quarter of the
time, the offset lies between the quartiles of the differences. A node that is always later by some time
cannot be told from a clock that is ahead by that time.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import BLOCK_ARRIVALS, MEMPOOL_TXS, Table

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

    def __init__(self, offsets: Iterable[ClockOffset]) -> None:
        """Make the clock of one collector from its offsets, at least one.

        Between two offsets the clock is taken to drift evenly; before the first and after the last, not at
        all.
        """
        self.offsets: Sequence[ClockOffset] = sorted(offsets)
        self._at_us = np.array([each.at_us for each in self.offsets], np.float64)
        self._offset_us = np.array([each.offset_us for each in self.offsets], np.float64)

    def reference_us(self, at_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert moments of this collector's clock to the reference clock; both int64[n], microseconds."""
        ahead_us = np.interp(at_us.astype(np.float64), self._at_us, self._offset_us)
        return at_us - np.rint(ahead_us).astype(np.int64)

    def around(self, day: dt.date) -> list[ClockOffset]:
        """Return the clock offsets with which `reference_us` converts moments of one day (UTC)."""
        begin_us, end_us = _span_us(day)
        first = int(np.searchsorted(self._at_us, begin_us)) - 1
        last = int(np.searchsorted(self._at_us, end_us)) + 1
        return list(self.offsets[max(first, 0) : last])


def offsets_of_day(
    connection: duckdb.DuckDBPyConnection, member: Dataset, reference: Dataset, day: dt.date
) -> list[ClockOffset]:
    """Estimate by how much one collector's clock was ahead on one day: once per hour, or once for the day.

    An hour has its own offset if enough was seen by both. What the member's nodes announced on that day is
    compared with what the reference's announced on that day, the day before and the day after, so a clock
    that is wrong by hours is found. Returns an empty list where the two saw fewer than three things in
    common.
    """
    near = [day + dt.timedelta(days=distance) for distance in (-1, 0, 1)]
    rows = connection.execute(f"""
        WITH differences AS (
            SELECT here.at_us, here.at_us - there.at_us AS ahead_us
            FROM ({_sightings(member, [day])}) AS here
            JOIN ({_sightings(reference, near)}) AS there USING (key)
        ), parted AS (
            SELECT
                *,
                at_us // {HOUR_US} AS hour_no,
                count(*) OVER (PARTITION BY at_us // {HOUR_US}) AS n_of_hour
            FROM differences
        )
        SELECT
            round(median(at_us)), round(median(ahead_us)),
            round(greatest(
                quantile_cont(ahead_us, 0.75) - median(ahead_us),
                median(ahead_us) - quantile_cont(ahead_us, 0.25)
            )),
            count(*)
        FROM parted
        WHERE n_of_hour >= {MIN_OF_HOUR} OR (SELECT max(n_of_hour) < {MIN_OF_HOUR} FROM parted)
        GROUP BY CASE WHEN n_of_hour >= {MIN_OF_HOUR} THEN hour_no END
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
