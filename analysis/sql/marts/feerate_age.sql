/*
summary = "How far each pool takes the best-paying transactions, as a curve over the age of its template."
method = """
Sums of feerate_age_block over the pool's blocks on the active chain, for each age. Ratios and their jackknife intervals
are those of feerate_strategy, and as there a block counts once, as seen by the first node that had something to rank.
Empty blocks and blocks whose mempool is not known are left out. Where the curve is highest at an age above 0, that age
is how old the pool's templates are. n_clamped blocks came sooner after the node's previous cut than the age; for them
the moment is that cut (mempool_moments).
"""
grain = ["pool", "age_s", "feerate_kind"]
[parameters]
min_age_blocks = {value = 5, doc = "measured blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
age_s = "DOUBLE  s before the block, as one of the parameter ages_s"
feerate_kind = "VARCHAR  plain, package or cluster"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks measured: not empty, mempool known and not empty"
n_clamped = "BIGINT  those of them that came less than age_s after the node's previous cut"
real_age_s = "DOUBLE  s, mean age as clamped at the node's previous cut"
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
enough_data = "BOOLEAN  at least min_age_blocks blocks measured"
*/
with

measured as (
    select ages.*
    from feerate_age_block as ages
    inner join block_mempool
        on ages.block_hash = block_mempool.block_hash and ages.node = block_mempool.node
    where ages.is_active and ages.n_top > 0
    qualify
        row_number() over (
            partition by ages.block_hash, ages.age_s, ages.feerate_kind order by block_mempool.node_no
        ) = 1
),

labelled as (
    select
        *,
        unnest([pool, 'all']) as label
    from measured
),

counts as (
    select
        label,
        age_s,
        feerate_kind,
        count(*) as n_blocks,
        count(*) filter (where is_clamped) as n_clamped,
        ordered_sum(real_age_s) / count(real_age_s) as real_age_s,
        sum(n_top) as n_top,
        sum(n_top_taken) as n_top_taken,
        sum(n_tied) as n_tied,
        sum(n_outside) as n_outside,
        sum(n_outside_taken) as n_outside_taken,
        -- One list for both ratios, in the order of a number: sorting takes most of the time.
        list(
            struct_pack(
                n_top_taken := n_top_taken,
                n_top := n_top,
                n_outside_taken := n_outside_taken,
                n_outside := n_outside
            )
            order by height
        ) as blocks
    from labelled
    group by label, age_s, feerate_kind
),

judged as (
    select
        *,
        block_ratio_interval(
            list_transform(blocks, lambda block: struct_pack(taken := block.n_top_taken, offered := block.n_top)),
            getvariable('min_age_blocks')
        ) as top_x_interval,
        block_ratio_interval(
            list_transform(
                list_filter(blocks, lambda block: block.n_outside > 0),
                lambda block: struct_pack(taken := block.n_outside_taken, offered := block.n_outside)
            ),
            getvariable('min_age_blocks')
        ) as outside_2x_interval
    from counts
)

select
    judged.label as pool,
    judged.age_s,
    judged.feerate_kind,
    case when judged.label = 'all' then 'all blocks' else coalesce(pools.name, judged.label) end as pool_name,
    judged.n_blocks,
    judged.n_clamped,
    judged.real_age_s,
    cast(judged.n_top as bigint) as n_top,
    cast(judged.n_top_taken as bigint) as n_top_taken,
    cast(judged.n_tied as bigint) as n_tied,
    judged.n_top_taken / nullif(judged.n_top, 0) as top_x_ratio,
    judged.top_x_interval.low as top_x_low_ratio,
    judged.top_x_interval.high as top_x_high_ratio,
    cast(judged.n_outside as bigint) as n_outside,
    cast(judged.n_outside_taken as bigint) as n_outside_taken,
    judged.n_outside_taken / nullif(judged.n_outside, 0) as outside_2x_ratio,
    judged.outside_2x_interval.low as outside_2x_low_ratio,
    judged.outside_2x_interval.high as outside_2x_high_ratio,
    judged.n_blocks >= getvariable('min_age_blocks') as enough_data
from judged
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.label, judged.feerate_kind, judged.age_s
