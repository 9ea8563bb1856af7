"""Check that the mempool's events agree with other rows: their times, tips and reasons.

When a journal is lost, events may remain without the rows that explain them: so only sessions that ended
without a kill must be complete. Times are compared only for nodes during whose sessions nobody set the clock.
"""

from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.check.stream import RUNS, in_order, shown

RESTORE: Final = "restore the files of mempool_events and coverage of that day from a copy"
PUSHED: Final = "FROM mempool_events WHERE kind = 'pushed'"
CLOCK_STEP_S: Final = 0.5  # the default of the setting, where a session's row lacks it

# Sessions that must be complete: none was killed, and no journal still holds a part of them.
WHOLE: Final = """
    SELECT node, session FROM nodes
    ANTI JOIN (FROM all_coverage WHERE end_reason = 'killed') USING (node, session)
    SEMI JOIN (FROM all_coverage WHERE end_reason IN ('shutdown', 'node_restart')) USING (node, session)
"""


def check_moments(view: DatasetView) -> CheckResult:
    """Find messages whose times contradict their counters' order, or lie outside their coverage interval.

    A clock may be slewed: times may contradict the order by less than the setting `clock_step_s`. Returns a
    CheckResult.
    """
    # If messages are in order, it is enough to compare the first and the last of an interval.
    limits = """
        SELECT node, session, from_at, to_at, unnest([first_sequence, last_sequence]) AS sequence
        FROM all_coverage WHERE topic = 'sequence' AND first_sequence IS NOT NULL
    """
    query = f"""
        WITH steady AS (
            SELECT node, session, to_seconds(CASE WHEN json_valid(settings) THEN coalesce(
                TRY_CAST(json_extract_string(settings, '$.clock_step_s') AS DOUBLE), {CLOCK_STEP_S}
            ) END) AS slack
            FROM all_nodes ANTI JOIN (FROM all_coverage WHERE end_reason = 'clock_step') USING (node)
        ), events AS ({in_order(PUSHED, "sequence")})
        SELECT node, session, e.sequence
        FROM events e JOIN steady USING (node, session)
        JOIN (SELECT node, session, sequence + 1 AS sequence, received_at FROM events) before
            USING (node, session, sequence)
        WHERE e.received_at < before.received_at - slack
        UNION ALL
        SELECT node, session, e.sequence
        FROM events e JOIN steady USING (node, session)
        JOIN ({in_order(limits, "sequence")}) c USING (node, session, sequence)
        WHERE e.received_at < from_at - slack OR e.received_at > to_at + slack
    """  # noqa: S608 - queries of ours
    return view.result(
        "moments",
        "messages are stamped in their order, and inside their intervals",
        "FROM mempool_events WHERE kind = 'pushed'",
        query,
        lambda node, session, sequence: (
            (
                f"{node}, session {session}: message {shown(sequence)} is stamped before the last one, or "
                "outside its interval of coverage"
            ),
            RESTORE,
        ),
    )


def check_tips(view: DatasetView) -> CheckResult:
    """Find events that connect a block whose parent is not the tip, or disconnect one that is not the tip.

    Returns a CheckResult.
    """
    query = f"""
        WITH runs AS ({RUNS}), changes AS (
            SELECT e.node, e.session, e.sequence, e.event, e.hash, b.prev_hash,
                lag(CASE WHEN e.event = 'D' OR b.prev_hash IS NULL THEN b.prev_hash ELSE e.hash END)
                    OVER (PARTITION BY e.node, e.session, r.run ORDER BY e.sequence) AS tip
            FROM (FROM ({in_order(PUSHED, "sequence")}) WHERE event IN ('C', 'D')) e
            ASOF JOIN (FROM runs WHERE topic = 'sequence') r
                ON e.node = r.node AND e.session = r.session AND e.sequence >= r.first_sequence
            LEFT JOIN (SELECT DISTINCT block_hash, prev_hash FROM all_blocks) b ON e.hash = b.block_hash
            WHERE e.sequence <= r.last_sequence
        )
        SELECT node, session, sequence, lower(hex(hash)), lower(hex(tip)) FROM changes
        ANTI JOIN (FROM all_rejects WHERE topic = 'sequence') USING (node, session)
        WHERE prev_hash IS NOT NULL AND CASE event WHEN 'C' THEN prev_hash ELSE hash END <> tip
    """  # noqa: S608 - queries of ours
    return view.result(
        "tips",
        "each connected block follows the tip, and only the tip is disconnected",
        "FROM mempool_events WHERE kind = 'pushed' AND event IN ('C', 'D')",
        query,
        lambda node, session, sequence, block_hash, tip: (
            (
                f"{node}, session {session}: message {shown(sequence)} of block {display_hash(block_hash)} "
                f"does not follow the tip {display_hash(tip)}"
            ),
            RESTORE,
        ),
    )


def check_reasons(view: DatasetView) -> CheckResult:
    """Find removed transactions whose recorded reason has no event that explains it.

    The event is a replacement, a connected block (conflict) or a disconnected block (reorganisation). Returns
    a CheckResult.
    """
    query = f"""
        WITH events AS (FROM ({in_order(PUSHED, "sequence")}) SEMI JOIN ({WHOLE}) USING (node, session)),
        blocks AS (
            SELECT node, session, max(sequence) FILTER (event = 'C') AS last_connected,
                min(sequence) FILTER (event = 'D') AS first_disconnected
            FROM events GROUP BY node, session
        ), entered AS (
            SELECT node, session, hash, max(sequence) AS sequence FROM events WHERE event = 'A' GROUP BY ALL
        )
        SELECT r.node, r.session, r.sequence, r.removal_reason FROM (FROM events WHERE event = 'R') r
        JOIN blocks b USING (node, session)
        LEFT JOIN entered a ON r.node = a.node AND r.session = a.session AND r.replaced_by = a.hash
        WHERE CASE r.removal_reason
            WHEN 'replaced' THEN r.replaced_by IS NOT NULL AND coalesce(a.sequence < r.sequence, true)
            WHEN 'conflict' THEN coalesce(b.last_connected < r.sequence, true)
            WHEN 'reorged' THEN coalesce(b.first_disconnected > r.sequence, true)
            ELSE false END
    """  # noqa: S608 - queries of ours
    return view.result(
        "reasons",
        "what explains a removal is there",
        "FROM mempool_events WHERE event = 'R'",
        query,
        lambda node, session, sequence, reason: (
            (
                f"{node}, session {session}: message {shown(sequence)} says {reason}, and nothing there is "
                "the cause"
            ),
            RESTORE,
        ),
    )


def check_rawblocks(view: DatasetView) -> CheckResult:
    """Find sessions in which coverage counts another number of `rawblock` messages than arrived.

    A message that was rejected counts as arrived. Returns a CheckResult.
    """
    query = f"""
        SELECT node, session, sum(n_messages) AS n_claimed, sum(n_there) AS n_there FROM (
            SELECT node, session, n_messages, 0 AS n_there FROM coverage WHERE topic = 'rawblock'
            UNION ALL SELECT node, session, 0, 1 FROM block_arrivals WHERE event = 'seen' AND kind = 'pushed'
            UNION ALL SELECT node, session, 0, 1 FROM rejects
                WHERE topic = 'rawblock' AND sequence IS NOT NULL
        ) SEMI JOIN ({WHOLE}) USING (node, session)
        GROUP BY node, session HAVING n_claimed <> n_there
    """  # noqa: S608 - queries of ours
    return view.result(
        "rawblocks",
        "each message of rawblock has its arrival, or was rejected",
        "FROM block_arrivals WHERE event = 'seen' AND kind = 'pushed'",
        query,
        lambda node, session, n_claimed, n_there: (
            f"{node}, session {session}: messages of rawblock in coverage: {n_claimed}, there: {n_there}",
            "restore the files of block_arrivals and coverage of that day from a copy",
        ),
    )


def check_pulled(view: DatasetView) -> CheckResult:
    """Find transactions from mempool snapshots that have only a mempool event or only a mempool entry.

    Returns a CheckResult.
    """
    query = f"""
        WITH whole AS ({WHOLE}), events AS (
            FROM mempool_events SEMI JOIN whole USING (node, session) WHERE kind = 'pulled'
        ), entries AS (FROM mempool_txs SEMI JOIN whole USING (node, session))
        SELECT node, session, 'an entry that was pulled has no event' FROM (
            SELECT *, txid AS hash, entered_at AS received_at FROM entries WHERE first_seen_kind = 'pulled'
        ) ANTI JOIN (FROM events WHERE event = 'A') USING (node, session, hash, received_at)
        UNION ALL
        SELECT node, session, 'an event that was pulled has no entry' FROM (
            SELECT *, hash AS txid, received_at AS entered_at FROM events WHERE event = 'A'
        ) ANTI JOIN (FROM entries WHERE first_seen_kind = 'pulled') USING (node, session, txid, entered_at)
        UNION ALL
        SELECT node, session, 'events that were pulled are missing' FROM events
        GROUP BY node, session HAVING min(sequence) <> -count(*)
        UNION ALL
        SELECT node, session, 'an entry first seen in a block has no block with it'
        FROM (FROM entries WHERE first_seen_kind = 'in_block') t
        ANTI JOIN (
            SELECT e.node, e.session, e.received_at AS entered_at, x.txid
            FROM (
                FROM mempool_events WHERE event = 'C' AND kind = 'pushed'
            ) e JOIN transactions x ON x.block_hash = e.hash
        ) USING (node, session, txid, entered_at)
    """  # noqa: S608 - queries of ours
    return view.result(
        "pulled",
        "rows that come from snapshots are there as events and as entries",
        "FROM mempool_events WHERE kind = 'pulled'",
        query,
        lambda node, session, wrong: (
            f"{node}, session {session}: {wrong}",
            "restore the files of mempool_events and mempool_txs of that day from a copy",
        ),
    )
