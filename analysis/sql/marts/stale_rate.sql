/*
summary = "How many of each pool's blocks were lost to a rival."
method = """
Only blocks that a node pushed to us count. A stale block that nobody announced is not known, and blocks that were
fetched or read from disk are nearly all of the active chain and would lower the rate. Even so the rate is a lower
bound, because a node announces a rival of its tip only when the rival becomes its tip. Heights at which a race is still
open (stale_branches) are left out. The interval is Wilson's, as in pool_share.
"""
grain = ["pool"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks pushed to us, stale ones included"
n_stale = "BIGINT  those of them that are not on the active chain"
stale_ratio = "DOUBLE  0..1, n_stale / n_blocks"
stale_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
stale_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
*/
with

open_race as (
    select coalesce(min(from_height), 2147483647) as from_height
    from stale_branches
    where is_open
),

blocks_of as (
    select
        block_intervals.is_active,
        unnest(
            [
                struct_pack(label := block_intervals.pool, label_name := block_intervals.pool_name),
                struct_pack(label := 'all', label_name := 'all blocks')
            ]
        ) as whose
    from block_intervals
    cross join open_race
    where block_intervals.arrived_at is not null and block_intervals.height < open_race.from_height
),

counts as (
    select
        whose.label,
        whose.label_name,
        count(*) as n_blocks,
        count(*) filter (where not is_active) as n_stale
    from blocks_of
    group by whose.label, whose.label_name
),

judged as (
    select
        *,
        wilson_interval(n_stale, n_blocks) as stale_interval
    from counts
)

select
    label as pool,
    label_name as pool_name,
    n_blocks,
    n_stale,
    n_stale / n_blocks as stale_ratio,
    stale_interval.low as stale_low_ratio,
    stale_interval.high as stale_high_ratio
from judged
order by label != 'all', n_blocks desc, label
