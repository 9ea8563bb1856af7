"""Check what was received: coverage intervals, the messages in them, and the node's mempool sequence.

Rows and messages that are still in a journal count as present. Times are compared only for nodes during whose
sessions nobody set the clock.
"""

from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.log import counted
from collector.receive.records import COUNTER_RANGE

LOST: Final = "no way: these messages are lost, and `coverage` should end there but does not; report it"

# Sessions in which the counter of `sequence` has begun at 0 again. None has messages for half of its range.
_TURNED: Final = f"""
    SELECT node, session, true AS has_turned FROM all_coverage
    WHERE topic IN ('sequence', 'mempool') AND first_sequence IS NOT NULL GROUP BY node, session
    HAVING max(greatest(first_sequence, last_sequence)) - min(least(first_sequence, last_sequence))
        >= {COUNTER_RANGE // 2}
"""  # noqa: S608 - a query of ours


def in_order(rows: str, *counters: str) -> str:
    """Return a query for `rows` with counters of `sequence` that rise also where the counter returned to 0.

    `counters` are the columns that hold them; `shown` turns such a number into the counter that it was.
    """
    turned = f"has_turned AND {{0}} < {COUNTER_RANGE // 2}"
    risen = [f"{each} + CASE WHEN {turned.format(each)} THEN {COUNTER_RANGE} ELSE 0 END" for each in counters]
    replaced = ", ".join(f"{value} AS {each}" for each, value in zip(counters, risen, strict=True))
    return (
        f"SELECT * EXCLUDE (has_turned) REPLACE ({replaced}) "  # noqa: S608 - a query of ours
        f"FROM ({rows}) LEFT JOIN ({_TURNED}) USING (node, session)"
    )


def shown(risen: int) -> int:
    """Return the counter in a message, given a number of `in_order`."""
    return risen % COUNTER_RANGE


# Pushed messages of the `sequence` topic that are there: as rows, rejected, or in a journal.
PRESENT: Final = """
    SELECT DISTINCT node, session, sequence FROM (
        SELECT node, session, sequence FROM all_mempool_events WHERE kind = 'pushed'
        UNION ALL SELECT node, session, sequence FROM all_rejects WHERE topic = 'sequence'
        UNION ALL SELECT node, session, sequence FROM journal_messages WHERE topic = 'sequence'
    ) WHERE sequence IS NOT NULL
"""

# Intervals with the number of their run: those of a run go on into each other. Where the clock was set, the
# times of intervals do not show their order: each of them is a run of its own.
_NUMBERED: Final = """
    SELECT * EXCLUDE (begins), count(*) FILTER (begins) OVER (
        PARTITION BY node, session, topic ORDER BY from_at, to_at ROWS UNBOUNDED PRECEDING
    ) AS run
    FROM (
        SELECT *,
            coalesce(lag(end_reason) OVER (
                PARTITION BY node, session, topic ORDER BY from_at, to_at
            ) <> 'sealed', true)
            OR bool_or(end_reason = 'clock_step') OVER (PARTITION BY node, session) AS begins
        FROM all_coverage
    )
"""
_BEFORE: Final = "ORDER BY from_at, to_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_NUMBERED_IN_ORDER: Final = in_order(
    f"FROM ({_NUMBERED}) WHERE topic IN ('sequence', 'mempool')", "first_sequence", "last_sequence"
)
# Runs of intervals, as counters of the `sequence` topic, in order.
RUNS: Final = f"""
    SELECT node, session, topic, run, min(from_at) AS from_at, min(first_sequence) AS first_sequence,
        max(last_sequence) AS last_sequence
    FROM ({_NUMBERED_IN_ORDER})
    GROUP BY node, session, topic, run HAVING min(first_sequence) IS NOT NULL
"""  # noqa: S608 - a query of ours


# The messages from counter `first_sequence` to `last_sequence`, where 0 follows the highest counter.
_CLAIMED: Final = f"((last_sequence - first_sequence) & {COUNTER_RANGE - 1}) + 1"
# How far the first counter is ahead of the last one before: 1 when they follow. As in the receiver, a counter
# that is half the range ahead or more is a step back.
_AHEAD: Final = f"((first_sequence - newest) & {COUNTER_RANGE - 1})"


def check_intervals(view: DatasetView) -> CheckResult:
    """Find coverage intervals of a node and topic that overlap, end too early, or contradict the next one.

    An interval with the end reason `sealed` must go on in the next one. Returns a CheckResult.
    """
    query = f"""
        SELECT node, topic, session, strftime(from_at, '%Y-%m-%d %H:%M:%S.%f'), CASE
            WHEN to_at < from_at THEN 'it ends before it begins'
            WHEN (first_sequence IS NULL) <> (last_sequence IS NULL) OR {_CLAIMED} > {COUNTER_RANGE // 2}
                OR n_messages < 0 OR (first_sequence IS NULL AND n_messages > 0)
                OR (topic <> 'mempool' AND n_messages <> {_CLAIMED})
                THEN 'its counters and its number of messages do not agree'
            WHEN NOT is_steady THEN NULL
            WHEN next_from_at < to_at THEN 'the next one begins before it ends'
            WHEN end_reason = 'sealed' AND (next_from_at <> to_at OR next_session <> session)
                THEN 'it says that the next one goes on where it ends, and none does'
            WHEN end_reason IN ('shutdown', 'node_restart') AND next_session = session
                THEN 'it says that its session ended, and the next one is of the same'
            WHEN {_AHEAD} NOT BETWEEN 1 AND {COUNTER_RANGE // 2}
                OR (topic <> 'mempool' AND newest_of_run IS NOT NULL AND {_AHEAD} <> 1)
                THEN 'its counters do not go on from those of the one before'
            END AS wrong
        FROM (
            SELECT *,
                lead(from_at) OVER following AS next_from_at, lead(session) OVER following AS next_session,
                last_value(last_sequence IGNORE NULLS) OVER (
                    PARTITION BY node, session, topic {_BEFORE}
                ) AS newest,
                last_value(last_sequence IGNORE NULLS) OVER (
                    PARTITION BY node, session, topic, run {_BEFORE}
                ) AS newest_of_run,
                bool_and(end_reason <> 'clock_step') OVER (PARTITION BY node) AS is_steady
            FROM ({_NUMBERED}) WINDOW following AS (PARTITION BY node, topic ORDER BY from_at, to_at)
        )
        WHERE wrong IS NOT NULL
    """  # noqa: S608 - queries of ours
    return view.result(
        "coverage",
        "intervals are in order, apart, and each but the last goes on or has ended",
        "FROM coverage",
        query,
        lambda node, topic, session, from_at, wrong: (
            f"{topic} of {node}, session {session}, from {from_at}: {wrong}",
            LOST,
        ),
    )


# Intervals that claim messages of `sequence`. Those of `mempool` do not count messages that were rejected.
_INTERVALS: Final = in_order(
    "FROM all_coverage WHERE topic IN ('sequence', 'mempool')", "first_sequence", "last_sequence"
)
_CLAIMING: Final = f"""
    SELECT node, session, topic, first_sequence, last_sequence, n_messages,
        strftime(from_at, '%Y-%m-%d %H:%M:%S.%f') AS from_at
    FROM ({_INTERVALS}) WHERE first_sequence IS NOT NULL AND (
        topic = 'sequence' OR (topic = 'mempool' AND (node, session) NOT IN (
            SELECT (node, session) FROM all_rejects WHERE topic = 'sequence'
        ))
    )
"""  # noqa: S608 - a query of ours


def check_messages(view: DatasetView) -> CheckResult:
    """Find `sequence` messages counted in coverage and missing, or the reverse; return a CheckResult."""
    result = CheckResult("messages", "every message that coverage claims is there, and no other")
    view.rows(f"CREATE OR REPLACE TEMP TABLE present AS {in_order(PRESENT, 'sequence')}")
    result.n_rows = view.count("FROM present")
    query = f"""
        WITH claimed AS ({_CLAIMING}), counted AS (
            SELECT c.node, c.session, c.topic, c.first_sequence, count(*) AS n_there
            FROM (FROM present CROSS JOIN (SELECT DISTINCT topic FROM claimed)) p ASOF JOIN claimed c
                ON p.node = c.node AND p.session = c.session AND p.topic = c.topic
                AND p.sequence >= c.first_sequence
            WHERE p.sequence <= c.last_sequence GROUP BY ALL
        )
        SELECT node, session, topic, from_at, first_sequence, last_sequence, n_messages, coalesce(n_there, 0)
        FROM claimed LEFT JOIN counted USING (node, session, topic, first_sequence)
        WHERE n_messages <> last_sequence - first_sequence + 1
            OR coalesce(n_there, 0) <> last_sequence - first_sequence + 1
    """  # noqa: S608 - queries of ours
    for node, session, topic, from_at, first, last, n_messages, n_there in view.rows(query):
        result.breach(
            f"{topic} of {node}, session {session}, from {from_at}: counters {shown(first)} to {shown(last)} "
            f"in {counted(n_messages, 'message')} claimed, {n_there} there",
            LOST,
            abs(last - first + 1 - n_there) or 1,
        )
    outside = f"""
        WITH claimed AS ({_CLAIMING})
        SELECT p.node, p.session, p.sequence
        FROM present p ASOF LEFT JOIN (FROM claimed WHERE topic = 'sequence') c
            ON p.node = c.node AND p.session = c.session AND p.sequence >= c.first_sequence
        WHERE c.last_sequence IS NULL OR p.sequence > c.last_sequence
    """  # noqa: S608 - queries of ours
    result.breaches(
        view.examples(outside),
        lambda node, session, sequence: (
            f"message {shown(sequence)} of {node}, session {session}, lies in no interval of coverage",
            "restore the file of coverage from a copy; without it the time counts as not observed",
        ),
    )
    return result


def check_numbers(view: DatasetView) -> CheckResult:
    """Find jumps in the node's mempool sequence that no block explains while our copy equalled the node's.

    Each A (added) or R (removed) uses one number, each C (connected) as many as it mined transactions.
    Transactions known only from a snapshot may or may not count. Returns a CheckResult.
    """
    result = CheckResult("numbers", "the node's mempool sequence skips only numbers that blocks explain")
    view.rows(f"CREATE OR REPLACE TEMP TABLE steps AS {_STEPS}")
    result.n_rows = view.count("FROM steps WHERE event IN ('A', 'R')")
    backwards = "SELECT node, session, sequence, step FROM steps WHERE step < 0"
    result.breaches(
        view.examples(backwards),
        lambda node, session, sequence, step: (
            f"{node}, session {session}: message {shown(sequence)} goes back by {-step}",
            LOST,
        ),
    )
    result.breaches(
        view.examples(_UNEXPLAINED),
        lambda node, session, sequence, skipped, least, most: (
            (
                f"{node}, session {session}: up to message {shown(sequence)} {skipped} numbers were skipped, "
                f"blocks explain {least if least == most else f'{least} to {most}'}"
            ),
            LOST,
        ),
    )
    return result


def check_first_seen(view: DatasetView) -> CheckResult:
    """Find `pushed` mempool entries or block arrivals without their message, and messages without their row.

    Returns a CheckResult.
    """
    result = CheckResult("first_seen", "each pushed row has its message, and each message its row")
    result.n_rows = view.count("FROM mempool_txs")
    query = """
        SELECT t.node, t.session, t.mempool_sequence, e.hash IS NULL
        FROM (FROM mempool_txs WHERE first_seen_kind = 'pushed') t
        LEFT JOIN (FROM all_mempool_events WHERE event = 'A' AND kind = 'pushed') e
            ON t.node = e.node AND t.session = e.session AND t.mempool_sequence = e.mempool_sequence
            AND t.txid = e.hash
        WHERE e.hash IS NULL OR e.received_at <> t.entered_at
    """
    result.breaches(
        view.examples(query),
        lambda node, session, number, is_absent: (
            (
                f"{node}, session {session}: the entry with mempool sequence {number} has "
                f"{'no message' if is_absent else 'a message of another moment'}"
            ),
            "restore the files of mempool_events and mempool_txs of that day from a copy",
        ),
    )
    unannounced = """
        SELECT a.node, a.session, lower(hex(a.block_hash)), a.event
        FROM (FROM block_arrivals WHERE kind = 'pushed' AND event <> 'seen') a
        ANTI JOIN (FROM all_mempool_events WHERE kind = 'pushed') e ON a.node = e.node
            AND a.session = e.session AND a.block_hash = e.hash AND a.event_at = e.received_at
            AND a.event = CASE e.event WHEN 'C' THEN 'connected' WHEN 'D' THEN 'disconnected' END
    """
    result.breaches(
        view.examples(unannounced),
        lambda node, session, block_hash, event: (
            f"{node}, session {session}: no message has block {display_hash(block_hash)} as {event} then",
            "restore the files of mempool_events and block_arrivals of that day from a copy",
        ),
    )
    result.breaches(
        view.examples(_without_rows(view)),
        lambda node, session, sequence, table: (
            f"{node}, session {session}: message {sequence} has no row in {table}",
            f"restore the file of {table} of that day from a copy",
        ),
    )
    return result


def _without_rows(view: DatasetView) -> str:
    """Return a SQL query for messages of a transaction or block without a mempool entry or block arrival.

    The newest session of a node is left out while its journal has files: its rows may still be there.
    """
    nodes = {segment.parent.name for segment in view.files.journals.segments}
    open_nodes = ", ".join("'" + node.replace("'", "''") + "'" for node in sorted(nodes)) or "''"
    return f"""
        WITH events AS (
            SELECT e.* FROM mempool_events e
            LEFT JOIN (SELECT node, max(session) AS newest FROM all_nodes GROUP BY node) n USING (node)
            WHERE e.kind = 'pushed' AND NOT (e.node IN ({open_nodes}) AND e.session = n.newest)
        )
        SELECT node, session, sequence, 'mempool_txs' FROM events e
        ANTI JOIN all_mempool_txs t ON t.node = e.node AND t.session = e.session AND t.txid = e.hash
        WHERE event = 'A'
        UNION ALL
        SELECT node, session, sequence, 'block_arrivals' FROM events e
        ANTI JOIN all_block_arrivals a ON a.node = e.node AND a.session = e.session
            AND a.block_hash = e.hash AND a.event_at = e.received_at
            AND a.event = CASE e.event WHEN 'C' THEN 'connected' ELSE 'disconnected' END
        WHERE event IN ('C', 'D')
    """  # noqa: S608 - names of nodes are quoted


# Pushed messages in step, with how many numbers each skipped, and how many a C may have used up.
_PUSHED: Final = """
    SELECT node, session, sequence, received_at, event, hash, mempool_sequence
    FROM mempool_events WHERE kind = 'pushed'
"""
_STEPS: Final = f"""
    WITH events AS ({in_order(_PUSHED, "sequence")}), runs AS ({RUNS}), from_snapshot AS (
        SELECT DISTINCT node, session, hash AS txid FROM all_mempool_events WHERE kind = 'pulled'
        UNION SELECT DISTINCT node, session, txid FROM all_mempool_txs
            WHERE first_seen_kind IN ('at_start', 'pulled')
    ), mined AS (
        SELECT DISTINCT e.node, e.session, e.sequence, t.txid
        FROM events e JOIN transactions t ON t.block_hash = e.hash
        WHERE e.event = 'C' AND t.tx_index > 0
    ), history AS (
        SELECT *, lag(letter) OVER (PARTITION BY node, session, txid ORDER BY sequence) AS before
        FROM (
            SELECT node, session, sequence, hash AS txid, event AS letter FROM events
            WHERE event IN ('A', 'R')
            UNION ALL SELECT node, session, sequence, txid, 'C' FROM mined
        )
    ), used AS (
        SELECT node, session, sequence,
            count(*) FILTER (before = 'A' AND from_snapshot.txid IS NULL) AS least,
            count(*) FILTER (before = 'A' OR from_snapshot.txid IS NOT NULL) AS most
        FROM history LEFT JOIN from_snapshot USING (node, session, txid)
        WHERE letter = 'C' GROUP BY node, session, sequence
    ), with_transactions AS (SELECT DISTINCT block_hash FROM transactions)
    SELECT e.node, e.session, m.run AS run, s.run AS part, e.sequence, e.event,
        e.mempool_sequence - 1 - lag(e.mempool_sequence IGNORE NULLS) OVER stream AS step,
        coalesce(u.least, 0) AS least,
        CASE WHEN e.event = 'C' AND k.block_hash IS NULL THEN 1000000 ELSE coalesce(u.most, 0) END AS most,
        last_value(CASE WHEN e.event IN ('C', 'D') THEN e.event END IGNORE NULLS) OVER (
            PARTITION BY e.node, e.session ORDER BY e.sequence
        ) AS last_block
    FROM events e
    ASOF JOIN (FROM runs WHERE topic = 'mempool') m
        ON e.node = m.node AND e.session = m.session AND e.sequence >= m.first_sequence
    ASOF JOIN (FROM runs WHERE topic = 'sequence') s
        ON e.node = s.node AND e.session = s.session AND e.sequence >= s.first_sequence
    LEFT JOIN used u ON e.node = u.node AND e.session = u.session AND e.sequence = u.sequence
    LEFT JOIN with_transactions k ON e.hash = k.block_hash
    WHERE e.sequence <= m.last_sequence AND e.sequence <= s.last_sequence AND e.received_at >= m.from_at
    WINDOW stream AS (PARTITION BY e.node, e.session, m.run, s.run ORDER BY e.sequence)
"""  # noqa: S608 - queries of ours

# A node skips numbers before a C (transactions that conflict with the block go first) or after it. From one
# A to the next, the skipped numbers must be those that blocks used up. In a reorganisation, A comes before C.
_UNEXPLAINED: Final = """
    SELECT node, session, sequence, skipped, at_least, at_most FROM (
        SELECT *,
            total - lag(total) OVER between_entries AS skipped,
            total_least - lag(total_least) OVER between_entries AS at_least,
            total_most - lag(total_most) OVER between_entries AS at_most
        FROM (
            SELECT *, sum(step) OVER run AS total, sum(least) OVER run AS total_least,
                sum(most) OVER run AS total_most
            FROM steps WINDOW run AS (PARTITION BY node, session, run, part ORDER BY sequence)
        ) WHERE event = 'A' AND last_block IS DISTINCT FROM 'D'
        WINDOW between_entries AS (PARTITION BY node, session, run, part ORDER BY sequence)
    ) WHERE skipped < at_least OR skipped > at_most
"""
