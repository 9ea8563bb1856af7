/*
summary = "Rate of empty blocks of the network and of each pool or entity, per day, difficulty epoch and over all."
method = """
Blocks of the active chain of which it is known whether they are empty, with Wilson's 95 % interval (E. B. Wilson,
1927). fillable_* leave out all blocks, empty or not, at which the mempool is known to have been empty, because nobody
could have filled them. Where the mempool was not observed, nothing can be left out and both rates are the same. Days
are those of the header time. Blocks with neither a coinbase nor a label, from which to find the pool, count in the
grouping 'network' alone.
"""
grain = ["grouped_by", "period_kind", "period", "owner"]
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
period_kind = "VARCHAR  day, epoch or all"
period = "VARCHAR  UTC day of the header time, number of the difficulty epoch, or all"
first_height = "INTEGER  first block of the period of which it is known whether it is empty"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for the network"
owner_name = "VARCHAR  name of the owner"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not an owner"
n_blocks = "BIGINT  blocks on the active chain of which it is known whether they are empty"
n_empty = "BIGINT  blocks with a coinbase and nothing else"
n_nothing_waiting = "BIGINT  blocks of either kind at which nothing was waiting"
n_empty_nothing_waiting = "BIGINT  those of them that are empty"
empty_ratio = "DOUBLE  0..1, n_empty / n_blocks"
empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
fillable_empty_ratio = "DOUBLE  0..1, rate of empty blocks without blocks at which nothing was waiting; null when none is left"
fillable_empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
fillable_empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of these blocks and of their sizes, each once: observed, backfilled, or names of imported sources"
*/
with

blocks as (
    select
        owner_periods.*,
        block_intervals.is_empty,
        block_intervals.emptiness_told_by,
        coalesce(block_intervals.n_mempool = 0, false) as is_nothing_waiting
    from owner_periods
    inner join block_intervals
        on owner_periods.block_hash = block_intervals.block_hash
    where block_intervals.is_empty is not null
),

counts as (
    select
        grouped_by,
        period_kind,
        period,
        owner,
        owner_name,
        is_unknown,
        min(height) as owner_first_height,
        sources_of(list_concat(list(told_by), list(emptiness_told_by))) as told_by,
        count(*) as n_blocks,
        count(*) filter (where is_empty) as n_empty,
        count(*) filter (where is_nothing_waiting) as n_nothing_waiting,
        count(*) filter (where is_empty and is_nothing_waiting) as n_empty_nothing_waiting
    from blocks
    group by grouped_by, period_kind, period, owner, owner_name, is_unknown
),

judged as (
    select
        *,
        min(owner_first_height) over (partition by period_kind, period) as first_height,
        wilson_interval(n_empty, n_blocks) as empty_interval,
        wilson_interval(n_empty - n_empty_nothing_waiting, n_blocks - n_nothing_waiting) as fillable_interval
    from counts
)

select
    grouped_by,
    period_kind,
    period,
    first_height,
    owner,
    owner_name,
    is_unknown,
    n_blocks,
    n_empty,
    n_nothing_waiting,
    n_empty_nothing_waiting,
    n_empty / n_blocks as empty_ratio,
    empty_interval.low as empty_low_ratio,
    empty_interval.high as empty_high_ratio,
    (n_empty - n_empty_nothing_waiting) / nullif(n_blocks - n_nothing_waiting, 0) as fillable_empty_ratio,
    fillable_interval.low as fillable_empty_low_ratio,
    fillable_interval.high as fillable_empty_high_ratio,
    told_by
from judged
order by grouped_by, period_kind, first_height, is_unknown, n_blocks desc, owner
