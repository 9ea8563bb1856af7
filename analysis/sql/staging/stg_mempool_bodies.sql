/*
summary = "Raw bytes of transactions, by default of those that left a mempool unconfirmed."
grain = ["node", "session", "txid", "kept_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
txid = "BLOB  Transaction id, internal byte order"
kept_at = "TIMESTAMP WITH TIME ZONE  When it left the mempool, or when it entered it, by our clock"
kept_because = "VARCHAR  left, entered (where all are kept), or left_unseen: while no collector ran"
raw = "BLOB  The serialised transaction, with witness"
*/
select
    node,
    session,
    txid,
    kept_at,
    kept_because,
    raw
from mempool_bodies
