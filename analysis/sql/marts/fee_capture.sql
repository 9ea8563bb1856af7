/*
summary = "How much of the available fees each pool takes."
method = """
Sums of fee_capture_block over the pool's blocks on the active chain, with a jackknife interval over blocks as in
feerate_strategy. A block counts once: as seen by the first node that had something waiting, and against the template of
the first node that had one. captured_ratio leaves out empty blocks; captured_full_ratio counts them, so it also shows
what empty and small blocks cost a pool. template_multiple compares with what a stock node would have mined at the same
weight, over the blocks for which there is a template.
"""
grain = ["pool"]
[parameters]
min_capture_blocks = {value = 5, doc = "blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks measured, empty ones included"
captured_ratio = "DOUBLE  0..1, fees taken / most that the blocks' weight could hold"
captured_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
captured_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
captured_full_ratio = "DOUBLE  0..1, fees taken / most that full blocks could hold"
captured_full_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
captured_full_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_template_blocks = "BIGINT  blocks compared with a template"
template_multiple = "DOUBLE  fees taken / fees of the template's part of the same weight"
template_multiple_low = "DOUBLE  lower bound of the 95 % interval"
template_multiple_high = "DOUBLE  upper bound of the 95 % interval"
enough_data = "BOOLEAN  at least min_capture_blocks blocks"
*/
with

viewed as (
    select
        capture.*,
        block_mempool.node_no,
        row_number() over (
            partition by capture.block_hash order by capture.bound_full_sat = 0, block_mempool.node_no
        ) as place
    from fee_capture_block as capture
    inner join block_mempool
        on capture.block_hash = block_mempool.block_hash and capture.node = block_mempool.node
    where capture.is_active
),

by_block as (
    select
        block_hash,
        pool,
        arg_min(seen_fees_sat, place) as seen_fees_sat,
        arg_min(bound_same_weight_sat, place) as bound_same_weight_sat,
        arg_min(bound_full_sat, place) as bound_full_sat,
        arg_min(fees_sat, node_no) filter (where template_multiple is not null) as compared_fees_sat,
        arg_min(template_same_weight_sat, node_no) filter (
            where template_multiple is not null
        ) as template_same_weight_sat
    from viewed
    group by block_hash, pool
),

measured as (
    select
        *,
        unnest([pool, 'all']) as label
    from by_block
),

counts as (
    select
        label,
        count(*) as n_blocks,
        list(struct_pack(taken := seen_fees_sat, offered := bound_same_weight_sat) order by block_hash) filter (
            where bound_same_weight_sat > 0
        ) as same_weight,
        list(struct_pack(taken := seen_fees_sat, offered := bound_full_sat) order by block_hash) filter (
            where bound_full_sat > 0
        ) as full_weight,
        list(
            struct_pack(taken := compared_fees_sat, offered := template_same_weight_sat) order by block_hash
        ) filter (where compared_fees_sat is not null) as template,
        sum(seen_fees_sat) filter (where bound_same_weight_sat > 0)
        / nullif(ordered_sum(bound_same_weight_sat), 0) as captured_ratio,
        sum(seen_fees_sat) / nullif(ordered_sum(bound_full_sat), 0) as captured_full_ratio,
        count(compared_fees_sat) as n_template_blocks,
        sum(compared_fees_sat)
        / sum(template_same_weight_sat) filter (where compared_fees_sat is not null) as template_multiple
    from measured
    group by label
),

judged as (
    select
        *,
        block_ratio_interval(same_weight, getvariable('min_capture_blocks')) as captured_interval,
        block_ratio_interval(full_weight, getvariable('min_capture_blocks')) as full_interval,
        block_multiple_interval(template, getvariable('min_capture_blocks')) as template_interval
    from counts
)

select
    judged.label as pool,
    case when judged.label = 'all' then 'all blocks' else coalesce(pools.name, judged.label) end as pool_name,
    judged.n_blocks,
    judged.captured_ratio,
    judged.captured_interval.low as captured_low_ratio,
    judged.captured_interval.high as captured_high_ratio,
    judged.captured_full_ratio,
    judged.full_interval.low as captured_full_low_ratio,
    judged.full_interval.high as captured_full_high_ratio,
    judged.n_template_blocks,
    judged.template_multiple,
    judged.template_interval.low as template_multiple_low,
    judged.template_interval.high as template_multiple_high,
    judged.n_blocks >= getvariable('min_capture_blocks') as enough_data
from judged
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.n_blocks desc, judged.label
