/*
summary = "Moments before each block at which its template may have been made: the block's cut minus an age."
method = """
For every measured cut (mempool_cuts) and every age of `ages_s`, the point in the node's stream that long before the
block came. A template for a block cannot be older than the block before it: where the node's previous cut is closer,
the moment is just after that cut, and is_clamped is true. The previous cut is that of the parent, except after a
reorganisation: there the node had connected a block that became stale. Age 0 is the cut itself. Moments are numbered
per node in the order of the stream, anew every six hours, so another day changes no number; ages that were clamped to
one point share a number. A moment before the mempool came into step has no row.
"""
grain = ["node", "cut_no", "age_s"]
[parameters]
ages_s = {value = "0 0.5 2 5 15 30 60 120", doc = "s before the block's arrival"}
[columns]
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  number of the block's cut in mempool_cuts"
age_s = "DOUBLE  s before the block, as one of the parameter ages_s"
block_hash = "BLOB  header hash, internal byte order"
moment_no = "BIGINT  six hours since 1970 times 1,000,000,000, plus 1, 2, ... per node in the order of the stream"
position = "DECIMAL(38,0)  place in the node's stream (macro stream_position)"
real_age_s = "DOUBLE  s before the block, but not before the node's previous cut"
is_clamped = "BOOLEAN  real_age_s is below age_s because the node's previous cut was later than that"
*/
with

ages as (
    select unnest(cast(string_split(getvariable('ages_s'), ' ') as double[])) as age_s
),

cuts as (
    select
        *,
        lag(position) over in_order as previous_position,
        lag(connected_at) over in_order as previous_at
    from mempool_cuts
    window in_order as (partition by node order by cut_no)
),

asked as (
    select
        cuts.node,
        cuts.cut_no,
        cuts.session,
        cuts.block_hash,
        cuts.connected_at,
        cuts.position as cut_position,
        cuts.previous_position,
        ages.age_s,
        coalesce(seconds_between(cuts.previous_at, cuts.connected_at) < ages.age_s, false) as is_clamped,
        case
            when seconds_between(cuts.previous_at, cuts.connected_at) < ages.age_s then cuts.previous_at
            else cuts.connected_at - to_microseconds(cast(ages.age_s * 1e6 as bigint))
        end as moment_at
    from cuts
    cross join ages
    where cuts.is_measured
),

placed as (
    select
        asked.*,
        case
            when asked.age_s = 0 then asked.cut_position
            else greatest(stream_position(asked.moment_at, 0), coalesce(asked.previous_position + 1, 0))
        end as position
    from asked
    where exists (
        select 1
        from coverage_intervals
        where
            coverage_intervals.topic = 'mempool'
            and coverage_intervals.node = asked.node
            and coverage_intervals.session = asked.session
            and asked.moment_at >= coverage_intervals.from_at
            and asked.connected_at between coverage_intervals.from_at and coverage_intervals.to_at
    )
)

select
    node,
    cut_no,
    age_s,
    block_hash,
    window_key(moment_at, 21600)
    + dense_rank() over (partition by node, window_key(moment_at, 21600) order by position) as moment_no,
    position,
    seconds_between(moment_at, connected_at) as real_age_s,
    is_clamped
from placed
order by node, cut_no, age_s
