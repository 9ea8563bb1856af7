/*
summary = "Share of the active chain's blocks per pool, over the whole dataset, with a 95 % interval."
method = """
Share = blocks of the pool / all blocks of the active chain, including unknown ones, but not those with neither a
coinbase nor a label, from which to find the pool. The interval is Wilson's score interval for a binomial proportion (E.
B. Wilson, 1927), for each pool alone. Unknown blocks are one row of their own, flagged and never ranked. They belong to
an unknown number of miners, so any pool's true share may be larger by as much as the unknown share
(share_if_theirs_ratio).
"""
grain = ["pool"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not a pool"
rank = "BIGINT  1 is the largest, equals share a rank; null for unknown"
block_count = "BIGINT  blocks on the active chain"
total_block_count = "BIGINT  blocks on the active chain, all pools and unknown"
share_ratio = "DOUBLE  0..1"
share_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
share_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
share_if_theirs_ratio = "DOUBLE  0..1, share if all unknown blocks were its own; null for unknown"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

counts as (
    select
        block_pool.pool,
        block_pool.pool_name,
        block_pool.is_unknown,
        sources_of(list(block_pool.told_by)) as told_by,
        count(*) as block_count,
        cast(sum(count(*)) over () as bigint) as total_block_count
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable
    group by block_pool.pool, block_pool.pool_name, block_pool.is_unknown
),

shares as (
    select
        *,
        coalesce(sum(block_count) filter (where is_unknown) over (), 0) as unknown_block_count,
        wilson_interval(block_count, total_block_count) as share_interval
    from counts
)

select
    pool,
    pool_name,
    is_unknown,
    case when not is_unknown then rank() over (partition by is_unknown order by block_count desc) end as rank,
    block_count,
    total_block_count,
    block_count / total_block_count as share_ratio,
    share_interval.low as share_low_ratio,
    share_interval.high as share_high_ratio,
    case when not is_unknown then (block_count + unknown_block_count) / total_block_count end as share_if_theirs_ratio,
    told_by
from shares
order by is_unknown, block_count desc, pool
