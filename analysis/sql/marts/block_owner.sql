/*
summary = "The owner of each block of the active chain, in three groupings: its pool, the pool's company, and the group it shares templates with."
method = """
Each block appears once per grouping. 'pool' uses the pools of block_pool. 'owner' merges the pools of one company, and
'proxy' merges pools that send out the templates of one of them. Memberships are dated, in data/pools/entities.toml, and
the UTC day of the block's header time decides. Where no source gives that time, its place on the straight line between
the nearest blocks below and above whose time is known decides; beyond the first and the last known time, 600 s per
block. A pool without an entity on that day stands for itself, and so does one with dated memberships alone where no
time of any block is known. 'unknown' stays 'unknown' in every grouping. Blocks with neither a coinbase nor a label,
from which to find the pool, are left out. An epoch is the 2,016 blocks of one difficulty.
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

active as (
    select
        block_hash,
        height,
        header_time,
        epoch_us(header_time) // 1000000 as time_s,
        max(case when header_time is not null then height end) over (order by height) as below_height,
        min(case when header_time is not null then height end) over (order by height desc) as above_height
    from chain_blocks
    where is_active
),

placed as (
    select
        active.*,
        case
            when active.time_s is not null then active.time_s
            when below.height is null then above.time_s - 600 * (above.height - active.height)
            when above.height is null then below.time_s + 600 * (active.height - below.height)
            else (
                below.time_s * (above.height - active.height) + above.time_s * (active.height - below.height)
            )
            // (above.height - below.height)
        end as placed_s
    from active
    left join active as below
        on active.below_height = below.height
    left join active as above
        on active.above_height = above.height
),

blocks as (
    select
        placed.block_hash,
        placed.height,
        placed.header_time,
        cast(placed.header_time as date) as day,
        date '1970-01-01' + cast(placed.placed_s // 86400 as integer) as placed_day,
        cast(placed.height // getvariable('epoch_blocks') as integer) as epoch,
        block_pool.pool,
        block_pool.pool_name,
        block_pool.is_unknown,
        block_pool.told_by
    from placed
    inner join block_pool
        on placed.block_hash = block_pool.block_hash
    where block_pool.is_attributable
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
left join entities
    on
        kinds.grouped_by = entities.kind
        and blocks.pool = entities.slug
        and (entities.from_date is null or blocks.placed_day >= entities.from_date)
        and (entities.to_date is null or blocks.placed_day <= entities.to_date)
order by kinds.grouped_by, blocks.height
