"""Replay the mempool of a node as of any moment: whether we watched it, and which transactions waited.

The mempool is known while our copy equalled the node's (topic `mempool` of coverage_intervals). As of a
moment means: with every message that we had received by then. The times at which transactions entered and
left come from mempool_residence; chunk feerates are computed as in mempool_clusters, for the clusters that
waited at that moment.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import duckdb

from analysis.database import version_explained
from analysis.errors import MomentError, NoMomentError, UnknownNodeError

Row = Mapping[str, Any]
BLOCK_VB: Final = 1_000_000
FEERATE_EDGES: Final = (0, 0.5, 1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200, 500, 1000)  # sat/vB
FIRST_YEAR: Final = 2009  # of the first block
LAST_YEAR: Final = 9999  # and all of it is too late, because a step goes on from a time
MAX_SAID: Final = 40  # characters of a text that is no time
MICROSECOND: Final = dt.timedelta(microseconds=1)
NO_CUT: Final = 1 << 62  # above every number of a cut
NO_POSITION: Final = 1 << 126  # above every place in a stream
LISTED_COLUMNS: Final = (
    "txid",
    "chunk_feerate_sat_vb",
    "feerate_sat_vb",
    "fee_sat",
    "vsize_vb",
    "vsize_ahead_vb",
    "entered_at",
    "first_seen_kind",
    "left_reason",
    "left_at",
)

VERDICTS: Final = """
    SELECT
        node,
        coalesce(bool_or(holds), false) AS is_observed,
        max_by(session, from_at) FILTER (holds) AS session,
        max(from_at) FILTER (holds) AS from_at,
        max_by(to_at, from_at) FILTER (holds) AS to_at,
        max(to_at) FILTER (to_at < $at) AS observed_before,
        max_by(end_reason, to_at) FILTER (to_at < $at) AS end_reason,
        min(from_at) FILTER (from_at > $at) AS observed_after
    FROM (SELECT *, $at BETWEEN from_at AND to_at AS holds FROM coverage_intervals WHERE topic = 'mempool')
    GROUP BY node
    ORDER BY node
"""
# The last counter of the microsecond: every message of it counts. One cut of chunk_runs is this moment.
REPLAYED: Final = """
    CREATE OR REPLACE TEMP TABLE mempool_then AS
    WITH waiting AS MATERIALIZED (
        SELECT
            stay_no, txid, entered_at, first_seen_kind, fee_sat, vsize_vb, parents, left_reason,
            left_at,
            CASE WHEN vsize_vb > 0 THEN fee_sat / vsize_vb END AS feerate_sat_vb
        FROM mempool_residence
        WHERE
            node = $node AND session = $session
            -- These numbers leave out most of what left before or came later, before positions are read.
            AND last_cut_no >= $since AND (first_cut_no IS NULL OR first_cut_no <= $last_cut)
            AND position <= stream_position($at, 4294967295)
            AND (left_position IS NULL OR left_position > stream_position($at, 4294967295))
    ),
    wanted AS (
        SELECT stay_no AS child_no, unnest(parents) AS txid
        FROM waiting
        WHERE feerate_sat_vb IS NOT NULL AND parents IS NOT NULL
    ),
    links AS MATERIALIZED (
        SELECT DISTINCT wanted.child_no, parent.stay_no AS parent_no
        FROM wanted
        INNER JOIN waiting AS parent ON wanted.txid = parent.txid
        WHERE parent.feerate_sat_vb IS NOT NULL
    ),
    members AS MATERIALIZED (
        SELECT stay_no, fee_sat, vsize_vb, row_number() OVER (ORDER BY stay_no) - 1 AS member
        FROM waiting
        WHERE stay_no IN (SELECT child_no FROM links UNION SELECT parent_no FROM links)
    ),
    member_list AS (
        SELECT
            list(fee_sat ORDER BY member) AS fees, list(vsize_vb ORDER BY member) AS sizes,
            list(1 ORDER BY member) AS cuts
        FROM members
    ),
    link_list AS (
        SELECT
            list(child.member ORDER BY child.member, parent.member) AS children,
            list(parent.member ORDER BY child.member, parent.member) AS parents
        FROM links
        INNER JOIN members AS child ON links.child_no = child.stay_no
        INNER JOIN members AS parent ON links.parent_no = parent.stay_no
    ),
    runs AS (
        SELECT unnest(chunk_runs(cuts, cuts, fees, sizes, children, parents)) AS run
        FROM member_list CROSS JOIN link_list
        WHERE cuts IS NOT NULL
    ),
    chunks AS (
        SELECT members.stay_no, runs.run.feerate AS feerate
        FROM runs
        INNER JOIN members ON runs.run.member = members.member
    )
    SELECT
        waiting.* EXCLUDE (parents),
        coalesce(chunks.feerate, waiting.feerate_sat_vb) AS chunk_feerate_sat_vb,
        CAST(
            coalesce(sum(vsize_vb) OVER (ORDER BY chunk_feerate_sat_vb DESC NULLS LAST, waiting.stay_no), 0)
            - coalesce(vsize_vb, 0) AS BIGINT
        ) AS vsize_ahead_vb
    FROM waiting
    LEFT JOIN chunks USING (stay_no)
"""
TOTALS: Final = """
    SELECT
        count(*) AS n_waiting,
        count(*) FILTER (chunk_feerate_sat_vb IS NULL) AS n_unrated,
        count(*) FILTER (first_seen_kind != 'pushed') AS n_entry_unseen,
        CAST(coalesce(sum(vsize_vb), 0) AS BIGINT) AS vsize_vb,
        CAST(coalesce(sum(fee_sat), 0) AS BIGINT) AS fee_sat,
        -- Null where all that waits fits into a block: then no feerate is needed but the node's minimum.
        CASE
            WHEN sum(vsize_vb) > $block_vb
                THEN min(chunk_feerate_sat_vb) FILTER (vsize_ahead_vb + vsize_vb <= $block_vb)
        END AS next_block_feerate_sat_vb
    FROM mempool_then
"""
BANDS: Final = """
    WITH edges AS (
        SELECT edge AS from_sat_vb, lead(edge) OVER (ORDER BY edge) AS to_sat_vb
        FROM (SELECT unnest($edges) AS edge)
    )
    SELECT
        from_sat_vb, to_sat_vb, count(stay_no) AS n_waiting,
        CAST(coalesce(sum(vsize_vb), 0) AS BIGINT) AS vsize_vb,
        CAST(coalesce(sum(fee_sat), 0) AS BIGINT) AS fee_sat
    FROM edges
    LEFT JOIN mempool_then
        ON chunk_feerate_sat_vb >= from_sat_vb AND (to_sat_vb IS NULL OR chunk_feerate_sat_vb < to_sat_vb)
    GROUP BY from_sat_vb, to_sat_vb
    ORDER BY from_sat_vb DESC
"""
LISTED: Final = """
    SELECT
        txid, chunk_feerate_sat_vb, feerate_sat_vb, fee_sat, vsize_vb, vsize_ahead_vb, entered_at,
        first_seen_kind, left_reason, left_at
    FROM mempool_then
    ORDER BY chunk_feerate_sat_vb DESC NULLS LAST, stay_no
    LIMIT $limit OFFSET $offset
"""
# The blocks around a moment, as cuts of the node's stream. `since` is the newest of the session.
CUTS: Final = """
    SELECT
        max(cut_no) FILTER (position < stream_position($at, 0)) AS before,
        max(position) FILTER (position < stream_position($at, 0)) AS before_position,
        max(connected_at) FILTER (position < stream_position($at, 0)) AS before_at,
        min(cut_no) FILTER (position > stream_position($at, 4294967295)) AS after,
        min(position) FILTER (position > stream_position($at, 4294967295)) AS after_position,
        min(connected_at) FILTER (connected_at > $next) AS after_at,
        max(cut_no) FILTER (position <= stream_position($at, 4294967295) AND session = $session) AS since
    FROM mempool_cuts
    WHERE node = $node
"""
# Stays that neither came nor went between two cuts are left out first, by their numbers.
CHANGES: Final = """
    SELECT
        greatest(
            max(position) FILTER (position < stream_position($at, 0)),
            max(left_position) FILTER (left_position < stream_position($at, 0))
        ) AS before,
        least(
            min(position) FILTER (position > stream_position($at, 4294967295)),
            min(left_position) FILTER (left_position > stream_position($at, 4294967295))
        ) AS after
    FROM mempool_residence
    WHERE
        node = $node
        AND (
            last_cut_no BETWEEN $first_cut AND $last_cut
            OR first_cut_no BETWEEN $first_cut AND $last_cut
            OR first_cut_no IS NULL
        )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mempool:
    """Holds the mempool of one node as of the moment `at`, replayed from recorded entries and removals.

    `verdicts` has a row per node: whether the node was watched at that moment, and from when to when; if not,
    when it was watched last before and first after. `totals` are the number, the vsize (vB) and the fees
    (sat) of the waiting transactions, and the chunk feerate (sat/vB) of the last that fits into a block, None
    where all of them fit. `bands` are counts by chunk feerate. `rows` are the transactions
    listed; `vsize_ahead_vb` of a row is the size of all that pay better. Where the chosen node was not
    watched, `totals` is None and `bands` and `rows` are empty.
    """

    at: dt.datetime
    node: str
    verdicts: Sequence[Row]
    totals: Row | None
    bands: Sequence[Row]
    rows: Sequence[Row]

    @property
    def verdict(self) -> Row:
        """Return the row of `verdicts` for the chosen node: whether the node was watched at that moment."""
        return next(row for row in self.verdicts if row["node"] == self.node)


def moment_of(text: str) -> dt.datetime:
    """Convert a text in ISO 8601 to a datetime in UTC; a text without a zone is read as UTC.

    Raises NoMomentError for a text that is no time, and for a time before FIRST_YEAR or from LAST_YEAR on.
    """
    try:
        read = dt.datetime.fromisoformat(text.strip())
        moment = read.replace(tzinfo=read.tzinfo or dt.UTC).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or not FIRST_YEAR <= moment.year < LAST_YEAR:
        given = repr(text[:MAX_SAID])
        years = f"the years {FIRST_YEAR} to {LAST_YEAR - 1}"
        raise NoMomentError(f"{given} is no time in {years}; write it in UTC as 2026-01-31T12:00:00Z")
    return moment


@version_explained()
def mempool_at(
    connection: duckdb.DuckDBPyConnection,
    at: dt.datetime | None = None,
    node: str | None = None,
    *,
    limit: int = 100,
    offset: int = 0,
) -> Mempool:
    """Replay the mempool of a node as of the moment `at` and return it as a Mempool.

    It lists `limit` transactions by falling chunk feerate, after the first `offset`. Without `at` the moment
    is the last one at which the node was watched; without `node` the first node that was watched at that
    moment is taken. Raises MomentError if no node was ever watched, UnknownNodeError if none of that name
    was, and DatabaseError for a database that another version built.
    """
    ends = _rows(
        connection,
        "SELECT node, max(to_at) AS to_at FROM coverage_intervals WHERE topic = 'mempool'"
        " GROUP BY node ORDER BY to_at DESC, node",
    )
    named = [row for row in ends if node in (None, row["node"])]
    if not ends:
        raise MomentError("no node's mempool was watched; pool-collector run watches one")
    if not named:
        raise UnknownNodeError(tuple(row["node"] for row in ends))
    moment = at or named[0]["to_at"]
    verdicts = _rows(connection, VERDICTS, at=moment)
    watched = [row["node"] for row in verdicts if row["is_observed"]]
    chosen = node or (watched or [named[0]["node"]])[0]
    if chosen not in watched:
        return Mempool(at=moment, node=chosen, verdicts=verdicts, totals=None, bands=[], rows=[])
    session = next(row["session"] for row in verdicts if row["node"] == chosen)
    cuts = _cuts(connection, moment, chosen, session)
    between = {"since": cuts["since"] or 0, "last_cut": cuts["after"] or NO_CUT}
    connection.execute(REPLAYED, {"node": chosen, "session": session, "at": moment} | between)
    totals = _rows(connection, TOTALS, block_vb=BLOCK_VB)[0]
    bands = _rows(connection, BANDS, edges=[float(edge) for edge in FEERATE_EDGES])
    rows = _rows(connection, LISTED, limit=limit, offset=offset)
    return Mempool(at=moment, node=chosen, verdicts=verdicts, totals=totals, bands=bands, rows=rows)


@version_explained()
def steps_around(connection: duckdb.DuckDBPyConnection, at: dt.datetime, node: str) -> Mapping[str, Any]:
    """Return the nearest moments before and after `at` at which the mempool changed or a block came.

    The keys are `change_before`, `change_after`, `block_before` and `block_after`; a value is None if there
    is no such moment. A change is an entry of a transaction or a removal. The moment of a block is the last
    microsecond in which its transactions still waited. Raises DatabaseError for a database that another
    version built.
    """
    cuts = _cuts(connection, at, node)
    first, last = cuts["before"] or 0, cuts["after"] or NO_CUT
    changes = _changes(connection, at, node, first, last)
    is_behind_cut = (changes["before"] or 0) >= (cuts["before_position"] or 0)
    is_ahead_of_cut = (changes["after"] or NO_POSITION) <= (cuts["after_position"] or NO_POSITION)
    if not (is_behind_cut and is_ahead_of_cut):  # a nearer change may have been left out
        changes = _changes(connection, at, node, 0, NO_CUT)
    return {
        "change_before": _moment(changes["before"]),
        "change_after": _moment(changes["after"]),
        "block_before": cuts["before_at"] and cuts["before_at"] - MICROSECOND,
        "block_after": cuts["after_at"] and cuts["after_at"] - MICROSECOND,
    }


def _cuts(
    connection: duckdb.DuckDBPyConnection, at: dt.datetime, node: str, session: str | None = None
) -> Row:
    return _rows(connection, CUTS, node=node, at=at, next=at + MICROSECOND, session=session)[0]


def _changes(
    connection: duckdb.DuckDBPyConnection, at: dt.datetime, node: str, first_cut: int, last_cut: int
) -> Row:
    return _rows(connection, CHANGES, node=node, at=at, first_cut=first_cut, last_cut=last_cut)[0]


def said(verdict: Row) -> str:
    """Return a sentence that says whether a node was watched at a moment.

    `verdict` is the node's row in `Mempool.verdicts`. If the node was not watched, the sentence says when it
    was watched last before, and first after.
    """
    if verdict["is_observed"]:
        return f"Watched from {written(verdict['from_at'])} to {written(verdict['to_at'])}."
    before, after = verdict["observed_before"], verdict["observed_after"]
    if before is None:
        return f"Not watched: the observation begins at {written(after)}."
    reason = verdict["end_reason"].replace("_", " ")
    ended = f"Not watched: the observation ended at {written(before)} ({reason})"
    return f"{ended}." if after is None else f"{ended}, and the next begins at {written(after)}."


def written(at: dt.datetime) -> str:
    """Return a datetime as text in ISO 8601 in UTC, which ends in Z."""
    return at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def summary(mempool: Mempool) -> list[str]:
    """Return the lines that a terminal shows above a mempool's transactions: verdict per node, and totals."""
    lines = [f"{row['node']}: {said(row)}" for row in mempool.verdicts]
    totals = mempool.totals
    if totals is not None:
        lines.append(
            f"mempool of {mempool.node} at {written(mempool.at)}: {totals['n_waiting']:,} transactions,"
            f" {totals['vsize_vb']:,} vB, {totals['fee_sat']:,} sat of fees"
        )
    if totals is not None and totals["n_unrated"]:
        lines.append(f"without a known fee or size, so not rated: {totals['n_unrated']:,}")
    if totals is not None and totals["n_entry_unseen"]:
        lines.append(f"entered before we watched, or were found later: {totals['n_entry_unseen']:,}")
    return lines


def _moment(position: Decimal | None) -> dt.datetime | None:
    """Return the time (UTC) of a position in a node's stream of messages; None for None.

    The bits of a position from bit 32 on are the time in microseconds since 1970. What was found out later
    has a counter below zero, so its time is a microsecond early.
    """
    if position is None:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=int(position) >> 32)


def _rows(connection: duckdb.DuckDBPyConnection, query: str, **named: Any) -> list[Row]:
    found: list[Row] = connection.sql(query, params=named).to_arrow_table().to_pylist()
    return found
