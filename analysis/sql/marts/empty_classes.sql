/*
summary = "Evidence classes of the empty blocks of each pool."
method = """
Counts of empty_evidence. excluded_empty_ratio is the rate of empty blocks after leaving out those found while
nothing was waiting, from the numerator and the denominator; its interval is Wilson's.
"""
grain = ["pool"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks on the active chain"
n_mempool_empty = "BIGINT  empty blocks found while nothing was waiting"
n_validationless = "BIGINT  empty blocks soon after their parent"
n_idle = "BIGINT  empty blocks long after their parent"
n_unknown = "BIGINT  empty blocks of which mempool or time is not known"
excluded_empty_ratio = "DOUBLE  0..1, empty blocks without n_mempool_empty"
excluded_empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
excluded_empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
*/
with

blocks_of as (
    select
        empty_evidence.evidence,
        unnest(
            [
                struct_pack(label := block_intervals.pool, label_name := block_intervals.pool_name),
                struct_pack(label := 'all', label_name := 'all blocks')
            ]
        ) as whose
    from block_intervals
    left join empty_evidence
        on block_intervals.block_hash = empty_evidence.block_hash
    where block_intervals.is_active
),

counts as (
    select
        whose.label,
        whose.label_name,
        count(*) as n_blocks,
        count(evidence) as n_empty,
        count(*) filter (where evidence = 'mempool_empty') as n_mempool_empty,
        count(*) filter (where evidence = 'validationless') as n_validationless,
        count(*) filter (where evidence = 'idle') as n_idle,
        count(*) filter (where evidence = 'unknown') as n_unknown
    from blocks_of
    group by whose.label, whose.label_name
),

judged as (
    select
        *,
        wilson_interval(n_empty - n_mempool_empty, n_blocks - n_mempool_empty) as excluded_interval
    from counts
)

select
    label as pool,
    label_name as pool_name,
    n_blocks,
    n_mempool_empty,
    n_validationless,
    n_idle,
    n_unknown,
    (n_empty - n_mempool_empty) / nullif(n_blocks - n_mempool_empty, 0) as excluded_empty_ratio,
    excluded_interval.low as excluded_empty_low_ratio,
    excluded_interval.high as excluded_empty_high_ratio
from judged
order by label != 'all', n_blocks desc, label
