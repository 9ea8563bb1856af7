/*
summary = "Until when our copy of each node's mempool was in step, as far as we know now."
method = """
The end of the node's newest interval in coverage_intervals of topic `mempool`. It is read for days of which something
still waits, or left behind that end.
"""
grain = ["node"]
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
from_at = "TIMESTAMP WITH TIME ZONE  beginning of the node's newest interval, our clock"
to_at = "TIMESTAMP WITH TIME ZONE  its end so far, our clock"
to_position = "DECIMAL(38,0)  place of that end in the node's stream (macro stream_position)"
last_cut_no = "BIGINT  last_cut_no that mempool_residence gives to what still waits"
*/
with

newest as (
    select
        node,
        max(struct_pack(from_at := from_at, session := session, to_at := to_at)) as period
    from coverage_intervals
    where topic = 'mempool'
    group by node
)

select
    node,
    period.session,
    period.from_at,
    period.to_at,
    stream_position(period.to_at, 0) as to_position,
    9000000000000000000 as last_cut_no
from newest
order by node
