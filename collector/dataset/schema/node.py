"""Define the tables about the collection itself: sessions, coverage, rejects."""

from typing import Final

import pyarrow as pa

from collector.dataset.chains import CHAINS
from collector.dataset.schema.model import (
    AT,
    BIG,
    COUNT,
    COVERAGE_TOPICS,
    END_REASONS,
    HASH,
    NODE,
    SESSION,
    TEXT,
    Table,
    col,
)

BACKFILL_NODE = "backfill"  # in `rejects`: the rows that a backfill wrote are of no watched node

NODES = Table(
    name="nodes",
    doc="Run manifest: one row per node and session.",
    grain=("node", "session"),
    sort=("started_at", "node"),
    day_column="started_at",
    columns=(
        NODE,
        SESSION,
        col("started_at", AT, "Our clock when the session began."),
        col("chain", TEXT, "Chain the node is on, as the node names it.", values=CHAINS),
        col("node_version", COUNT, "The node's version number, e.g. 290000."),
        col("subversion", TEXT, "The node's user agent."),
        col("tip_height", COUNT, "Height of the node's tip when the session began."),
        col("tip_hash", HASH, "Hash of the node's tip when the session began."),
        col("n_mempool_at_start", BIG, "Transactions in the mempool when the session began."),
        col(
            "clock_offset_us",
            BIG,
            "Our clock minus that of the node's host; the host's is known to 1 s.",
            nullable=True,
        ),
        col("policy", TEXT, "JSON: the node's relay and mempool policy as its RPC reports it."),
        col("zmq", TEXT, "JSON: topic, endpoint and high-water mark of each notifier used."),
        col("collector_version", TEXT, "Version of this software."),
        col("software", TEXT, "JSON: versions of Python and of the libraries that matter."),
        col("settings", TEXT, "JSON: the settings of the run, without secrets."),
    ),
)

COVERAGE = Table(
    name="coverage",
    doc="Intervals that were really observed, and why each one ended.",
    grain=("node", "session", "topic", "from_at"),
    sort=("from_at", "node", "topic"),
    day_column="from_at",
    columns=(
        NODE,
        SESSION,
        col(
            "topic",
            TEXT,
            "A ZMQ topic, or `mempool`: our copy of the mempool equalled the node's.",
            values=COVERAGE_TOPICS,
        ),
        col("from_at", AT, "Our clock when the interval began."),
        col("to_at", AT, "Our clock when it ended."),
        col("first_sequence", BIG, "Counter of the interval's first message.", nullable=True),
        col("last_sequence", BIG, "Counter of the interval's last message.", nullable=True),
        col("n_messages", BIG, "Number of messages received in the interval."),
        col(
            "end_reason",
            TEXT,
            "Why it ended: after `sealed` the next row goes on at once, after any other there is a gap.",
            values=END_REASONS,
        ),
        col("detail", TEXT, "What we observed when it ended, as text for people.", nullable=True),
    ),
)

MEMBER_CLOCKS = Table(
    name="member_clocks",
    doc="Of a merged dataset: how far a member's clock was ahead of the first one's, before the correction.",
    grain=("member", "offset_at"),
    sort=("offset_at", "member"),
    day_column="offset_at",
    columns=(
        col("member", TEXT, "Name of the member; its nodes are called `<member>.<node>`."),
        col("offset_at", AT, "The moment to which the offset belongs, by the first member's clock."),
        col("offset_us", BIG, "The member's clock minus the first one's: median over what both saw."),
        col(
            "error_us",
            BIG,
            "The true offset is at most this far away if each of the two was first with a quarter or more.",
        ),
        col("n_shared", BIG, "Transactions and blocks that nodes of both members pushed about that moment."),
    ),
)

# Reason of a row of `rejects` with topic `rpc`, whose body is the hash of a block. A stored block has it as
# parent, and the node does not know it, so no collector can fetch it from this node.
UNKNOWN_PARENT: Final = "the node does not know this block, the parent of a stored one"

REJECTS = Table(
    name="rejects",
    doc="Messages, blocks and rows that could not be decoded, verified or stored, kept unchanged.",
    grain=("node", "session", "received_at", "topic"),
    sort=("received_at", "node", "topic"),
    day_column="received_at",
    columns=(
        NODE,
        SESSION,
        col("received_at", AT, "When it reached us, by our clock."),
        col(
            "topic",
            TEXT,
            "Where it came from: a ZMQ topic, `rpc`, a file, or the table of a row that did not fit.",
        ),
        col("sequence", BIG, "Counter of the ZMQ message, if it is one.", nullable=True),
        col("reason", TEXT, "What is wrong with it."),
        col("body", pa.binary(), "The bytes as received, or the refused row as JSON."),
    ),
)
