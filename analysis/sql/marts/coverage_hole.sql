/*
summary = "Times between two observed intervals of a node and topic, and why each began."
method = """
A hole begins where an observed interval ends and lasts until the next interval of the same node and topic begins. The
time before the first and after the last interval is outside the window and is not a hole.
"""
grain = ["node", "topic", "from_at"]
[columns]
node = "VARCHAR  name of the watched node"
topic = "VARCHAR  a ZMQ topic, or `mempool`"
from_at = "TIMESTAMP WITH TIME ZONE  start, on our clock"
to_at = "TIMESTAMP WITH TIME ZONE  end, on our clock"
hole_s = "DOUBLE  s, length of the hole"
end_reason = "VARCHAR  why the interval before the hole ended"
detail = "VARCHAR  details of that end, as text for people"
*/
with

neighbours as (
    select
        node,
        topic,
        to_at as from_at,
        lead(from_at) over (partition by node, topic order by from_at, to_at) as to_at,
        end_reason,
        detail
    from coverage_intervals
)

select
    node,
    topic,
    from_at,
    to_at,
    seconds_between(from_at, to_at) as hole_s,
    end_reason,
    detail
from neighbours
where to_at > from_at
order by node, topic, from_at
