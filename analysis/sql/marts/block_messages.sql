/*
summary = "Every message of a node that it has connected a block (C), or disconnected one (D)."
method = """
The C and the D that the node pushed, out of mempool_events. They are few among its messages, so that what numbers the
blocks of a node (mempool_cuts) or follows its reorganisations (reorg_depth) need not read all of them.
"""
grain = ["node", "session", "sequence"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_events = """received_at >= getvariable('range_from_at') and received_at < getvariable('range_to_at')
and event in ('C', 'D') and kind = 'pushed'"""
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
sequence = "BIGINT  counter of the message, as in mempool_events"
event = "VARCHAR  C: the node connected the block; D: it disconnected the block"
block_hash = "BLOB  header hash, internal byte order"
received_at = "TIMESTAMP WITH TIME ZONE  time on our clock of the message"
*/
select
    node,
    session,
    sequence,
    event,
    hash as block_hash,
    received_at
from stg_mempool_events
where event in ('C', 'D') and kind = 'pushed'
order by received_at, node, session, sequence
