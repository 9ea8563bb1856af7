/*
summary = "Share of the blocks per pool in the last day, week, 30 days, year and in all, and its change against the window before."
method = """
A window ends with the newest header time of the active chain. 'day', 'week', 'month' and 'year' are its last 24 hours
and 7, 30 and 365 times 24 hours; 'all' is the whole dataset, with blocks whose time is not known. A time is covered
between two blocks of neighbouring heights that the dataset has; a window is given if min_covered_ratio of it is
covered. Header times may fall: what a block reaches is the greatest time up to its height. The interval of a share is
Wilson's. gained_share is the share minus that in the window of equal length just before, which must be covered as well;
its interval is Newcombe's hybrid score interval (R. G. Newcombe, 1998, method 10). Every interval is for one pool
alone: of twenty pools without a change, one is expected to show one. p_value is that of Fisher's exact test of the
pool against all other blocks, right for few blocks, too; adjusted_p_value is corrected over the pools of the window
(Holm, as in share_change). Unknown is no pool and is not tested. A pool with blocks only in the window before has a row
with 0 blocks, so that a pool that fell silent is seen.
"""
grain = ["time_window", "pool"]
[parameters]
min_covered_ratio = {value = 0.9, doc = "least covered part of a window's time, 0..1"}
[columns]
time_window = "VARCHAR  day, week, month, year or all"
window_days = "INTEGER  24-hour days that the window lasts; null for all"
from_time = "TIMESTAMP WITH TIME ZONE  first header time in the window"
to_time = "TIMESTAMP WITH TIME ZONE  last header time in the window"
covered_ratio = "DOUBLE  0..1, part of the window's time for which the dataset has the blocks; of all: from the time of the lowest block with a time to the newest one"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not a pool"
rank = "BIGINT  1 is the largest of the window, equals share a rank; null for unknown"
block_count = "BIGINT  blocks of the pool in the window, on the active chain"
total_block_count = "BIGINT  blocks in the window on the active chain, all pools and unknown"
share_ratio = "DOUBLE  0..1"
share_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
share_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
previous_block_count = "BIGINT  blocks of the pool in the window before; null where the dataset does not hold that window"
previous_total_block_count = "BIGINT  blocks in the window before, all pools and unknown"
gained_share = "DOUBLE  -1..1, share minus share in the window before"
gained_low_share = "DOUBLE  -1..1, lower bound of the 95 % interval"
gained_high_share = "DOUBLE  -1..1, upper bound of the 95 % interval"
p_value = "DOUBLE  0..1, small: the share has changed; null for unknown, without the window before, and for a pool that has every block of both"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of pools in the window"
told_by = "VARCHAR[]  sources of the blocks in the window, each once: observed, backfilled, or names of imported sources"
*/
with

kinds as (
    select
        unnest(['day', 'week', 'month', 'year']) as time_window,
        unnest([1, 7, 30, 365]) as window_days
),

parts as (
    select unnest([0, 1]) as part  -- 0 is the window, 1 the window before it
),

timed as (
    select
        block_pool.pool,
        block_pool.pool_name,
        block_pool.is_unknown,
        block_pool.told_by,
        chain_blocks.height,
        chain_blocks.header_time,
        max(chain_blocks.header_time) over () as newest_time,
        max(chain_blocks.header_time) over by_height as reached_time
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable
    window by_height as (order by chain_blocks.height)
),

blocks as (
    select
        * exclude (newest_time, reached_time),
        seconds_between(header_time, newest_time) / 86400.0 as age_days,
        seconds_between(reached_time, newest_time) / 86400.0 as reached_age_days,
        -- What the block reached beyond the height below; null where the dataset lacks either block or its time.
        case
            when
                lag(height) over in_order = height - 1
                and header_time is not null and lag(header_time) over in_order is not null
                then seconds_between(lag(reached_time) over in_order, reached_time) / 86400.0
        end as interval_days
    from timed
    window in_order as (order by height)
),

spans as (
    select
        kinds.time_window,
        kinds.window_days,
        parts.part,
        parts.part * kinds.window_days as from_days,
        (parts.part + 1) * kinds.window_days as to_days
    from kinds
    cross join parts
),

-- The blocks of each window and of the window before it.
timed_parts as (
    select
        spans.time_window,
        spans.part,
        blocks.*
    from spans
    inner join blocks
        on spans.from_days <= blocks.age_days and spans.to_days > blocks.age_days
),

-- What the time between two blocks covers of each of them. If it crosses a bound, each side has its part.
covered as (
    select
        spans.time_window,
        spans.part,
        ordered_sum(
            least(blocks.reached_age_days + blocks.interval_days, spans.to_days)
            - greatest(blocks.reached_age_days, spans.from_days)
        ) as covered_days
    from spans
    inner join blocks
        on
            spans.from_days < blocks.reached_age_days + blocks.interval_days
            and spans.to_days > blocks.reached_age_days
    where blocks.interval_days > 0
    group by spans.time_window, spans.part
),

part_counts as (
    select
        time_window,
        part,
        count(*) as n_blocks,
        min(header_time) as from_time,
        max(header_time) as to_time
    from timed_parts
    group by time_window, part
),

measured as (
    select
        spans.time_window,
        spans.window_days,
        spans.part,
        part_counts.n_blocks,
        least(coalesce(covered.covered_days, 0) / spans.window_days, 1) as covered_ratio,
        part_counts.from_time,
        part_counts.to_time
    from spans
    inner join part_counts
        on spans.time_window = part_counts.time_window and spans.part = part_counts.part
    left join covered
        on spans.time_window = covered.time_window and spans.part = covered.part
    union all
    select
        'all' as time_window,
        cast(null as integer) as window_days,
        0 as part,
        count(*) as n_blocks,
        least(coalesce(ordered_sum(interval_days), 0) / nullif(max(reached_age_days), 0), 1) as covered_ratio,
        min(header_time) as from_time,
        max(header_time) as to_time
    from blocks
    having count(*) > 0
),

held as (
    select * from measured
    where time_window = 'all' or covered_ratio >= getvariable('min_covered_ratio')
),

windows as (
    select
        held.time_window,
        held.window_days,
        held.from_time,
        held.to_time,
        held.covered_ratio,
        held.n_blocks as total_block_count,
        previous.n_blocks as previous_total_block_count
    from held
    left join held as previous
        on held.time_window = previous.time_window and previous.part = 1
    where held.part = 0
),

counted_blocks as (
    select
        time_window,
        part,
        pool,
        pool_name,
        is_unknown,
        told_by
    from timed_parts
    union all
    select
        'all' as time_window,
        0 as part,
        pool,
        pool_name,
        is_unknown,
        told_by
    from blocks
),

counts as (
    select
        time_window,
        pool,
        pool_name,
        is_unknown,
        count(*) filter (where part = 0) as block_count,
        count(*) filter (where part = 1) as previous_block_count,
        coalesce(sources_of(list(told_by) filter (where part = 0)), []) as told_by
    from counted_blocks
    group by time_window, pool, pool_name, is_unknown
),

shares as (
    select
        windows.*,
        counts.pool,
        counts.pool_name,
        counts.is_unknown,
        counts.block_count,
        counts.told_by,
        case when windows.previous_total_block_count is not null then counts.previous_block_count end as previous_count,
        counts.block_count / windows.total_block_count as share_ratio,
        counts.previous_block_count / windows.previous_total_block_count as previous_ratio,
        wilson_interval(counts.block_count, windows.total_block_count) as share_interval,
        wilson_interval(counts.previous_block_count, windows.previous_total_block_count) as previous_interval
    from windows
    inner join counts
        on windows.time_window = counts.time_window
    where counts.block_count > 0 or windows.previous_total_block_count is not null
),

tested as (
    select
        *,
        row_number() over (partition by time_window order by pool) as number,
        case
            when not is_unknown
                then fisher_p_value(
                    block_count,
                    total_block_count - block_count,
                    previous_count,
                    previous_total_block_count - previous_count
                )
        end as p_value
    from shares
),

adjusted as (
    select
        time_window,
        adjusted_p_values(list(p_value order by number)) as p_values
    from tested
    group by time_window
),

changes as (
    select
        time_window,
        window_days,
        from_time,
        to_time,
        covered_ratio,
        pool,
        pool_name,
        is_unknown,
        case
            when not is_unknown then rank() over (partition by time_window, is_unknown order by block_count desc)
        end as rank,
        block_count,
        total_block_count,
        share_ratio,
        share_interval.low as share_low_ratio,
        share_interval.high as share_high_ratio,
        previous_count as previous_block_count,
        previous_total_block_count,
        share_ratio - previous_ratio as gained_share,
        share_ratio - previous_ratio - sqrt(
            pow(share_ratio - share_interval.low, 2) + pow(previous_interval.high - previous_ratio, 2)
        ) as gained_low_share,
        share_ratio - previous_ratio + sqrt(
            pow(share_interval.high - share_ratio, 2) + pow(previous_ratio - previous_interval.low, 2)
        ) as gained_high_share,
        p_value,
        number,
        told_by
    from tested
)

select
    changes.time_window,
    changes.window_days,
    changes.from_time,
    changes.to_time,
    changes.covered_ratio,
    changes.pool,
    changes.pool_name,
    changes.is_unknown,
    changes.rank,
    changes.block_count,
    changes.total_block_count,
    changes.share_ratio,
    changes.share_low_ratio,
    changes.share_high_ratio,
    changes.previous_block_count,
    changes.previous_total_block_count,
    changes.gained_share,
    changes.gained_low_share,
    changes.gained_high_share,
    changes.p_value,
    adjusted.p_values[changes.number] as adjusted_p_value,
    changes.told_by
from changes
inner join adjusted
    on changes.time_window = adjusted.time_window
order by changes.window_days nulls last, changes.is_unknown, changes.block_count desc, changes.pool
