/*
summary = "Time from each block's parent to the block, on our clock and by header."
method = """
interval_s is the block's arrival minus its parent's, both the first `seen` that a node pushed to us, so both on
one clock; null where either was only fetched. header_interval_s is the difference of the header times, which
miners choose: it may be negative, and it is never used in place of interval_s.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  blocks between this one and genesis"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
parent_pool = "VARCHAR  pool of the parent; null when the dataset lacks it"
is_active = "BOOLEAN  on the active chain; false: stale"
is_empty = "BOOLEAN  has a coinbase and nothing else"
header_time = "TIMESTAMP WITH TIME ZONE  chosen by the miner"
arrived_at = "TIMESTAMP WITH TIME ZONE  first pushed to us; null when we only fetched it"
interval_s = "DOUBLE  s since the parent's arrival; null where either arrival is unknown"
header_interval_s = "DOUBLE  s since the parent's header time; null when the dataset lacks the parent"
n_mempool = "BIGINT  transactions waiting as it arrived, most of any node; null where not measured"
*/
with

waiting as (
    select
        block_hash,
        max(n_mempool) as n_mempool
    from block_mempool
    group by block_hash
)

select
    block.block_hash,
    block.height,
    block_pool.pool,
    block_pool.pool_name,
    parent_block_pool.pool as parent_pool,
    block.is_active,
    block.is_empty,
    block.header_time,
    block.arrived_at,
    seconds_between(parent.arrived_at, block.arrived_at) as interval_s,
    seconds_between(parent.header_time, block.header_time) as header_interval_s,
    waiting.n_mempool
from chain_blocks as block
inner join block_pool
    on block.block_hash = block_pool.block_hash
left join chain_blocks as parent
    on block.prev_hash = parent.block_hash
left join block_pool as parent_block_pool
    on parent.block_hash = parent_block_pool.block_hash
left join waiting
    on block.block_hash = waiting.block_hash
order by block.height, block.block_hash
