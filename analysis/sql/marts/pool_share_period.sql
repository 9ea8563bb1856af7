/*
summary = "Share of the active chain's blocks per pool and UTC day, week or month, and which periods the dataset has in full."
method = """
pool_share for each period. The time is that of the header, as in pool_share_day. Some sources name the pool of a block
and not its time. In weeks and months such a block gets a time from its height, on the straight line between the nearest
blocks below and above whose time is known, if these are at most max_gap_blocks apart. Over one difficulty epoch such a
time is wrong by hours. Days count only blocks of known time, and other blocks count nowhere here. Weeks begin on Monday.
A period is complete unless the dataset lacks the parent or the child of one of its blocks, or has no time for it: then
the data begins or ends in it, or has a hole in it, and its shares rest on a part of it.
"""
grain = ["period_kind", "from_day", "pool"]
[parameters]
max_gap_blocks = {value = 2016, doc = "most heights between two known times on whose line a block gets its time"}
[columns]
period_kind = "VARCHAR  day, week or month"
from_day = "DATE  first UTC day of the period"
is_complete = "BOOLEAN  false: the dataset lacks blocks of the period, or their times"
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
        chain_blocks.height,
        epoch_us(chain_blocks.header_time) as time_us,
        max(case when chain_blocks.header_time is not null then chain_blocks.height end) over (
            order by chain_blocks.height
        ) as below_height,
        min(case when chain_blocks.header_time is not null then chain_blocks.height end) over (
            order by chain_blocks.height desc
        ) as above_height
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable
),

timed as (
    select
        blocks.*,
        case
            when blocks.time_us is not null then blocks.time_us
            when blocks.above_height - blocks.below_height <= getvariable('max_gap_blocks')
                then (
                    below.time_us * (blocks.above_height - blocks.height)
                    + above.time_us * (blocks.height - blocks.below_height)
                )
                // (blocks.above_height - blocks.below_height)
        end as placed_us
    from blocks
    left join blocks as below
        on blocks.below_height = below.height
    left join blocks as above
        on blocks.above_height = above.height
),

kinds as (
    select unnest(['day', 'week', 'month']) as period_kind
),

-- The blocks that count in one kind of period, with a mark where the next block above or below does not.
counted as (
    select
        kinds.period_kind,
        date '1970-01-01' + cast(timed.placed_us // 86400000000 as integer) as day,
        timed.height > 0
        and coalesce(lag(timed.height) over by_height != timed.height - 1, true) as is_cut_below,
        coalesce(lead(timed.height) over by_height != timed.height + 1, true) as is_cut_above,
        timed.*
    from timed
    cross join kinds
    where coalesce(timed.time_us, case when kinds.period_kind != 'day' then timed.placed_us end) is not null
    window by_height as (partition by kinds.period_kind order by timed.height)
),

placed as (
    select
        cast(date_trunc(counted.period_kind, counted.day) as date) as from_day,
        counted.*
    from counted
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
