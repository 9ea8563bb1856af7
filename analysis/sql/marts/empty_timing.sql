/*
summary = "Time from the parent to empty blocks and to other blocks, on two clocks."
method = """
Blocks of owner_intervals. Clock `arrival` is block_intervals.interval_s: from the parent's arrival to the block's, both
on our own clock or both on that of one list of arrivals (told_by names the lists). Clock `header` is header_interval_s
of all blocks, for those that were never seen arriving. Miners choose header times in whole seconds, often when they
build the job and not when they find the block. Its bias stands beside it: the median of header interval minus arrival
interval over blocks that have both. Negative header intervals are kept, since a rank test can use them, and are
counted. Blocks at which the mempool is known to have been empty are left out of both kinds and counted: nobody could
have filled them. The test, its correction for the number of owners of a grouping, and the intervals of medians are
those of empty_intervals.
"""
grain = ["grouped_by", "owner", "clock"]
[parameters]
min_timed = {value = 5, doc = "timed blocks of each kind; fewer give no test"}
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for every block"
clock = "VARCHAR  arrival, or header as a fallback"
owner_name = "VARCHAR  name of the owner"
n_blocks = "BIGINT  blocks on the active chain of which it is known whether they are empty"
n_mempool_empty = "BIGINT  those left out because nothing was waiting"
n_empty = "BIGINT  empty blocks with an interval"
n_nonempty = "BIGINT  other blocks with an interval"
n_negative = "BIGINT  intervals below zero, of either kind"
empty_q1_s = "DOUBLE  s, lower quartile of the empty blocks' intervals"
empty_median_s = "DOUBLE  s, median of the empty blocks' intervals"
empty_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 intervals"
empty_median_high_s = "DOUBLE  s, upper bound of that interval"
empty_q3_s = "DOUBLE  s, upper quartile of the empty blocks' intervals"
nonempty_q1_s = "DOUBLE  s, lower quartile of the other blocks' intervals"
nonempty_median_s = "DOUBLE  s, median of the other blocks' intervals"
nonempty_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null below 6 intervals"
nonempty_median_high_s = "DOUBLE  s, upper bound of that interval"
nonempty_q3_s = "DOUBLE  s, upper quartile of the other blocks' intervals"
mann_whitney_u = "DOUBLE  U of the empty blocks; null without enough data"
p_value = "DOUBLE  0..1, two-sided; null without enough data"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of owners; that of 'all' is p_value"
rank_biserial = "DOUBLE  -1..1, negative: empty blocks come faster; null without enough data"
enough_data = "BOOLEAN  both kinds have min_timed timed blocks"
empty_bias_s = "DOUBLE  s, median over empty blocks of the interval on this clock minus that of arrivals; null where no block has both"
nonempty_bias_s = "DOUBLE  s, the same of other blocks"
told_by = "VARCHAR[]  sources of these blocks, their sizes and their arrivals, each once: observed, backfilled, or names of imported sources"
*/
with

timed as (
    select
        *,
        unnest(
            [
                struct_pack(clock := 'arrival', clock_s := interval_s),
                struct_pack(clock := 'header', clock_s := header_interval_s)
            ]
        ) as timing
    from owner_intervals
),

kinds as (
    select
        grouped_by,
        owner,
        owner_name,
        told_by,
        interval_s as arrival_s,
        is_nothing_waiting,
        timing.clock,
        case when is_empty and not is_nothing_waiting then timing.clock_s end as empty_s,
        case when not is_empty and not is_nothing_waiting then timing.clock_s end as nonempty_s
    from timed
),

counts as (
    select
        grouped_by,
        owner,
        clock,
        owner_name,
        sources_of(flatten(list(told_by))) as told_by,
        count(*) as n_blocks,
        count(*) filter (where is_nothing_waiting) as n_mempool_empty,
        count(empty_s) as n_empty,
        count(nonempty_s) as n_nonempty,
        count(*) filter (where least(empty_s, nonempty_s) < 0) as n_negative,
        quantile_cont(empty_s, [0.25, 0.5, 0.75]) as empty_quartiles_s,
        quantile_cont(nonempty_s, [0.25, 0.5, 0.75]) as nonempty_quartiles_s,
        median(empty_s - arrival_s) as empty_bias_s,
        median(nonempty_s - arrival_s) as nonempty_bias_s,
        list(empty_s order by empty_s) filter (where empty_s is not null) as empties_s,
        list(nonempty_s order by nonempty_s) filter (where nonempty_s is not null) as nonempties_s
    from kinds
    group by grouped_by, owner, clock, owner_name
),

judged as (
    select
        *,
        least(n_empty, n_nonempty) >= getvariable('min_timed') as enough_data,
        median_interval(empties_s) as empty_median_interval,
        median_interval(nonempties_s) as nonempty_median_interval,
        rank_test(
            case when least(n_empty, n_nonempty) >= getvariable('min_timed') then empties_s end,
            nonempties_s
        ) as test
    from counts
)

select
    grouped_by,
    owner,
    clock,
    owner_name,
    n_blocks,
    n_mempool_empty,
    n_empty,
    n_nonempty,
    n_negative,
    empty_quartiles_s[1] as empty_q1_s,
    empty_quartiles_s[2] as empty_median_s,
    empty_median_interval.low as empty_median_low_s,
    empty_median_interval.high as empty_median_high_s,
    empty_quartiles_s[3] as empty_q3_s,
    nonempty_quartiles_s[1] as nonempty_q1_s,
    nonempty_quartiles_s[2] as nonempty_median_s,
    nonempty_median_interval.low as nonempty_median_low_s,
    nonempty_median_interval.high as nonempty_median_high_s,
    nonempty_quartiles_s[3] as nonempty_q3_s,
    test.u as mann_whitney_u,
    test.p_value,
    adjusted_p_values(list(test.p_value) over of_family)[row_number() over of_family] as adjusted_p_value,
    test.rank_biserial,
    enough_data,
    empty_bias_s,
    nonempty_bias_s,
    told_by
from judged
window
    of_family as (
        partition by grouped_by, clock, owner = 'all'
        order by owner
        rows between unbounded preceding and unbounded following
    )
order by grouped_by, owner != 'all', n_blocks desc, owner, clock
