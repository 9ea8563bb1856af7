/*
summary = "How far the blocks of each pool took the best-paying transactions, day by day."
method = """
The counted rows of feerate_strategy_block on the active chain, summed over the blocks of a UTC day, for each pool and
for all; the day is that on which our node connected the block. top_x_ratio is the part of the X best-paying
transactions that a block with X transactions took, outside_2x_ratio the part of those ranked behind 2 X;
arXiv:1902.07549 draws the first of them. The intervals are jackknifes over the blocks of the day (macro
block_ratio_interval) and null below min_acceptance_blocks.
"""
grain = ["pool", "day", "feerate_kind"]
[parameters]
min_acceptance_blocks = {value = 5, doc = "blocks of a day; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
day = "DATE  UTC"
feerate_kind = "VARCHAR  plain, package or cluster"
n_blocks = "BIGINT  blocks with something to rank"
n_top = "BIGINT  sum of the X best over these blocks"
n_top_taken = "BIGINT  those of them that the blocks took"
top_x_ratio = "DOUBLE  0..1, n_top_taken / n_top"
top_x_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
top_x_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_outside = "BIGINT  sum of those ranked behind 2 X"
n_outside_taken = "BIGINT  those of them that the blocks took"
outside_2x_ratio = "DOUBLE  0..1, n_outside_taken / n_outside; null when there are none"
*/
with

counted as (
    select
        unnest([strategy.pool, 'all']) as pool,
        cast(mempool_cuts.connected_at as date) as day,
        strategy.feerate_kind,
        strategy.block_hash,
        strategy.n_top,
        strategy.n_top_taken,
        coalesce(strategy.n_outside, 0) as n_outside,
        coalesce(strategy.n_outside_taken, 0) as n_outside_taken
    from feerate_strategy_block as strategy
    inner join mempool_cuts
        on strategy.block_hash = mempool_cuts.block_hash and strategy.node = mempool_cuts.node
    where strategy.is_counted and strategy.is_active and mempool_cuts.is_measured
),

sums as (
    select
        pool,
        day,
        feerate_kind,
        count(*) as n_blocks,
        cast(sum(n_top) as bigint) as n_top,
        cast(sum(n_top_taken) as bigint) as n_top_taken,
        cast(sum(n_outside) as bigint) as n_outside,
        cast(sum(n_outside_taken) as bigint) as n_outside_taken,
        block_ratio_interval(
            list(struct_pack(taken := n_top_taken, offered := n_top) order by block_hash),
            getvariable('min_acceptance_blocks')
        ) as top_x_bounds
    from counted
    group by pool, day, feerate_kind
)

select
    pool,
    day,
    feerate_kind,
    n_blocks,
    n_top,
    n_top_taken,
    n_top_taken / nullif(n_top, 0) as top_x_ratio,
    top_x_bounds.low as top_x_low_ratio,
    top_x_bounds.high as top_x_high_ratio,
    n_outside,
    n_outside_taken,
    n_outside_taken / nullif(n_outside, 0) as outside_2x_ratio
from sums
order by pool != 'all', pool, day, feerate_kind
