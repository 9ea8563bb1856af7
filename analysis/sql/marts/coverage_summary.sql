/*
summary = "How much of its window each node and topic was really observed."
method = """
The window runs from the first to the last moment observed. observed_s is the sum of the uninterrupted intervals. A hole
is a time between two of them that was not observed, whatever the reason.
"""
grain = ["node", "topic"]
[columns]
node = "VARCHAR  name of the watched node"
topic = "VARCHAR  a ZMQ topic; or `mempool`, for times at which our copy of the mempool equalled the node's"
from_at = "TIMESTAMP WITH TIME ZONE  our clock, first moment observed"
to_at = "TIMESTAMP WITH TIME ZONE  our clock, last moment observed"
observed_s = "DOUBLE  s that were really observed"
window_s = "DOUBLE  s from the first to the last moment observed"
observed_ratio = "DOUBLE  0..1, observed_s / window_s; null for a window of no length"
n_gaps = "BIGINT  holes inside the window"
n_messages = "BIGINT  messages received"
*/
with

holes as (
    select
        node,
        topic,
        count(*) as n_gaps,
        ordered_sum(hole_s) as hole_s
    from coverage_hole
    group by node, topic
),

windows as (
    select
        node,
        topic,
        min(from_at) as from_at,
        max(to_at) as to_at,
        seconds_between(min(from_at), max(to_at)) as window_s,
        cast(sum(n_messages) as bigint) as n_messages
    from coverage_intervals
    group by node, topic
)

select
    windows.node,
    windows.topic,
    windows.from_at,
    windows.to_at,
    windows.window_s - coalesce(holes.hole_s, 0) as observed_s,
    windows.window_s,
    (windows.window_s - coalesce(holes.hole_s, 0)) / nullif(windows.window_s, 0) as observed_ratio,
    coalesce(holes.n_gaps, 0) as n_gaps,
    windows.n_messages
from windows
left join holes
    on windows.node = holes.node and windows.topic = holes.topic
order by windows.node, windows.topic
