/*
summary = "The node's ZMQ `sequence` topic, message by message."
grain = ["node", "session", "sequence"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
sequence = "BIGINT  Counter of the message; negative and counting down for `pulled` rows"
kind = "VARCHAR  `pushed` by the node, or `pulled`: inferred by a resync"
received_at = "TIMESTAMP WITH TIME ZONE  Our clock when it reached us"
event = "VARCHAR  A added, R removed, C block connected, D block disconnected"
hash = "BLOB  Txid (A, R) or block hash (C, D), internal byte order"
mempool_sequence = "BIGINT  The node's mempool sequence (A, R)"
removal_reason = "VARCHAR  Why it left (R): derived, not told"
replaced_by = "BLOB  The transaction that replaced it, if known"
*/
select
    node,
    session,
    sequence,
    kind,
    received_at,
    event,
    hash,
    mempool_sequence,
    removal_reason,
    replaced_by
from mempool_events
