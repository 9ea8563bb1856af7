/*
summary = "Whether each pool orders its transactions by feerate at all, and in how many of its blocks."
method = """
The blocks of block_order that could be judged, per pool. The verdict is the ordering whose share of these blocks is
above one half with its whole interval (Wilson); it is `other` where that holds for neither order together, and
`unclear` else, so that four blocks that agree are the least for a verdict. What the blocks of pools say of single
transactions (out_of_band_candidates, ahead_of_feerate) means something for pools of the verdict `feerate` only. `other`
says that neither order explains the blocks; without a mempool the times of entry are not known, and first come counts
as `other`. 'unknown' is not one pool, and its verdict is one of a mixture.
"""
grain = ["pool"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks of the active chain that could be judged"
n_unclear = "BIGINT  further blocks, with too few transactions or fitting both orders"
n_timed = "BIGINT  judged blocks with times of entry"
n_compared = "BIGINT  judged blocks with a template of ours"
feerate_ratio = "DOUBLE  0..1, judged blocks that feerate explains"
feerate_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
feerate_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
first_come_ratio = "DOUBLE  0..1, judged blocks that the time of entry explains"
first_come_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
first_come_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
median_feerate_ordered_ratio = "DOUBLE  0..1, median of feerate_ordered_ratio over judged blocks"
median_first_come_ordered_ratio = "DOUBLE  0..1, median of first_come_ordered_ratio; null without times of entry"
median_position_error_ratio = "DOUBLE  0..1, median of position_error_ratio over judged blocks"
verdict = "VARCHAR  feerate, first_come, other or unclear"
*/
with

marked as (
    select
        *,
        ordering not in ('both', 'unclear') as is_judged
    from block_order
),

judged as (
    select
        pool,
        count(*) filter (where is_judged) as n_blocks,
        count(*) filter (where not is_judged) as n_unclear,
        count(*) filter (where ordering = 'feerate') as n_feerate,
        count(*) filter (where ordering = 'first_come') as n_first_come,
        count(*) filter (where ordering = 'other') as n_other,
        count(*) filter (where is_judged and n_entries > 0) as n_timed,
        count(*) filter (where is_judged and template_ratio is not null) as n_compared,
        median(feerate_ordered_ratio) filter (where is_judged) as median_feerate_ordered_ratio,
        median(first_come_ordered_ratio) filter (where is_judged) as median_first_come_ordered_ratio,
        median(position_error_ratio) filter (where is_judged) as median_position_error_ratio
    from marked
    group by pool
),

bounded as (
    select
        *,
        wilson_interval(n_feerate, n_blocks) as feerate_interval,
        wilson_interval(n_first_come, n_blocks) as first_come_interval,
        wilson_interval(n_other, n_blocks) as other_interval
    from judged
)

select
    bounded.pool,
    coalesce(pools.name, bounded.pool) as pool_name,
    bounded.n_blocks,
    bounded.n_unclear,
    bounded.n_timed,
    bounded.n_compared,
    bounded.n_feerate / nullif(bounded.n_blocks, 0) as feerate_ratio,
    bounded.feerate_interval.low as feerate_low_ratio,
    bounded.feerate_interval.high as feerate_high_ratio,
    bounded.n_first_come / nullif(bounded.n_blocks, 0) as first_come_ratio,
    bounded.first_come_interval.low as first_come_low_ratio,
    bounded.first_come_interval.high as first_come_high_ratio,
    bounded.median_feerate_ordered_ratio,
    bounded.median_first_come_ordered_ratio,
    bounded.median_position_error_ratio,
    case
        when bounded.feerate_interval.low > 0.5 then 'feerate'
        when bounded.first_come_interval.low > 0.5 then 'first_come'
        when bounded.other_interval.low > 0.5 then 'other'
        else 'unclear'
    end as verdict
from bounded
left join pools
    on bounded.pool = pools.slug
order by bounded.n_blocks desc, bounded.pool
