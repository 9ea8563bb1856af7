/*
summary = "How two clocks that saw the same blocks differ: our own, or imported lists of arrivals."
method = """
Every two clocks that have at least one block in common, by hash, without blocks that either fetched after a pause
(arrival_stamps). lag_s is the stamp of the second clock minus that of the first. It holds the difference of two clocks
and of two ways through the network, which nothing here can tell apart: a median far from 0 means a clock that is off or
a node that hears late. If either list has whole seconds (is_whole_seconds), a lag is off by up to one second, and the
counts of first and of equal stamps say no more than that. The median has the interval of order statistics
(median_interval), which assumes independent blocks.
"""
grain = ["clock", "other_clock"]
[columns]
clock = "VARCHAR  own, or the name of an imported source"
other_clock = "VARCHAR  the second of the two, later by name"
shared_count = "BIGINT  blocks that both have"
first_height = "INTEGER  lowest height among them"
last_height = "INTEGER  highest height among them"
is_whole_seconds = "BOOLEAN  at least one of the clocks has no stamp finer than a second"
first_count = "BIGINT  blocks with the earlier stamp at the first clock"
equal_count = "BIGINT  blocks with equal stamps"
other_first_count = "BIGINT  blocks with the earlier stamp at the second clock"
lag_median_s = "DOUBLE  s, median of the second clock minus the first"
lag_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 blocks"
lag_median_high_s = "DOUBLE  s, upper bound of that interval"
lag_p5_s = "DOUBLE  s, 5 % quantile of the lag"
lag_p95_s = "DOUBLE  s, 95 % quantile of the lag"
spread_median_s = "DOUBLE  s between the two stamps whichever is first, median"
spread_p90_s = "DOUBLE  s between the two stamps, 90 % quantile"
spread_p99_s = "DOUBLE  s between the two stamps, 99 % quantile"
*/
with

clocks as (
    select
        clock,
        bool_and(epoch_us(arrived_at) % 1000000 = 0) as is_whole_seconds
    from arrival_stamps
    group by clock
),

lags as (
    select
        earlier.clock,
        later.clock as other_clock,
        earlier.height,
        seconds_between(earlier.arrived_at, later.arrived_at) as lag_s
    from arrival_stamps as earlier
    inner join arrival_stamps as later
        on earlier.block_hash = later.block_hash and earlier.clock < later.clock
    where not earlier.is_catch_up and not later.is_catch_up
),

counts as (
    select
        clock,
        other_clock,
        count(*) as shared_count,
        min(height) as first_height,
        max(height) as last_height,
        count(*) filter (where lag_s > 0) as first_count,
        count(*) filter (where lag_s = 0) as equal_count,
        count(*) filter (where lag_s < 0) as other_first_count,
        quantile_cont(lag_s, [0.05, 0.5, 0.95]) as lags_s,
        median_interval(list(lag_s order by lag_s)) as median_bounds,
        quantile_cont(abs(lag_s), [0.5, 0.9, 0.99]) as spreads_s
    from lags
    group by clock, other_clock
)

select
    counts.clock,
    counts.other_clock,
    counts.shared_count,
    counts.first_height,
    counts.last_height,
    first_clock.is_whole_seconds or second_clock.is_whole_seconds as is_whole_seconds,
    counts.first_count,
    counts.equal_count,
    counts.other_first_count,
    counts.lags_s[2] as lag_median_s,
    counts.median_bounds.low as lag_median_low_s,
    counts.median_bounds.high as lag_median_high_s,
    counts.lags_s[1] as lag_p5_s,
    counts.lags_s[3] as lag_p95_s,
    counts.spreads_s[1] as spread_median_s,
    counts.spreads_s[2] as spread_p90_s,
    counts.spreads_s[3] as spread_p99_s
from counts
inner join clocks as first_clock
    on counts.clock = first_clock.clock
inner join clocks as second_clock
    on counts.other_clock = second_clock.clock
order by counts.clock, counts.other_clock
