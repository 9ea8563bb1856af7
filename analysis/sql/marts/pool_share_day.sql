/*
summary = "Share of the active chain's blocks per pool and UTC day, with a 95 % interval."
method = """
pool_share for each day. The day is that of the header time, whether we saw the block arrive or read it from disk.
Consensus keeps the header time within two hours of the network's time, so a block near midnight may be counted on the
neighbouring day. A block whose time no source gives, as in a list of labels without times, counts on no day. A pool
without a block on a day has no row for it, and a day without blocks has no row at all.
"""
grain = ["day", "pool"]
[columns]
day = "DATE  UTC day of the header time"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not a pool"
rank = "BIGINT  1 is the largest of the day, equals share a rank; null for unknown"
block_count = "BIGINT  blocks on the active chain"
total_block_count = "BIGINT  blocks of the day on the active chain, all pools and unknown"
share_ratio = "DOUBLE  0..1"
share_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
share_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
share_if_theirs_ratio = "DOUBLE  0..1, share if all unknown blocks were its own; null for unknown"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

blocks_by_day as (
    select
        cast(chain_blocks.header_time as date) as day,
        block_pool.pool,
        block_pool.pool_name,
        block_pool.is_unknown,
        block_pool.told_by
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable and chain_blocks.header_time is not null
),

counts as (
    select
        day,
        pool,
        pool_name,
        is_unknown,
        sources_of(list(told_by)) as told_by,
        count(*) as block_count,
        cast(sum(count(*)) over (partition by day) as bigint) as total_block_count
    from blocks_by_day
    group by day, pool, pool_name, is_unknown
),

shares as (
    select
        *,
        coalesce(sum(block_count) filter (where is_unknown) over (partition by day), 0) as unknown_block_count,
        wilson_interval(block_count, total_block_count) as share_interval
    from counts
)

select
    day,
    pool,
    pool_name,
    is_unknown,
    case when not is_unknown then rank() over (partition by day, is_unknown order by block_count desc) end as rank,
    block_count,
    total_block_count,
    block_count / total_block_count as share_ratio,
    share_interval.low as share_low_ratio,
    share_interval.high as share_high_ratio,
    case when not is_unknown then (block_count + unknown_block_count) / total_block_count end as share_if_theirs_ratio,
    told_by
from shares
order by day, is_unknown, block_count desc, pool
