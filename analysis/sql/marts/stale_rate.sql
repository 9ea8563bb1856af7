/*
summary = "How many of each pool's blocks were lost to a rival."
method = """
Only blocks that a node pushed to us count. A stale block that nobody announced is not known, and blocks that were
fetched or read from disk are nearly all of the active chain and would lower the rate. Even so the rate is a lower
bound, because a node announces a rival of its tip only when the rival becomes its tip. Where the collector asked for
the tips that our nodes know (chain_tips), n_unconnected_tips counts those that no node connected, at the heights of the
counted blocks, and tips_ratio adds them. A node keeps all that it knows, so one answer covers what came before it:
is_lower_bound is false once an answer came after the last counted block. Nothing covers what no node of ours was told.
Their pools are unknown, because most are known by their header alone, so a pool's own rate stays a lower bound. Heights
at which a race is still open (stale_branches) are left out. The interval is Wilson's, as in pool_share.
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
n_unconnected_tips = "BIGINT  tips of branches that our nodes knew and none connected; null for a pool, and without chain_tips"
tips_ratio = "DOUBLE  0..1, (n_stale + n_unconnected_tips) / (n_blocks + n_unconnected_tips); null where that is"
is_lower_bound = "BOOLEAN  blocks that our nodes knew and never connected are not counted; false for 'all' if nodes told their tips after the last counted block"
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
        block_intervals.arrived_at,
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
        count(*) filter (where not is_active) as n_stale,
        max(arrived_at) as last_arrived_at
    from blocks_of
    group by whose.label, whose.label_name
),

-- A node tells of tips of any time, also of those of a pause of the collector.
heights as (
    select distinct block_intervals.height
    from block_intervals
    cross join open_race
    where block_intervals.arrived_at is not null and block_intervals.height < open_race.from_height
),

-- What a node knows by its header for a moment is connected in the next; then it is in chain_blocks.
unconnected as (
    select stg_chain_tips.block_hash
    from stg_chain_tips
    inner join heights
        on stg_chain_tips.height = heights.height
    anti join chain_blocks
        on stg_chain_tips.block_hash = chain_blocks.block_hash
    group by stg_chain_tips.block_hash
    having bool_and(stg_chain_tips.status in ('headers-only', 'valid-headers'))
),

tips as (
    select
        (select count(*) from unconnected) as n_unconnected,
        (select count(*) > 0 from stg_chain_tips) as is_recorded,
        (select max(stg_chain_tips.taken_at) from stg_chain_tips) as asked_at
),

judged as (
    select
        *,
        wilson_interval(n_stale, n_blocks) as stale_interval
    from counts
)

select
    judged.label as pool,
    judged.label_name as pool_name,
    judged.n_blocks,
    judged.n_stale,
    judged.n_stale / judged.n_blocks as stale_ratio,
    judged.stale_interval.low as stale_low_ratio,
    judged.stale_interval.high as stale_high_ratio,
    if(judged.label = 'all' and tips.is_recorded, tips.n_unconnected, null) as n_unconnected_tips,
    if(
        judged.label = 'all' and tips.is_recorded,
        (judged.n_stale + tips.n_unconnected) / (judged.n_blocks + tips.n_unconnected),
        null
    ) as tips_ratio,
    judged.label != 'all' or not coalesce(tips.asked_at >= judged.last_arrived_at, false) as is_lower_bound
from judged
cross join tips
order by judged.label != 'all', judged.n_blocks desc, judged.label
