/*
summary = "What each clock saw of the chain, and the intervals that it gives: our own, and each list of arrivals."
method = """
Stamps of arrival_stamps. An interval is the time from the block one height below, by the same clock, where neither
height has two blocks (a list does not say which of them stayed) and neither block was fetched after a pause. Lists that
were taken from a node's log have whole seconds (is_whole_seconds): an interval is then off by up to one second, and
many are equal. The median has the interval of order statistics (median_interval), which assumes independent intervals.
"""
grain = ["clock"]
[columns]
clock = "VARCHAR  own, or the name of an imported source"
block_count = "BIGINT  blocks with a stamp"
first_height = "INTEGER  lowest height among them"
last_height = "INTEGER  highest height among them"
missing_height_count = "BIGINT  heights between the two without a block"
fork_height_count = "BIGINT  heights with more than one block"
catch_up_count = "BIGINT  blocks that were fetched after a pause"
is_whole_seconds = "BOOLEAN  no stamp is finer than a second"
interval_count = "BIGINT  intervals"
zero_interval_count = "BIGINT  intervals of 0 s or less"
interval_mean_s = "DOUBLE  s, mean; null without an interval"
interval_median_s = "DOUBLE  s, median; null without an interval"
interval_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 intervals"
interval_median_high_s = "DOUBLE  s, upper bound of that interval"
*/
with

counts as (
    select
        clock,
        count(*) as block_count,
        min(height) as first_height,
        max(height) as last_height,
        max(height) - min(height) + 1 - count(distinct height) as missing_height_count,
        count(distinct height) - count(*) filter (where is_only) as fork_height_count,
        count(*) filter (where is_catch_up) as catch_up_count,
        bool_and(epoch_us(arrived_at) % 1000000 = 0) as is_whole_seconds
    from arrival_stamps
    group by clock
),

intervals as (
    select
        block.clock,
        seconds_between(parent.arrived_at, block.arrived_at) as interval_s
    from arrival_stamps as block
    inner join arrival_stamps as parent
        on block.clock = parent.clock and block.height = parent.height + 1
    where
        block.is_only and parent.is_only
        and not block.is_catch_up and not parent.is_catch_up
),

interval_counts as (
    select
        clock,
        count(*) as interval_count,
        count(*) filter (where interval_s <= 0) as zero_interval_count,
        list_sum(list(interval_s order by interval_s)) / count(*) as interval_mean_s,
        median(interval_s) as interval_median_s,
        median_interval(list(interval_s order by interval_s)) as median_bounds
    from intervals
    group by clock
)

select
    counts.clock,
    counts.block_count,
    counts.first_height,
    counts.last_height,
    counts.missing_height_count,
    counts.fork_height_count,
    counts.catch_up_count,
    counts.is_whole_seconds,
    coalesce(interval_counts.interval_count, 0) as interval_count,
    coalesce(interval_counts.zero_interval_count, 0) as zero_interval_count,
    interval_counts.interval_mean_s,
    interval_counts.interval_median_s,
    interval_counts.median_bounds.low as interval_median_low_s,
    interval_counts.median_bounds.high as interval_median_high_s
from counts
left join interval_counts
    on counts.clock = interval_counts.clock
order by counts.clock
