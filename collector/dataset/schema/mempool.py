"""Tables of what waits: the mempool's entries, events and sizes, and the node's templates."""

import pyarrow as pa

from collector.dataset.schema.model import (
    AT,
    BIG,
    COUNT,
    EVENTS,
    FLAG,
    HASH,
    HEADER_TIME,
    HISTOGRAM,
    NODE,
    REMOVAL_REASONS,
    SEEN_KINDS,
    SESSION,
    TEXT,
    TXID,
    Table,
    col,
)

MEMPOOL_TXS = Table(
    name="mempool_txs",
    doc="One row per entry of a transaction into a node's mempool.",
    grain=("node", "txid", "entered_at"),
    sort=("entered_at", "txid"),
    day_column="entered_at",
    columns=(
        NODE,
        SESSION,
        TXID,
        col("wtxid", HASH, "Witness transaction id, internal byte order.", nullable=True),
        col("entered_at", AT, "Our clock when we learnt that it was in the mempool (or in a block)."),
        col(
            "first_seen_kind",
            TEXT,
            "How we learnt of it; only `pushed` is a time of entry.",
            values=SEEN_KINDS,
        ),
        col("mempool_sequence", BIG, "The node's mempool sequence of the entry.", nullable=True),
        col(
            "node_entered_at", HEADER_TIME, "The node's own entry time; survives its restarts.", nullable=True
        ),
        col("size_bytes", BIG, "Serialised size with witness data.", nullable=True),
        col("weight_wu", BIG, "BIP141 weight.", nullable=True),
        col("vsize_vb", BIG, "Virtual size as the node's mempool counts it.", nullable=True),
        col("n_inputs", COUNT, "Inputs.", nullable=True),
        col("n_outputs", COUNT, "Outputs.", nullable=True),
        col("output_value_sat", BIG, "Value of the outputs.", nullable=True),
        col("fee_sat", BIG, "Base fee; null when it could not be learnt.", nullable=True),
        col(
            "fee_source",
            TEXT,
            "Where the fee is from.",
            nullable=True,
            values=("mempool_entry", "block", "inputs"),
        ),
        col("ancestor_count", COUNT, "In-mempool ancestors at entry, itself included.", nullable=True),
        col("ancestor_vsize_vb", BIG, "Their virtual size, itself included.", nullable=True),
        col("ancestor_fees_sat", BIG, "Their fees, itself included.", nullable=True),
        col("descendant_count", COUNT, "In-mempool descendants when asked, itself included.", nullable=True),
        col("descendant_vsize_vb", BIG, "Their virtual size, itself included.", nullable=True),
        col("descendant_fees_sat", BIG, "Their fees, itself included.", nullable=True),
        col("parents", pa.list_(HASH), "Txids of its parents in the mempool at entry.", nullable=True),
        col("signals_rbf", FLAG, "True when it signals BIP125 replaceability itself.", nullable=True),
    ),
)

MEMPOOL_EVENTS = Table(
    name="mempool_events",
    doc="The node's ZMQ `sequence` topic, message by message.",
    grain=("node", "session", "sequence"),
    sort=("received_at", "node", "sequence"),
    day_column="received_at",
    columns=(
        NODE,
        SESSION,
        col("sequence", BIG, "Counter of the message; negative and counting down for `pulled` rows."),
        col(
            "kind",
            TEXT,
            "`pushed` by the node, or `pulled`: inferred by a resync.",
            values=("pushed", "pulled"),
        ),
        col("received_at", AT, "Our clock when it reached us."),
        col("event", TEXT, "A added, R removed, C block connected, D block disconnected.", values=EVENTS),
        col("hash", HASH, "Txid (A, R) or block hash (C, D), internal byte order."),
        col("mempool_sequence", BIG, "The node's mempool sequence (A, R).", nullable=True),
        col(
            "removal_reason",
            TEXT,
            "Why it left (R): derived by us, the node does not say it.",
            nullable=True,
            values=REMOVAL_REASONS,
        ),
        col("replaced_by", HASH, "The transaction that replaced it, if known.", nullable=True),
    ),
)

TEMPLATES = Table(
    name="templates",
    doc="getblocktemplate snapshots: what a stock node would mine.",
    grain=("node", "taken_at"),
    sort=("taken_at", "node"),
    day_column="taken_at",
    columns=(
        NODE,
        SESSION,
        col("taken_at", AT, "Our clock when the answer was complete."),
        col("request_us", BIG, "How long the node took to answer, in microseconds."),
        col("trigger", TEXT, "Why it was taken.", values=("timer", "tip")),
        col("height", COUNT, "Height the template is for."),
        col("prev_hash", HASH, "Tip it builds on, internal byte order."),
        col("node_time", HEADER_TIME, "`curtime` of the template."),
        col("n_tx", COUNT, "Transactions, without a coinbase."),
        col("weight_wu", BIG, "Their weight."),
        col("n_sigops", BIG, "Their signature-operation cost."),
        col("fees_sat", BIG, "Their fees."),
        col("coinbase_value_sat", BIG, "Most that the coinbase may pay."),
    ),
)

TEMPLATE_TXS = Table(
    name="template_txs",
    doc="The transactions of each template, in its order.",
    grain=("node", "taken_at", "tx_index"),
    sort=("taken_at", "node", "tx_index"),
    day_column="taken_at",
    columns=(
        NODE,
        SESSION,
        col("taken_at", AT, "Names the row of `templates`."),
        col("tx_index", COUNT, "Position in a block made of the template; the first is 1."),
        TXID,
        col("fee_sat", BIG, "Fee as the node counts it for selection, priority included."),
        col("weight_wu", BIG, "BIP141 weight."),
        col("n_sigops", BIG, "Signature-operation cost."),
        col("parents", pa.list_(COUNT), "tx_index of its parents in the template."),
    ),
)

MEMPOOL_STATS = Table(
    name="mempool_stats",
    doc="getmempoolinfo and a feerate histogram, on a timer.",
    grain=("node", "taken_at"),
    sort=("taken_at", "node"),
    day_column="taken_at",
    columns=(
        NODE,
        SESSION,
        col("taken_at", AT, "Our clock when the answer was complete."),
        col("n_tx", BIG, "Transactions."),
        col("vsize_vb", BIG, "Their virtual size."),
        col("usage_bytes", BIG, "Memory the node's mempool uses."),
        col("max_usage_bytes", BIG, "Memory it may use."),
        col("fees_sat", BIG, "Their fees."),
        col("min_feerate_sat_vb", pa.float64(), "Lowest feerate that the mempool accepts."),
        col(
            "histogram", HISTOGRAM, "Transactions by own feerate, as this collector knows them; lower bounds."
        ),
        col(
            "clock_offset_us",
            BIG,
            "Our clock minus the node host's when asked, to its resolution of 1 s.",
            nullable=True,
        ),
    ),
)
