/*
summary = "Until when our copy of each node's mempool was in step, as far as we know now."
method = """
The end of the node's newest interval in coverage_intervals of topic `mempool`. It is read for days of which something
still waits, or left behind that end. What waits in a session that is over waited last at the session's last cut
(mempool_sessions).
"""
grain = ["node"]
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
from_at = "TIMESTAMP WITH TIME ZONE  beginning of the node's newest interval, our clock"
to_at = "TIMESTAMP WITH TIME ZONE  its end so far, our clock"
to_position = "DECIMAL(38,0)  place of that end in the node's stream (macro stream_position)"
last_cut_no = "BIGINT  last_cut_no that mempool_residence gives to what still waits in that session"
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
    newest.node,
    newest.period.session,
    newest.period.from_at,
    newest.period.to_at,
    stream_position(newest.period.to_at, 0) as to_position,
    case when sessions.ended_at is null then 9000000000000000000 else sessions.last_cut_no end as last_cut_no
from newest
left join mempool_sessions as sessions
    on newest.node = sessions.node and newest.period.session = sessions.session
order by newest.node
