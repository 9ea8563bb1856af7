/*
summary = "Each block of which it is known whether it is empty, with its interval, once under its owner and once under 'all'."
method = """
block_intervals with the owners of block_owner, so that pools, their owners and groups that share templates are measured
in the same way. Blocks of the active chain of which no source tells whether they are empty are left out: they are neither.
Every block appears twice in each grouping: under its owner, and under 'all'. One with neither a coinbase nor a label,
from which to find the pool, is under 'all' alone. A pool knows its own block before anybody else: is_after_same says
whether block and parent have the same owner, each as of its own day.
"""
grain = ["grouped_by", "owner", "block_hash"]
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for every block"
owner_name = "VARCHAR  name of the owner"
block_hash = "BLOB  header hash, internal byte order"
is_empty = "BOOLEAN  has a coinbase and nothing else"
is_nothing_waiting = "BOOLEAN  the mempool is known to have had nothing waiting"
is_after_same = "BOOLEAN  its parent is of the same owner; null when either is unknown or the dataset lacks the parent"
interval_s = "DOUBLE  s since the parent's arrival; null where either arrival is unknown"
header_interval_s = "DOUBLE  s since the parent's header time; null when the dataset lacks the parent"
block_told_by = "VARCHAR[]  sources of the block and of its emptiness, each once: observed, backfilled, or names of imported sources"
told_by = "VARCHAR[]  sources of the block, of its emptiness and of its interval, each once: observed, backfilled, or names of imported sources"
*/
with

kinds as (
    select unnest(['pool', 'owner', 'proxy']) as grouped_by
)

select
    kinds.grouped_by,
    unnest(if(own.owner is null, ['all'], [own.owner, 'all'])) as owner,
    unnest(if(own.owner is null, ['all blocks'], [own.owner_name, 'all blocks'])) as owner_name,
    chain_blocks.block_hash,
    block_intervals.is_empty,
    coalesce(block_intervals.n_mempool = 0, false) as is_nothing_waiting,
    case when not own.is_unknown and not parent.is_unknown then own.owner = parent.owner end as is_after_same,
    block_intervals.interval_s,
    cast(block_intervals.header_interval_s as double) as header_interval_s,
    sources_of([coalesce(own.told_by, block_intervals.told_by), block_intervals.emptiness_told_by]) as block_told_by,
    sources_of(
        [
            coalesce(own.told_by, block_intervals.told_by),
            block_intervals.emptiness_told_by,
            nullif(block_intervals.clock, 'own')
        ]
    ) as told_by
from chain_blocks
cross join kinds
inner join block_intervals
    on chain_blocks.block_hash = block_intervals.block_hash
left join block_owner as own
    on kinds.grouped_by = own.grouped_by and chain_blocks.block_hash = own.block_hash
left join block_owner as parent
    on kinds.grouped_by = parent.grouped_by and chain_blocks.prev_hash = parent.block_hash
where chain_blocks.is_active and block_intervals.is_empty is not null
order by kinds.grouped_by, chain_blocks.height
