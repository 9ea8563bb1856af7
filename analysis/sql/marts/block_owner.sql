/*
summary = "The owner of each block of the active chain, in three groupings: its pool, the pool's company, and the group it shares templates with."
method = """
Each block appears once per grouping. 'pool' uses the pools of block_pool. 'owner' merges the pools of one company, and
'proxy' merges pools that send out the templates of one of them. Memberships are dated, in data/pools/entities.toml,
and the UTC day of the block's header time decides. Where no source gives that time, it is the first known day of the epoch, which
is about two weeks long. A pool without an entity on that day stands for itself. 'unknown' stays 'unknown' in every grouping. An
epoch is the 2,016 blocks of one difficulty.
"""
grain = ["grouped_by", "block_hash"]
[parameters]
epoch_blocks = {value = 2016, doc = "blocks of one difficulty"}
[columns]
grouped_by = "VARCHAR  pool, owner or proxy"
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
header_time = "TIMESTAMP WITH TIME ZONE  time that the miner wrote into the header"
day = "DATE  UTC day of the header time; null where no source gives it"
epoch = "INTEGER  height / 2,016, rounded down"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches"
owner_name = "VARCHAR  name of the owner"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not an owner"
told_by = "VARCHAR  source of the block: observed, backfilled, or the name of an imported source"
*/
with

blocks as (
    select
        chain_blocks.block_hash,
        chain_blocks.height,
        chain_blocks.header_time,
        cast(chain_blocks.header_time as date) as day,
        cast(chain_blocks.height // getvariable('epoch_blocks') as integer) as epoch,
        block_pool.pool,
        block_pool.pool_name,
        block_pool.is_unknown,
        block_pool.told_by
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where chain_blocks.is_active and block_pool.is_attributable
),

epoch_days as (
    select
        height // getvariable('epoch_blocks') as epoch,
        min(cast(header_time as date)) as day
    from chain_blocks
    where is_active and header_time is not null
    group by height // getvariable('epoch_blocks')
),

kinds as (
    select unnest(['pool', 'owner', 'proxy']) as grouped_by
)

select
    kinds.grouped_by,
    blocks.block_hash,
    blocks.height,
    blocks.header_time,
    blocks.day,
    blocks.epoch,
    coalesce(entities.entity, blocks.pool) as owner,
    coalesce(entities.name, blocks.pool_name) as owner_name,
    blocks.is_unknown,
    blocks.told_by
from blocks
cross join kinds
left join epoch_days
    on blocks.epoch = epoch_days.epoch
left join entities
    on
        kinds.grouped_by = entities.kind
        and blocks.pool = entities.slug
        and (entities.from_date is null or coalesce(blocks.day, epoch_days.day) >= entities.from_date)
        and (entities.to_date is null or coalesce(blocks.day, epoch_days.day) <= entities.to_date)
order by kinds.grouped_by, blocks.height
