/*
summary = "How each pool sets the time in its headers: age of its templates, course over days, use of the earliest time."
method = """
Blocks of the active chain with an arrival by our own clock (arrival_stamps), without those fetched after a pause.
lag_s is the time in the header minus the arrival. A miner writes the time when it begins a template, and may roll it
forward as a nonce, so minus the median of lag_s is the age of the template plus the way to us, if the pool's clock is
right; a wrong clock looks the same. drift_s_per_day is the slope of lag_s over arrival (least squares), null below
min_clock_blocks blocks. It shows a clock that runs away, or a change of habit, where its interval leaves out 0: the
ages of templates alone make the slope of ten blocks in a day uncertain by 20 s per day and more. The interval is
Student's t, wider where neighbouring blocks are alike (analysis/stats/growth.py). n_earliest counts headers with the
earliest time that consensus allows: the median time of the eleven blocks before (median time past), plus one second.
One by accident is rare, and many say that the pool's software takes its time from the chain. n_behind counts headers
that name a time before that of their parent, which is allowed.
"""
grain = ["pool"]
[parameters]
min_clock_blocks = {value = 10, doc = "blocks; fewer give no drift, and fewer than 10 never do"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks with an arrival by our clock"
lag_median_s = "DOUBLE  s, median of header time minus arrival"
lag_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 blocks"
lag_median_high_s = "DOUBLE  s, upper bound of that interval"
drift_s_per_day = "DOUBLE  slope of header time minus arrival, in s per day"
drift_low_s_per_day = "DOUBLE  lower bound of its 95 % interval, in s per day"
drift_high_s_per_day = "DOUBLE  upper bound of that interval, in s per day"
n_chained = "BIGINT  blocks of the pool whose eleven predecessors are known"
n_earliest = "BIGINT  those of them with the earliest time that consensus allows"
earliest_ratio = "DOUBLE  0..1, n_earliest / n_chained"
n_behind = "BIGINT  those of them with a time before that of their parent"
told_by = "VARCHAR[]  sources of the header times, each once: observed, backfilled, or names of imported sources"
*/
with

dated as (
    select
        block_hash,
        height,
        header_time,
        epoch(header_time) as header_s
    from chain_blocks
    where is_active and header_time is not null
),

-- The block that is 1, 2, ..., 11 lower; by equality, so that no engine compares all blocks with all.
distances as (
    select unnest(range(1, 12)) as distance
),

numbered as (
    select
        dated.block_hash,
        dated.height - distances.distance as earlier_height,
        distances.distance
    from dated
    cross join distances
),

past as (
    select
        numbered.block_hash,
        count(*) as n_before,
        median(earlier.header_s) as median_time_past_s,
        max(case when numbered.distance = 1 then earlier.header_s end) as parent_s
    from numbered
    inner join dated as earlier
        on numbered.earlier_height = earlier.height
    group by numbered.block_hash
),

clocks as (
    select
        block_pool.pool,
        block_pool.pool_name,
        block_facts.header_told_by,
        coalesce(past.n_before = 11, false) as is_chained,
        dated.header_s = past.median_time_past_s + 1 as is_earliest,
        dated.header_s < past.parent_s as is_behind,
        epoch_us(arrival_stamps.arrived_at) / 8.64e10 as arrived_day,
        seconds_between(arrival_stamps.arrived_at, dated.header_time) as lag_s
    from dated
    inner join block_pool
        on dated.block_hash = block_pool.block_hash
    inner join block_facts
        on dated.block_hash = block_facts.block_hash
    left join past
        on dated.block_hash = past.block_hash
    left join arrival_stamps
        on
            dated.block_hash = arrival_stamps.block_hash
            and arrival_stamps.clock = 'own'
            and not arrival_stamps.is_catch_up
),

pools as (
    select
        pool,
        pool_name,
        sources_of(list(header_told_by)) as told_by,
        count(lag_s) as n_blocks,
        median(lag_s) as lag_median_s,
        median_interval(list(lag_s order by lag_s) filter (where lag_s is not null)) as lag_bounds,
        case
            when count(lag_s) >= getvariable('min_clock_blocks')
                then line_fit(
                    list(arrived_day order by arrived_day, lag_s) filter (where lag_s is not null),
                    list(lag_s order by arrived_day, lag_s) filter (where lag_s is not null)
                )
        end as drift,
        count(*) filter (where is_chained) as n_chained,
        count(*) filter (where is_chained and is_earliest) as n_earliest,
        count(*) filter (where is_chained and is_behind) as n_behind
    from clocks
    group by pool, pool_name
)

select
    pool,
    pool_name,
    n_blocks,
    lag_median_s,
    lag_bounds.low as lag_median_low_s,
    lag_bounds.high as lag_median_high_s,
    drift.lambda_per_day as drift_s_per_day,
    drift.lambda_low_per_day as drift_low_s_per_day,
    drift.lambda_high_per_day as drift_high_s_per_day,
    n_chained,
    n_earliest,
    n_earliest / nullif(n_chained, 0) as earliest_ratio,
    n_behind,
    told_by
from pools
order by n_blocks desc, pool
