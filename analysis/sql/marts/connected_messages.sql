/*
summary = "Every message of a node that it has connected a block."
method = """
The C that the node pushed, out of mempool_events. They are few among its messages, so that what numbers the blocks of a
node (mempool_cuts) need not read all of them.
"""
grain = ["node", "session", "sequence"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_events = """received_at >= getvariable('range_from_at') and received_at < getvariable('range_to_at')
and event = 'C' and kind = 'pushed'"""
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
sequence = "BIGINT  counter of the C, as in mempool_events"
block_hash = "BLOB  header hash, internal byte order"
connected_at = "TIMESTAMP WITH TIME ZONE  time on our clock of the C"
*/
select
    node,
    session,
    sequence,
    hash as block_hash,
    received_at as connected_at
from stg_mempool_events
where event = 'C' and kind = 'pushed'
order by connected_at, node, session, sequence
