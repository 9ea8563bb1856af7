/*
summary = "What could not be decoded or verified, kept whole."
grain = ["node", "session", "received_at", "topic"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
received_at = "TIMESTAMP WITH TIME ZONE  Our clock when it reached us"
topic = "VARCHAR  Where it came from: a ZMQ topic, `rpc`, a file, or the table of a row that did not fit"
sequence = "BIGINT  Counter of the message"
reason = "VARCHAR  What is wrong with it"
body = "BLOB  The bytes as received"
*/
select
    node,
    session,
    received_at,
    topic,
    sequence,
    reason,
    body
from rejects
