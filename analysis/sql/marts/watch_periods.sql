/*
summary = "Uninterrupted times in which our copy of a node's mempool was in step, without the end of the newest."
method = """
The intervals of coverage_intervals with topic `mempool`. The newest one of a node may go on, so its end is not told here but
in latest_watch: what rests on the others does not change when a day is added.
"""
grain = ["node", "session", "from_at"]
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
from_at = "TIMESTAMP WITH TIME ZONE  from then on the mempool was in step, our clock"
to_at = "TIMESTAMP WITH TIME ZONE  until then, our clock; null for the node's newest"
*/
select
    node,
    session,
    from_at,
    case when lead(from_at) over (partition by node order by from_at, session) is not null then to_at end as to_at
from coverage_intervals
where topic = 'mempool'
order by node, session, from_at
