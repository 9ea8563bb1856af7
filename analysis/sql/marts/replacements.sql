/*
summary = "Every removal of a transaction that another one replaced, as the node's messages tell."
method = "The R of mempool_events whose reason is replaced, where what replaced it is known (replaced_by)."
grain = ["node", "session", "sequence"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_events = """received_at >= getvariable('range_from_at') and received_at < getvariable('range_to_at')
and event = 'R' and removal_reason = 'replaced' and replaced_by is not null"""
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
sequence = "BIGINT  counter of the R, as in mempool_events"
txid = "BLOB  the replaced transaction"
replaced_by = "BLOB  txid of what replaced it"
replaced_at = "TIMESTAMP WITH TIME ZONE  time on our clock of the R"
*/
select
    node,
    session,
    sequence,
    hash as txid,
    replaced_by,
    received_at as replaced_at
from stg_mempool_events
where event = 'R' and removal_reason = 'replaced' and replaced_by is not null
order by replaced_at, node, session, sequence
