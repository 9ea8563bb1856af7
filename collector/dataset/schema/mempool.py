"""Define the tables of what waits: the mempool's entries, events and statistics, and the node's templates."""

import pyarrow as pa

from collector.dataset.schema.model import (
    AT,
    BIG,
    BODY_REASONS,
    COUNT,
    EVENTS,
    FLAG,
    HASH,
    HEADER_TIME,
    HISTOGRAM,
    NODE,
    OUTPUT_TYPES,
    REMOVAL_REASONS,
    SEEN_KINDS,
    SESSION,
    TEXT,
    TRAITS,
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
        col("entered_at", AT, "When we learnt that it was in the mempool (or in a block), by our clock."),
        col(
            "first_seen_kind",
            TEXT,
            "How we learnt of it; `entered_at` is a time of entry only for `pushed`.",
            values=SEEN_KINDS,
        ),
        col("mempool_sequence", BIG, "The node's mempool sequence of the entry.", nullable=True),
        col(
            "node_entered_at", HEADER_TIME, "The node's own entry time; survives its restarts.", nullable=True
        ),
        col("size_bytes", BIG, "Serialised size with witness data.", nullable=True),
        col("weight_wu", BIG, "BIP141 weight.", nullable=True),
        col(
            "vsize_vb",
            BIG,
            "Virtual size: as the node's mempool counts it, with signature operations, where `fee_source` is "
            "`mempool_entry`; else a quarter of the weight, rounded up.",
            nullable=True,
        ),
        col("n_inputs", COUNT, "Number of inputs.", nullable=True),
        col("n_outputs", COUNT, "Number of outputs.", nullable=True),
        col("output_value_sat", BIG, "Value of the outputs.", nullable=True),
        col("fee_sat", BIG, "Base fee; null when it could not be learnt.", nullable=True),
        col(
            "fee_source",
            TEXT,
            "Where the fee is from: the node's mempool entry, a block with it, or the spent outputs.",
            nullable=True,
            values=("mempool_entry", "block", "inputs"),
        ),
        col(
            "ancestor_count",
            COUNT,
            "Number of in-mempool ancestors when we asked, itself included.",
            nullable=True,
        ),
        col("ancestor_vsize_vb", BIG, "Virtual size of these ancestors, itself included.", nullable=True),
        col("ancestor_fees_sat", BIG, "Fees of these ancestors, itself included.", nullable=True),
        col(
            "descendant_count",
            COUNT,
            "Number of in-mempool descendants when we asked, itself included.",
            nullable=True,
        ),
        col("descendant_vsize_vb", BIG, "Virtual size of these descendants, itself included.", nullable=True),
        col("descendant_fees_sat", BIG, "Fees of these descendants, itself included.", nullable=True),
        col(
            "parents",
            pa.list_(HASH),
            "Txids of its parents in the mempool: when we asked, or at entry where the transaction had left "
            "by then.",
            nullable=True,
        ),
        col(
            "signals_rbf",
            FLAG,
            "True when the transaction itself signals BIP125 replaceability.",
            nullable=True,
        ),
        col("version", BIG, "Transaction version.", nullable=True),
        col("locktime", BIG, "Lock time.", nullable=True),
        col(
            "output_types",
            pa.list_(TEXT),
            "Type of each output in order, as the node names it.",
            nullable=True,
            values=OUTPUT_TYPES,
        ),
        *TRAITS,
        col(
            "spent_types",
            pa.list_(TEXT),
            "Type of the output that each input spends, in order, as the node names it; null where one is "
            "not known: in bursts, at a start, and where the transaction left or was mined at once.",
            nullable=True,
            values=OUTPUT_TYPES,
        ),
        col(
            "sigop_cost",
            COUNT,
            "BIP141 signature-operation cost; null where `spent_types` is.",
            nullable=True,
        ),
    ),
)

MEMPOOL_BODIES = Table(
    name="mempool_bodies",
    doc="Raw bytes of transactions; by default of those that left a node's mempool and were not mined.",
    grain=("node", "session", "txid", "kept_at"),
    sort=("kept_at", "txid"),
    day_column="kept_at",
    columns=(
        NODE,
        SESSION,
        TXID,
        col(
            "kept_at",
            AT,
            "When it left the mempool, or when it entered it, by our clock; see `kept_because`.",
        ),
        col(
            "kept_because",
            TEXT,
            'It `left` unconfirmed; or it `entered`, with `keep_bodies = "all"`; or `left_unseen`: it left '
            "while no collector ran, perhaps into a block.",
            values=BODY_REASONS,
        ),
        col("raw", pa.binary(), "The serialised transaction, with witness."),
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
        col("sequence", BIG, "Counter of the ZMQ message; `pulled` rows have -1, -2, and so on."),
        col(
            "kind",
            TEXT,
            "`pushed`: the node sent it; `pulled`: we inferred it from a mempool snapshot.",
            values=("pushed", "pulled"),
        ),
        col("received_at", AT, "Our clock when it reached us."),
        col("event", TEXT, "A added, R removed, C block connected, D block disconnected.", values=EVENTS),
        col("hash", HASH, "Txid (A, R) or block hash (C, D), internal byte order."),
        col("mempool_sequence", BIG, "The node's mempool sequence (A, R).", nullable=True),
        col(
            "removal_reason",
            TEXT,
            "Why the transaction left (R only); we derive it, because the node does not say it.",
            nullable=True,
            values=REMOVAL_REASONS,
        ),
        col("replaced_by", HASH, "Txid of the transaction that replaced it; null if unknown.", nullable=True),
    ),
)

TEMPLATES = Table(
    name="templates",
    doc="Answers of getblocktemplate: the block that an unmodified node would mine.",
    grain=("node", "taken_at"),
    sort=("taken_at", "node"),
    day_column="taken_at",
    columns=(
        NODE,
        SESSION,
        col("taken_at", AT, "Our clock when the answer was complete."),
        col("request_us", BIG, "How long the node took to answer, in microseconds."),
        col(
            "trigger",
            TEXT,
            "Why we took it: the timer was due, or the tip had changed.",
            values=("timer", "tip"),
        ),
        col("height", COUNT, "Height of the block that the template is for."),
        col("prev_hash", HASH, "Hash of the tip that it builds on, internal byte order."),
        col("node_time", HEADER_TIME, "`curtime` of the template."),
        col("n_tx", COUNT, "Number of transactions; a template has no coinbase."),
        col("weight_wu", BIG, "Weight of these transactions."),
        col("n_sigops", BIG, "Signature-operation cost of these transactions."),
        col("fees_sat", BIG, "Fees of these transactions."),
        col("coinbase_value_sat", BIG, "Largest value that the coinbase may pay."),
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
        col("taken_at", AT, "When the template was taken; identifies its row of `templates`."),
        col("tx_index", COUNT, "Position in a block made of the template; the first is 1."),
        TXID,
        col(
            "fee_sat", BIG, "Fee as the node counts it for selection, with changes by prioritisetransaction."
        ),
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
        col("taken_at", AT, "Our clock when the node was asked (until 0.2.0: when the answer was complete)."),
        col("n_tx", BIG, "Number of transactions in the mempool."),
        col("vsize_vb", BIG, "Virtual size of these transactions."),
        col("usage_bytes", BIG, "Memory the node's mempool uses."),
        col("max_usage_bytes", BIG, "Most memory that the node's mempool may use."),
        col("fees_sat", BIG, "Fees of these transactions."),
        col("min_feerate_sat_vb", pa.float64(), "Lowest feerate that the mempool accepts."),
        col(
            "histogram",
            HISTOGRAM,
            "Transactions of our mempool copy by own feerate; bins are named by their lower bounds.",
        ),
        col(
            "clock_offset_us",
            BIG,
            "Our clock minus that of the node's host; the host's is known to 1 s.",
            nullable=True,
        ),
    ),
)
