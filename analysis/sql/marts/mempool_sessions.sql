/*
summary = "When each session of a node began, when it was over, and the last block that it saw."
method = """
A session is over when the next session of the same node begins. It begins with its row of stg_nodes or with its first
cut, whichever is earlier. What waits in a session that is over is not watched any more: it waited last at last_cut_no.
"""
grain = ["node", "session"]
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
started_at = "TIMESTAMP WITH TIME ZONE  beginning of the session, our clock"
ended_at = "TIMESTAMP WITH TIME ZONE  beginning of the node's next session, our clock; null for its newest"
last_cut_no = "BIGINT  the session's last cut in mempool_cuts; 0 where it has none"
*/
with

begun as (
    select
        node,
        session,
        started_at,
        0 as cut_no
    from stg_nodes
    union all
    select
        node,
        session,
        connected_at as started_at,
        cut_no
    from mempool_cuts
),

sessions as (
    select
        node,
        session,
        min(started_at) as started_at,
        cast(max(cut_no) as bigint) as last_cut_no
    from begun
    group by node, session
)

select
    node,
    session,
    started_at,
    lead(started_at) over (partition by node order by started_at, session) as ended_at,
    last_cut_no
from sessions
order by node, session
