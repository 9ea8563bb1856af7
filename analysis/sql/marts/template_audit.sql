/*
summary = "How each pool's blocks differ from our node's templates, as a curve over the template's age."
method = """
Sums of template_audit_block over the pool's blocks on the active chain, for each bin of template age. A block counts
once in a bin: against the template of the node that connected it first, among those that had one. Empty blocks promise
nothing and are left out. score_ratio has a jackknife interval over blocks as in feerate_strategy. A pool that runs a
stock node matches best at the age at which it refreshes its work. A pool that never matches orders its transactions in
another way, and its missing and extra transactions say nothing about single ones.
"""
grain = ["pool", "from_age_s"]
[parameters]
min_audit_blocks = {value = 5, doc = "blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
from_age_s = "DOUBLE  s, where the bin of template age begins"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks compared"
mean_age_s = "DOUBLE  s, mean age of the templates"
n_promised = "BIGINT  transactions that the templates promised"
n_matched = "BIGINT  promised and in the block"
missing_ratio = "DOUBLE  0..1, promised and not in the block; null when nothing was promised"
conflicting_ratio = "DOUBLE  0..1, promised but no longer minable"
unexplained_ratio = "DOUBLE  0..1, promised and missing for no known reason"
n_extra = "BIGINT  transactions that were not promised"
unseen_ratio = "DOUBLE  0..1, part of the blocks' transactions that was not in our mempool"
n_tied = "BIGINT  transactions of the templates, or waiting and in the blocks, that pay the same as the last promised one"
prioritised_ratio = "DOUBLE  0..1, part of the blocks' transactions that was waiting and paid less than what was promised"
score_ratio = "DOUBLE  0..1, matched / (matched + missing and unexplained)"
score_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
score_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
enough_data = "BOOLEAN  at least min_audit_blocks blocks"
*/
with

by_block as (
    select audit.*
    from template_audit_block as audit
    inner join block_mempool
        on audit.block_hash = block_mempool.block_hash and audit.node = block_mempool.node
    where audit.is_active and audit.n_block > 0
    qualify row_number() over (partition by audit.block_hash, audit.from_age_s order by block_mempool.node_no) = 1
),

labelled as (
    select
        *,
        unnest([pool, 'all']) as label
    from by_block
),

counts as (
    select
        label,
        from_age_s,
        count(*) as n_blocks,
        ordered_sum(age_s) / count(age_s) as mean_age_s,
        cast(sum(n_block) as bigint) as n_block,
        cast(sum(n_promised) as bigint) as n_promised,
        cast(sum(n_matched) as bigint) as n_matched,
        cast(sum(n_missing) as bigint) as n_missing,
        cast(sum(n_missing_conflicting) as bigint) as n_conflicting,
        cast(sum(n_missing_unexplained) as bigint) as n_unexplained,
        cast(sum(n_extra) as bigint) as n_extra,
        cast(sum(n_extra_unseen) as bigint) as n_unseen,
        cast(sum(n_extra_prioritised) as bigint) as n_prioritised,
        cast(sum(n_tied) as bigint) as n_tied,
        list(
            struct_pack(taken := n_matched, offered := n_matched + n_missing_unexplained) order by block_hash
        ) filter (where n_matched + n_missing_unexplained > 0) as scores
    from labelled
    group by label, from_age_s
),

judged as (
    select
        *,
        block_ratio_interval(scores, getvariable('min_audit_blocks')) as score_interval
    from counts
)

select
    judged.label as pool,
    judged.from_age_s,
    case when judged.label = 'all' then 'all blocks' else coalesce(pools.name, judged.label) end as pool_name,
    judged.n_blocks,
    judged.mean_age_s,
    judged.n_promised,
    judged.n_matched,
    judged.n_missing / nullif(judged.n_promised, 0) as missing_ratio,
    judged.n_conflicting / nullif(judged.n_promised, 0) as conflicting_ratio,
    judged.n_unexplained / nullif(judged.n_promised, 0) as unexplained_ratio,
    judged.n_extra,
    judged.n_unseen / judged.n_block as unseen_ratio,
    judged.n_tied,
    judged.n_prioritised / judged.n_block as prioritised_ratio,
    judged.n_matched / nullif(judged.n_matched + judged.n_unexplained, 0) as score_ratio,
    judged.score_interval.low as score_low_ratio,
    judged.score_interval.high as score_high_ratio,
    judged.n_blocks >= getvariable('min_audit_blocks') as enough_data
from judged
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.label, judged.from_age_s
