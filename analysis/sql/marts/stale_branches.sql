/*
summary = "Every branch that lost: how long it was, whose blocks it had, and whether a node of ours had followed it."
method = """
A branch begins with a stale block (chain_blocks) whose parent is on the active chain or not in the dataset, and holds
all stale blocks that descend from it; depth is the number of heights it spans. A node of ours that had connected blocks
of it had to leave them: followed_depth is the largest number that any node had connected, the depth of its
reorganisation. n_disconnected counts the disconnections that nodes reported. A branch has not lost yet (is_open) if one
more block like its last would give it more work than the active chain has above the same parent; of equal work per
block, that is a branch as high as the active chain. Blocks whose target is not known count by their number. lead_s is how long its first block reached us before its rival on the
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
is_open = "BOOLEAN  one more block would give it more work than the active chain, so that it may still win"
n_disconnected = "BIGINT  disconnections of its blocks that nodes reported, summed over nodes"
*/
with recursive

stale as (
    select
        chain_blocks.block_hash,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.arrived_at,
        block_pool.pool,
        work_of(block_facts.bits) as work
    from chain_blocks
    inner join block_pool
        on chain_blocks.block_hash = block_pool.block_hash
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    where not chain_blocks.is_active
),

-- next_work: that of the branch up to the block, with one more block like it.
members (first_hash, block_hash, height, pool, branch_work, next_work) as (
    select
        stale.block_hash as first_hash,
        stale.block_hash,
        stale.height,
        stale.pool,
        stale.work as branch_work,
        2 * stale.work as next_work
    from stale
    anti join stale as parent
        on stale.prev_hash = parent.block_hash
    union all
    select
        members.first_hash,
        stale.block_hash,
        stale.height,
        stale.pool,
        members.branch_work + stale.work as branch_work,
        members.branch_work + 2 * stale.work as next_work
    from members
    inner join stale
        on members.block_hash = stale.prev_hash
),

branches as (
    select
        first_hash,
        cast(max(height) - min(height) + 1 as bigint) as depth,
        count(*) as n_blocks,
        list(pool order by height, block_hash) as pools,
        max(next_work) as next_work,
        count(next_work) = count(*) as has_work
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

-- The active chain from each of its blocks on.
active as (
    select
        chain_blocks.height,
        sum(work_of(block_facts.bits)) over from_here as work,
        count(*) over from_here = count(work_of(block_facts.bits)) over from_here as has_work,
        max(chain_blocks.height) over from_here as tip_height
    from chain_blocks
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    where chain_blocks.is_active
    window from_here as (order by chain_blocks.height desc)
),

opposed as (
    select
        stale.*,
        active.work as active_work,
        active.has_work as has_active_work,
        active.tip_height
    from stale
    asof left join active
        on stale.height <= active.height
)

select
    branches.first_hash,
    opposed.height as from_height,
    branches.depth,
    branches.n_blocks,
    branches.pools,
    rival.block_hash as rival_hash,
    rival_pool.pool as rival_pool,
    opposed.arrived_at as first_arrived_at,
    seconds_between(opposed.arrived_at, rival.arrived_at) as lead_s,
    coalesce(connections.followed_depth > 0, false) as was_active,
    coalesce(connections.followed_depth, 0) as followed_depth,
    case
        when opposed.has_active_work and branches.has_work then branches.next_work > opposed.active_work
        else opposed.tip_height is null or opposed.height + branches.depth > opposed.tip_height
    end as is_open,
    coalesce(connections.n_disconnected, 0) as n_disconnected
from branches
inner join opposed
    on branches.first_hash = opposed.block_hash
left join chain_blocks as rival
    on opposed.height = rival.height and rival.is_active
left join block_pool as rival_pool
    on rival.block_hash = rival_pool.block_hash
left join connections
    on branches.first_hash = connections.first_hash
order by opposed.height, branches.first_hash
