/*
summary = "What happened to a block at a node, and when, on our clock; a stale block keeps its rows."
method = """
A row that a node pushed while it was catching up has the kind `pulled` here, because its time does not say when the
block became known.
"""
grain = ["node", "session", "block_hash", "event", "event_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
block_hash = "BLOB  Header hash, internal byte order"
event = "VARCHAR  First seen, connected to the node's active chain, or disconnected"
event_at = "TIMESTAMP WITH TIME ZONE  Our clock"
kind = "VARCHAR  How we learnt of it; only `pushed` is a time of arrival"
height = "INTEGER  Height, when known"
prev_hash = "BLOB  Parent, when known"
*/
select
    node,
    session,
    block_hash,
    event,
    event_at,
    case when is_catch_up then 'pulled' else kind end as kind,
    height,
    prev_hash
from block_arrivals
