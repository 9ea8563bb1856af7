/*
summary = "The periods and owners for which each block of the active chain counts; other marts group by them."
method = """
Each block appears once per grouping and kind of period: under its pool, its owner and its proxy group (block_owner),
and in the grouping 'network' under 'all'; in its UTC day, in its difficulty epoch and in the whole window. A block with
neither a coinbase nor a label, from which to find the pool, is in the grouping 'network' alone. This is a view,
computed when it is read, because a table would hold twelve rows per block.
"""
is_view = true
grain = ["grouped_by", "period_kind", "block_hash"]
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
period_kind = "VARCHAR  day, epoch or all"
period = "VARCHAR  UTC day of the header time, number of the difficulty epoch, or all"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for the network"
owner_name = "VARCHAR  name of the owner"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not an owner"
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
told_by = "VARCHAR  source of the block: observed, backfilled, or the name of an imported source"
*/
with

kinds as (
    select unnest(['day', 'epoch', 'all']) as period_kind
),

owners as (
    select
        grouped_by,
        owner,
        owner_name,
        is_unknown,
        block_hash,
        height,
        day,
        epoch,
        told_by
    from block_owner
    union all
    select
        'network' as grouped_by,
        'all' as owner,
        'all blocks' as owner_name,
        false as is_unknown,
        block_pool.block_hash,
        block_pool.height,
        cast(chain_blocks.header_time as date) as day,
        block_work.epoch,
        block_pool.told_by
    from block_pool
    inner join chain_blocks
        on block_pool.block_hash = chain_blocks.block_hash
    -- It has the blocks of the active chain.
    inner join block_work
        on block_pool.block_hash = block_work.block_hash
)

select
    owners.grouped_by,
    kinds.period_kind,
    case kinds.period_kind
        when 'day' then strftime(owners.day, '%Y-%m-%d')
        when 'epoch' then cast(owners.epoch as varchar)
        else 'all'
    end as period,
    owners.owner,
    owners.owner_name,
    owners.is_unknown,
    owners.block_hash,
    owners.height,
    owners.told_by
from owners
cross join kinds
where kinds.period_kind != 'day' or owners.day is not null
