/*
summary = "Share of the active chain's blocks per pool and UTC day, week or month, and which periods the dataset has in full."
method = """
pool_share for each period. The time is that of the header, as in pool_share_day; blocks without one count nowhere here.
Weeks begin on Monday. A period is complete unless the dataset lacks the parent or the child of one of its blocks: then
the data begins or ends in it, or has a hole in it, and its shares rest on a part of it.
"""
grain = ["period_kind", "from_day", "pool"]
[columns]
period_kind = "VARCHAR  day, week or month"
from_day = "DATE  first UTC day of the period"
is_complete = "BOOLEAN  false: the dataset lacks blocks of the period"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not a pool"
block_count = "BIGINT  blocks on the active chain"
total_block_count = "BIGINT  blocks of the period on the active chain, all pools and unknown"
share_ratio = "DOUBLE  0..1"
share_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
share_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

blocks as (
    select
        block_pool.pool,
        block_pool.is_unknown,
        block_pool.told_by,
        cast(chain_blocks.header_time as date) as day,
        chain_blocks.height > 0
        and coalesce(lag(chain_blocks.height) over by_height != chain_blocks.height - 1, true) as is_cut_below,
        coalesce(lead(chain_blocks.height) over by_height != chain_blocks.height + 1, true) as is_cut_above
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable
    window by_height as (order by chain_blocks.height)
),

kinds as (
    select unnest(['day', 'week', 'month']) as period_kind
),

placed as (
    select
        kinds.period_kind,
        cast(date_trunc(kinds.period_kind, blocks.day) as date) as from_day,
        blocks.*
    from blocks
    cross join kinds
    where blocks.day is not null
),

periods as (
    select
        period_kind,
        from_day,
        not bool_or(is_cut_below or is_cut_above) as is_complete,
        count(*) as total_block_count
    from placed
    group by period_kind, from_day
),

counts as (
    select
        period_kind,
        from_day,
        pool,
        is_unknown,
        count(*) as block_count,
        sources_of(list(told_by)) as told_by
    from placed
    group by period_kind, from_day, pool, is_unknown
),

shares as (
    select
        counts.*,
        periods.is_complete,
        periods.total_block_count,
        wilson_interval(counts.block_count, periods.total_block_count) as share_interval
    from counts
    inner join periods
        on counts.period_kind = periods.period_kind and counts.from_day = periods.from_day
)

select
    period_kind,
    from_day,
    is_complete,
    pool,
    is_unknown,
    block_count,
    total_block_count,
    block_count / total_block_count as share_ratio,
    share_interval.low as share_low_ratio,
    share_interval.high as share_high_ratio,
    told_by
from shares
order by period_kind, from_day, is_unknown, block_count desc, pool
