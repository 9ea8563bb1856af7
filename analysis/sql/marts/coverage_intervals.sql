/*
summary = "Uninterrupted intervals of observation, per node and topic."
method = """
A row of `coverage` that ends because a file was sealed continues in the next row of the same session; such rows are
joined here. Every other end is a real end of observation.
"""
grain = ["node", "topic", "session", "from_at"]
[columns]
node = "VARCHAR  name of the watched node"
topic = "VARCHAR  a ZMQ topic; or `mempool`, for times at which our copy of the mempool equalled the node's"
session = "VARCHAR  the session's key in stg_nodes"
from_at = "TIMESTAMP WITH TIME ZONE  start, on our clock"
to_at = "TIMESTAMP WITH TIME ZONE  end, on our clock"
n_messages = "BIGINT  messages received"
end_reason = "VARCHAR  why the interval ended"
detail = "VARCHAR  details of the end, as text for people"
*/
with

flagged as (
    select
        *,
        coalesce(lag(end_reason) over in_order, 'start') != 'sealed' as is_start
    from stg_coverage
    window in_order as (partition by node, topic, session order by from_at)
),

numbered as (
    select
        *,
        count(case when is_start then 1 end) over (partition by node, topic, session order by from_at) as interval_no
    from flagged
)

select
    node,
    topic,
    session,
    min(from_at) as from_at,
    max(to_at) as to_at,
    cast(sum(n_messages) as bigint) as n_messages,
    arg_max(end_reason, from_at) as end_reason,
    arg_max(detail, from_at) as detail
from numbered
group by node, topic, session, interval_no
order by node, topic, min(from_at)
