/*
summary = "Which factor explains what a pool takes: feerate, waiting time or size."
method = """
Computed on inclusion_sample. auc_ratio is the chance that, of one taken and one left transaction of the same block, the
taken one ranks higher by the factor (ties count half): 0.5 explains nothing, 1 everything; below 0.5 the lower ranks
are taken. It is the Mann-Whitney U of each block, summed over blocks and divided by the pairs, with a jackknife
interval over blocks. coefficient is that of a logistic regression of `taken` on package feerate, waiting time and size
together (analysis/stats/inclusion_model.py; inclusion_fit has the one of all blocks): the change of the log odds from
the lowest to the highest rank while the other two stay equal. Its interval allows for likeness within blocks. `plain`
and `cluster` feerates have an area but no coefficient, because they say nearly the same as package feerates. Areas and
numbers are those of blocks that took some of the sample and left some; the regression takes every pair of the pool.
"""
cost = """
SciPy fits a logistic regression by iteration, for all blocks and again for every pool. The sample has at most about a
million pairs, so this does not grow with the dataset.
"""
grain = ["pool", "factor"]
[parameters]
min_inclusion_blocks = {value = 5, doc = "blocks with taken and left ones; fewer give no interval and no model"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
factor = "VARCHAR  package, cluster, plain, waiting or size"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks that took some and left some of the sample"
n_taken = "BIGINT  taken transactions of the sample in them"
n_left = "BIGINT  left transactions of the sample in them"
auc_ratio = "DOUBLE  0..1, area under the ROC curve"
auc_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
auc_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
coefficient = "DOUBLE  log odds, highest against lowest rank; null without enough data"
coefficient_low = "DOUBLE  lower bound of the 95 % interval"
coefficient_high = "DOUBLE  upper bound of the 95 % interval"
enough_data = "BOOLEAN  at least min_inclusion_blocks blocks"
*/
with

-- Twice the ranks are whole numbers again, so that a block without a lost pair has exactly all of them.
sums as (
    select
        block_hash,
        pool,
        count(*) filter (where is_taken) as n_taken,
        count(*) filter (where not is_taken) as n_left,
        sum(twice_rank(package_rank_ratio, n_pairs)) filter (where is_taken) as package_sum,
        sum(twice_rank(cluster_rank_ratio, n_pairs)) filter (where is_taken) as cluster_sum,
        sum(twice_rank(feerate_rank_ratio, n_pairs)) filter (where is_taken) as plain_sum,
        sum(twice_rank(waiting_rank_ratio, n_pairs)) filter (where is_taken) as waiting_sum,
        sum(twice_rank(size_rank_ratio, n_pairs)) filter (where is_taken) as size_sum
    from inclusion_sample
    group by block_hash, pool
),

-- Sum of the ranks of the taken ones, less what it is at least, is the number of pairs they win.
wins as (
    select
        block_hash,
        pool,
        n_taken,
        n_left,
        unnest(
            [
                struct_pack(factor := 'package', rank_sum := cast(package_sum as double) / 2),
                struct_pack(factor := 'cluster', rank_sum := cast(cluster_sum as double) / 2),
                struct_pack(factor := 'plain', rank_sum := cast(plain_sum as double) / 2),
                struct_pack(factor := 'waiting', rank_sum := cast(waiting_sum as double) / 2),
                struct_pack(factor := 'size', rank_sum := cast(size_sum as double) / 2)
            ]
        ) as summed
    from sums
    where n_taken > 0 and n_left > 0
),

blocks_of as (
    select
        block_hash,
        n_taken,
        n_left,
        summed.factor,
        n_taken * n_left as n_against,
        summed.rank_sum - n_taken * (n_taken + 1) / 2 as n_won,
        unnest([pool, 'all']) as label
    from wins
),

areas as (
    select
        label,
        factor,
        count(*) as n_blocks,
        cast(sum(n_taken) as bigint) as n_taken,
        cast(sum(n_left) as bigint) as n_left,
        ordered_sum(n_won) / sum(n_against) as auc_ratio,
        list(struct_pack(taken := n_won, offered := n_against) order by block_hash) as won
    from blocks_of
    group by label, factor
),

samples as (
    select
        pool,
        inclusion_model_of(
            inclusion_pairs(
                is_taken, height, package_rank_ratio, waiting_rank_ratio, size_rank_ratio, stay_no, cut_no
            )
        ) as model
    from inclusion_sample
    group by pool
),

fits as (
    select
        samples.pool,
        unnest(
            [
                struct_pack(
                    factor := 'package',
                    middle := model.package, low := model.package_low, high := model.package_high
                ),
                struct_pack(
                    factor := 'waiting',
                    middle := model.waiting, low := model.waiting_low, high := model.waiting_high
                ),
                struct_pack(
                    factor := 'size',
                    middle := model.size, low := model.size_low, high := model.size_high
                )
            ]
        ) as term
    from samples
),

terms as (
    select
        pool as label,
        term.factor,
        term.middle as coefficient,
        term.low as coefficient_low,
        term.high as coefficient_high
    from fits
    union all
    select
        'all' as label,
        factor,
        coefficient,
        coefficient_low,
        coefficient_high
    from inclusion_fit
),

judged as (
    select
        areas.*,
        areas.n_blocks >= getvariable('min_inclusion_blocks') as enough_data,
        block_ratio_interval(areas.won, getvariable('min_inclusion_blocks')) as auc_interval
    from areas
)

select
    judged.label as pool,
    judged.factor,
    case when judged.label = 'all' then 'all blocks' else coalesce(pools.name, judged.label) end as pool_name,
    judged.n_blocks,
    judged.n_taken,
    judged.n_left,
    judged.auc_ratio,
    judged.auc_interval.low as auc_low_ratio,
    judged.auc_interval.high as auc_high_ratio,
    case when judged.enough_data then terms.coefficient end as coefficient,
    case when judged.enough_data then terms.coefficient_low end as coefficient_low,
    case when judged.enough_data then terms.coefficient_high end as coefficient_high,
    judged.enough_data
from judged
left join terms
    on judged.label = terms.label and judged.factor = terms.factor
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.label, judged.factor
