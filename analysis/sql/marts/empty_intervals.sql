/*
summary = "Empty blocks per pool: how many, and whether they follow their parent sooner than others."
method = """
Blocks of the active chain. Those with neither a coinbase nor a label, from which to find the pool, count for 'all'
alone. The rate of empty blocks has Wilson's 95 % interval. Intervals are block_intervals.interval_s, from arrival to
arrival; a block without one is counted but not timed. Empty and non-empty intervals are compared by the Mann-Whitney U
test (two-sided, ties corrected) and the rank-biserial correlation 2 U / (n m) - 1, where U counts the pairs in which
the empty block took longer: -1 when every empty block came faster than every other, 0 when neither kind tends to be
faster. With fewer than min_timed timed blocks of either kind there is no test, and enough_data is false. Of many pools
some have a small p_value by chance, and all are measured on one chain. adjusted_p_value is Holm's (1979): it keeps the
chance of even one false claim below the level, however the tests depend on each other. The report corrects its claims
about pools in the same way. 'all' is a separate question and is not corrected. Medians have the interval of order
statistics (median_interval), which assumes independent intervals. Every block counts here, even where nothing was
waiting; empty_timing and empty_rate leave those out.
"""
grain = ["pool"]
[parameters]
min_timed = {value = 5, doc = "timed blocks of each kind; fewer give no test"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks on the active chain of which it is known whether they are empty"
n_empty = "BIGINT  blocks with a coinbase and nothing else"
empty_ratio = "DOUBLE  0..1, n_empty / n_blocks"
empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_empty_timed = "BIGINT  empty blocks with an interval"
n_nonempty_timed = "BIGINT  other blocks with an interval"
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
adjusted_p_value = "DOUBLE  0..1, corrected for the number of pools; that of 'all' is p_value"
rank_biserial = "DOUBLE  -1..1, negative: empty blocks come faster; null without enough data"
enough_data = "BOOLEAN  both kinds have min_timed timed blocks"
told_by = "VARCHAR[]  sources of these blocks, their sizes and their arrivals, each once: observed, backfilled, or names of imported sources"
*/
with

blocks_of as (
    select
        unnest(if(block_pool.is_attributable, [block_pool.pool, 'all'], ['all'])) as pool,
        unnest(if(block_pool.is_attributable, [block_pool.pool_name, 'all blocks'], ['all blocks'])) as pool_name,
        block_intervals.is_empty,
        block_intervals.interval_s,
        [block_intervals.told_by, block_intervals.emptiness_told_by, nullif(block_intervals.clock, 'own')] as told_by
    from block_intervals
    inner join block_pool
        on block_intervals.block_hash = block_pool.block_hash
    where block_intervals.is_active and block_intervals.is_empty is not null
),

counts as (
    select
        pool,
        pool_name,
        sources_of(flatten(list(told_by))) as told_by,
        count(*) as n_blocks,
        count(*) filter (where is_empty) as n_empty,
        count(interval_s) filter (where is_empty) as n_empty_timed,
        count(interval_s) filter (where not is_empty) as n_nonempty_timed,
        quantile_cont(interval_s, [0.25, 0.5, 0.75]) filter (where is_empty) as empty_quartiles_s,
        quantile_cont(interval_s, [0.25, 0.5, 0.75]) filter (where not is_empty) as nonempty_quartiles_s,
        list(interval_s order by interval_s) filter (where is_empty and interval_s is not null) as empty_s,
        list(interval_s order by interval_s) filter (where not is_empty and interval_s is not null) as nonempty_s
    from blocks_of
    group by pool, pool_name
),

judged as (
    select
        *,
        least(n_empty_timed, n_nonempty_timed) >= getvariable('min_timed') as enough_data,
        wilson_interval(n_empty, n_blocks) as empty_interval,
        median_interval(empty_s) as empty_median_interval,
        median_interval(nonempty_s) as nonempty_median_interval,
        rank_test(
            case when least(n_empty_timed, n_nonempty_timed) >= getvariable('min_timed') then empty_s end,
            nonempty_s
        ) as test
    from counts
)

select
    pool,
    pool_name,
    n_blocks,
    n_empty,
    n_empty / n_blocks as empty_ratio,
    empty_interval.low as empty_low_ratio,
    empty_interval.high as empty_high_ratio,
    n_empty_timed,
    n_nonempty_timed,
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
    told_by
from judged
window
    of_family as (
        partition by pool = 'all'
        order by pool
        rows between unbounded preceding and unbounded following
    )
order by pool != 'all', n_blocks desc, pool
