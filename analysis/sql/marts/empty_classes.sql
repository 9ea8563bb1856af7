/*
summary = "Evidence classes of the empty blocks of each pool."
method = """
Counts of empty_evidence. Blocks with neither a coinbase nor a label, from which to find the pool, count for 'all'
alone. excluded_empty_ratio is the rate of empty blocks without the blocks, empty or not, that were found while nothing
was waiting (fillable_empty_ratio of empty_rate, over all); its interval is Wilson's.
"""
grain = ["pool"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks on the active chain of which it is known whether they are empty"
n_mempool_empty = "BIGINT  empty blocks found while nothing was waiting"
n_before_template = "BIGINT  empty blocks that came before our node had offered a filled template"
n_soon = "BIGINT  further empty blocks soon after their parent"
n_late = "BIGINT  empty blocks long after their parent"
n_unknown = "BIGINT  empty blocks whose mempool or interval is not known"
excluded_empty_ratio = "DOUBLE  0..1, rate of empty blocks without blocks at which nothing was waiting; null when none is left"
excluded_empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
excluded_empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of these blocks and of their sizes, each once: observed, backfilled, or names of imported sources"
*/
with

blocks_of as (
    select
        empty_evidence.evidence,
        unnest(if(block_pool.is_attributable, [block_pool.pool, 'all'], ['all'])) as pool
    from block_intervals
    inner join block_pool
        on block_intervals.block_hash = block_pool.block_hash
    left join empty_evidence
        on block_intervals.block_hash = empty_evidence.block_hash
    where block_intervals.is_active
),

counts as (
    select
        pool,
        count(*) filter (where evidence = 'before_template') as n_before_template,
        count(*) filter (where evidence = 'soon') as n_soon,
        count(*) filter (where evidence = 'late') as n_late,
        count(*) filter (where evidence = 'unknown') as n_unknown
    from blocks_of
    group by pool
)

select
    counts.pool,
    empty_rate.owner_name as pool_name,
    empty_rate.n_blocks,
    empty_rate.n_empty_nothing_waiting as n_mempool_empty,
    counts.n_before_template,
    counts.n_soon,
    counts.n_late,
    counts.n_unknown,
    empty_rate.fillable_empty_ratio as excluded_empty_ratio,
    empty_rate.fillable_empty_low_ratio as excluded_empty_low_ratio,
    empty_rate.fillable_empty_high_ratio as excluded_empty_high_ratio,
    empty_rate.told_by
from counts
inner join empty_rate
    on
        counts.pool = empty_rate.owner
        and empty_rate.grouped_by = case when counts.pool = 'all' then 'network' else 'pool' end
        and empty_rate.period_kind = 'all'
order by counts.pool != 'all', empty_rate.n_blocks desc, counts.pool
