/*
summary = "How many blocks are named by payout, by tag, or not at all, per difficulty epoch and over all, with conflicts."
method = """
Blocks of the active chain, counted by the method of the rule that decided (block_pool). Blocks of which nobody tells a
coinbase or a label are left out. A conflict is a block for which a rule of another pool also matches. Ratios are of all blocks of the period. All blocks were examined, so
Wilson's 95 % interval describes how well these blocks show what miners do, not an error of counting.
"""
grain = ["period_kind", "period", "method"]
[columns]
period_kind = "VARCHAR  epoch or all"
period = "VARCHAR  number of the difficulty epoch, or all"
first_height = "INTEGER  first of the blocks that count in the period"
method = "VARCHAR  payout, tag or label, or none: unknown"
block_count = "BIGINT  blocks on the active chain"
total_block_count = "BIGINT  blocks of the period, all methods"
block_ratio = "DOUBLE  0..1, block_count / total_block_count"
block_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
block_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
conflict_count = "BIGINT  blocks of this method for which another pool's rule matches as well"
mean_candidates = "DOUBLE  mean number of rules that match a block"
*/
with

blocks as (
    select
        owner_periods.period_kind,
        owner_periods.period,
        owner_periods.height,
        coalesce(block_pool.method, 'none') as method,
        block_pool.n_candidates,
        len(block_pool.conflicts) > 0 as has_conflict
    from owner_periods
    inner join block_pool
        on owner_periods.block_hash = block_pool.block_hash
    where
        owner_periods.grouped_by = 'network'
        and owner_periods.period_kind != 'day'
        and block_pool.is_attributable
),

counts as (
    select
        period_kind,
        period,
        method,
        min(min(height)) over (partition by period_kind, period) as first_height,
        count(*) as block_count,
        cast(sum(count(*)) over (partition by period_kind, period) as bigint) as total_block_count,
        count(*) filter (where has_conflict) as conflict_count,
        avg(n_candidates) as mean_candidates
    from blocks
    group by period_kind, period, method
),

ratios as (
    select
        *,
        wilson_interval(block_count, total_block_count) as bounds
    from counts
)

select
    period_kind,
    period,
    first_height,
    method,
    block_count,
    total_block_count,
    block_count / total_block_count as block_ratio,
    bounds.low as block_low_ratio,
    bounds.high as block_high_ratio,
    conflict_count,
    mean_candidates
from ratios
order by period_kind, first_height, method
