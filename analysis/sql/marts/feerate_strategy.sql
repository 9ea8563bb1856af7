/*
summary = "How far each pool takes the best-paying transactions, with 95 % intervals."
method = """
Sums of feerate_strategy_block over the pool's blocks on the active chain, each as one node saw it (is_counted):
top_x_ratio = n_top_taken / n_top, outside_2x_ratio = n_outside_taken / n_outside. The transactions of one block are
chosen together, so the block is the independent unit: the interval is a jackknife over blocks with Student's t
(part_interval). From min_blocks blocks on it holds the true ratio in 89 to 97 % of simulated samples, by the spread of
block sizes, and in up to 99 % where only few blocks take any, or leave any. It is null for fewer blocks, and where all
blocks have one ratio other than 0 and 1. Empty blocks choose nothing and are left out, and so are blocks at which no
node's mempool is known. Both are counted.
"""
grain = ["pool", "feerate_kind"]
[parameters]
min_blocks = {value = 5, doc = "measured blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
feerate_kind = "VARCHAR  plain, package or cluster"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks measured: not empty, mempool known and not empty"
n_empty = "BIGINT  blocks left out because they are empty"
n_unmeasured = "BIGINT  blocks left out because no mempool is known, or it had nothing to rank"
n_top = "BIGINT  transactions among the X best of their mempools"
n_top_taken = "BIGINT  those of them that were taken"
n_tied = "BIGINT  transactions that were taken and pay exactly what the last of the X best pays; they share the places left"
top_x_ratio = "DOUBLE  0..1; null when nothing was measured"
top_x_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
top_x_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_outside = "BIGINT  transactions behind the 2 X best of their mempools"
n_outside_taken = "BIGINT  those of them that were taken"
outside_2x_ratio = "DOUBLE  0..1; null when none was outside"
outside_2x_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
outside_2x_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
enough_data = "BOOLEAN  at least min_blocks blocks measured"
*/
with

kinds as (
    select unnest(['plain', 'package', 'cluster']) as feerate_kind
),

blocks_of as (
    select
        block_hash,
        pool,
        pool_name,
        is_empty
    from block_intervals
    where is_active
    union all
    select
        block_hash,
        'all' as pool,
        'all blocks' as pool_name,
        is_empty
    from block_intervals
    where is_active
),

measured as (
    select *
    from feerate_strategy_block
    where is_counted
),

counts as (
    select
        blocks_of.pool,
        blocks_of.pool_name,
        kinds.feerate_kind,
        count(measured.block_hash) as n_blocks,
        count(*) filter (where blocks_of.is_empty) as n_empty,
        count(*) filter (where not coalesce(blocks_of.is_empty, false) and measured.block_hash is null) as n_unmeasured,
        coalesce(sum(measured.n_top), 0) as n_top,
        coalesce(sum(measured.n_top_taken), 0) as n_top_taken,
        coalesce(sum(measured.n_tied), 0) as n_tied,
        coalesce(sum(measured.n_outside), 0) as n_outside,
        coalesce(sum(measured.n_outside_taken), 0) as n_outside_taken,
        list(
            struct_pack(taken := measured.n_top_taken, offered := measured.n_top) order by measured.block_hash
        ) filter (where measured.n_top > 0) as tops,
        list(
            struct_pack(taken := measured.n_outside_taken, offered := measured.n_outside) order by measured.block_hash
        ) filter (where measured.n_outside > 0) as outsides
    from blocks_of
    cross join kinds
    left join measured
        on blocks_of.block_hash = measured.block_hash and kinds.feerate_kind = measured.feerate_kind
    group by blocks_of.pool, blocks_of.pool_name, kinds.feerate_kind
),

judged as (
    select
        *,
        block_ratio_interval(tops, getvariable('min_blocks')) as top_x_interval,
        block_ratio_interval(outsides, getvariable('min_blocks')) as outside_2x_interval
    from counts
)

select
    pool,
    feerate_kind,
    pool_name,
    n_blocks,
    n_empty,
    n_unmeasured,
    cast(n_top as bigint) as n_top,
    cast(n_top_taken as bigint) as n_top_taken,
    cast(n_tied as bigint) as n_tied,
    n_top_taken / nullif(n_top, 0) as top_x_ratio,
    top_x_interval.low as top_x_low_ratio,
    top_x_interval.high as top_x_high_ratio,
    cast(n_outside as bigint) as n_outside,
    cast(n_outside_taken as bigint) as n_outside_taken,
    n_outside_taken / nullif(n_outside, 0) as outside_2x_ratio,
    outside_2x_interval.low as outside_2x_low_ratio,
    outside_2x_interval.high as outside_2x_high_ratio,
    n_blocks >= getvariable('min_blocks') as enough_data
from judged
order by pool != 'all', n_blocks desc, pool, feerate_kind
