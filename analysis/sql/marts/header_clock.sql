/*
summary = "How far the header times of each pool are from the arrival of its blocks, by each clock."
method = """
Stamps of arrival_stamps, of stale blocks, too, without blocks that were fetched after a pause. header_lag_s is the time
in a block's header minus its arrival, by our own clock or by an imported list. Miners set the header time when they
begin a template, and may set it forward or back: consensus allows it between the median of the eleven blocks before and
two hours ahead of a node's clock. So the lag is mostly negative; its size is the age of the template, the way to the
observer and the clocks of both, which nothing here can tell apart. Header times are whole seconds, and so are the
stamps of most lists: a lag is off by up to two seconds. Blocks whose pool no rule names count as 'unknown'; 'all' has
every block. The median has the interval of order statistics (median_interval).
"""
grain = ["clock", "pool"]
[columns]
clock = "VARCHAR  own, or the name of an imported source"
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
block_count = "BIGINT  blocks with a header time and an arrival by this clock"
header_lag_median_s = "DOUBLE  s, median of header time minus arrival"
header_lag_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 blocks"
header_lag_median_high_s = "DOUBLE  s, upper bound of that interval"
header_lag_p5_s = "DOUBLE  s, 5 % quantile"
header_lag_p95_s = "DOUBLE  s, 95 % quantile"
ahead_count = "BIGINT  blocks whose header time is after their arrival"
ahead_ratio = "DOUBLE  0..1, ahead_count / block_count"
ahead_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
ahead_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of the header times, each once: observed, backfilled, or names of imported sources"
*/
with

lags as (
    select
        arrival_stamps.clock,
        block_pool.pool,
        block_pool.pool_name,
        block_facts.header_told_by,
        seconds_between(arrival_stamps.arrived_at, chain_blocks.header_time) as header_lag_s
    from arrival_stamps
    inner join chain_blocks
        on arrival_stamps.block_hash = chain_blocks.block_hash
    inner join block_facts
        on arrival_stamps.block_hash = block_facts.block_hash
    inner join block_pool
        on arrival_stamps.block_hash = block_pool.block_hash
    where chain_blocks.header_time is not null and not arrival_stamps.is_catch_up
),

lags_of as (
    select
        clock,
        pool,
        pool_name,
        header_told_by,
        header_lag_s
    from lags
    union all
    select
        clock,
        'all' as pool,
        'all blocks' as pool_name,
        header_told_by,
        header_lag_s
    from lags
),

counts as (
    select
        clock,
        pool,
        pool_name,
        count(*) as block_count,
        quantile_cont(header_lag_s, [0.05, 0.5, 0.95]) as lags_s,
        median_interval(list(header_lag_s order by header_lag_s)) as median_bounds,
        count(*) filter (where header_lag_s > 0) as ahead_count,
        sources_of(list(header_told_by)) as told_by
    from lags_of
    group by clock, pool, pool_name
),

judged as (
    select
        *,
        wilson_interval(ahead_count, block_count) as ahead_bounds
    from counts
)

select
    clock,
    pool,
    pool_name,
    block_count,
    lags_s[2] as header_lag_median_s,
    median_bounds.low as header_lag_median_low_s,
    median_bounds.high as header_lag_median_high_s,
    lags_s[1] as header_lag_p5_s,
    lags_s[3] as header_lag_p95_s,
    ahead_count,
    ahead_count / block_count as ahead_ratio,
    ahead_bounds.low as ahead_low_ratio,
    ahead_bounds.high as ahead_high_ratio,
    told_by
from judged
order by clock, pool != 'all', block_count desc, pool
