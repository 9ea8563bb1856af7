/*
summary = "Every branch that lost: how long it was, whose blocks it had, and whether a node of ours had followed it."
method = """
A branch begins with a stale block (chain_blocks) whose parent is on the active chain or not in the dataset, and holds
all stale blocks that descend from it; depth is the number of heights it spans. A node of ours that had connected blocks
of it had to leave them: followed_depth is the largest number that any node had connected, the depth of its
reorganisation. n_disconnected counts the disconnections that nodes reported. A branch as high as the active chain has
not lost yet (is_open): the next block decides. lead_s is how long its first block reached us before its rival on the
active chain, below 0 when it came later; both must have been pushed. Branches that no node connected are in chain_tips,
mostly by their header alone; stale_rate counts them.
"""
grain = ["first_hash"]
[columns]
first_hash = "BLOB  hash of the branch's lowest block, internal byte order"
from_height = "INTEGER  height of the branch's lowest block"
depth = "BIGINT  heights that the branch spans"
n_blocks = "BIGINT  blocks of the branch, with those of its own forks"
pools = "VARCHAR[]  slugs of the pools of its blocks, by height"
rival_hash = "BLOB  the active block at from_height; null when the dataset lacks it"
rival_pool = "VARCHAR  slug of that block's pool"
first_arrived_at = "TIMESTAMP WITH TIME ZONE  time on our clock when its first block was first pushed to us; null when only fetched"
lead_s = "DOUBLE  s by which its first block arrived before the rival; null where either arrival is unknown"
was_active = "BOOLEAN  a node of ours had connected a block of it"
followed_depth = "BIGINT  most blocks of it that one node of ours had connected; 0 for none"
is_open = "BOOLEAN  as high as the active chain, so that it may still win"
n_disconnected = "BIGINT  disconnections of its blocks that nodes reported, summed over nodes"
*/
with recursive

stale as (
    select
        chain_blocks.block_hash,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.arrived_at,
        block_pool.pool
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    where not chain_blocks.is_active
),

members (first_hash, block_hash, height, pool) as (
    select
        stale.block_hash as first_hash,
        stale.block_hash,
        stale.height,
        stale.pool
    from stale
    anti join stale as parent
        on stale.prev_hash = parent.block_hash
    union all
    select
        members.first_hash,
        stale.block_hash,
        stale.height,
        stale.pool
    from members
    inner join stale
        on members.block_hash = stale.prev_hash
),

branches as (
    select
        first_hash,
        cast(max(height) - min(height) + 1 as bigint) as depth,
        count(*) as n_blocks,
        list(pool order by height, block_hash) as pools
    from members
    group by first_hash
),

node_connections as (
    select
        members.first_hash,
        event.node,
        count(distinct members.block_hash) filter (where event.event = 'connected') as n_connected,
        count(*) filter (where event.event = 'disconnected') as n_disconnected
    from members
    inner join stg_block_arrivals as event
        on members.block_hash = event.block_hash
    group by members.first_hash, event.node
),

connections as (
    select
        first_hash,
        max(n_connected) as followed_depth,
        cast(sum(n_disconnected) as bigint) as n_disconnected
    from node_connections
    group by first_hash
),

tip as (
    select max(height) as height
    from chain_blocks
)

select
    branches.first_hash,
    stale.height as from_height,
    branches.depth,
    branches.n_blocks,
    branches.pools,
    rival.block_hash as rival_hash,
    rival_pool.pool as rival_pool,
    stale.arrived_at as first_arrived_at,
    seconds_between(stale.arrived_at, rival.arrived_at) as lead_s,
    coalesce(connections.followed_depth > 0, false) as was_active,
    coalesce(connections.followed_depth, 0) as followed_depth,
    stale.height + branches.depth > tip.height as is_open,
    coalesce(connections.n_disconnected, 0) as n_disconnected
from branches
cross join tip
inner join stale
    on branches.first_hash = stale.block_hash
left join chain_blocks as rival
    on stale.height = rival.height and rival.is_active
left join block_pool as rival_pool
    on rival.block_hash = rival_pool.block_hash
left join connections
    on branches.first_hash = connections.first_hash
order by stale.height, branches.first_hash
