/*
summary = "When each block reached each of our nodes, compared with the first of them."
method = """
The first `seen` that each node pushed to us. One clock, ours, stamps the messages of all nodes, so lags need no
correction; in a merged dataset each member's clock was corrected to the first one's, and lags between members are known
to clock_error_s of node_propagation. They contain the way from each node to us, which takes milliseconds for nodes
nearby. connect_s is the time from a node's `seen` to its `connected`: how long the node took to validate the block, as
its messages show it.
"""
grain = ["block_hash", "node"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
n_nodes = "BIGINT  nodes that pushed this block"
seen_at = "TIMESTAMP WITH TIME ZONE  time on our clock when the node first pushed the block to us"
lag_s = "DOUBLE  s after the first node; 0 for the first"
spread_s = "DOUBLE  s from the first to the last node; null when only one pushed it"
connect_s = "DOUBLE  s until the node had connected it; null when the node did not report that, or reported it earlier"
*/
with

seen as (
    select
        block_hash,
        node,
        min(event_at) filter (where event = 'seen') as seen_at,
        min(event_at) filter (where event = 'connected') as connected_at
    from stg_block_arrivals
    where kind = 'pushed'
    group by block_hash, node
),

first_seen as (
    select
        *,
        count(*) over of_block as n_nodes,
        min(seen_at) over of_block as first_at,
        max(seen_at) over of_block as last_at
    from seen
    where seen_at is not null
    window of_block as (partition by block_hash)
)

select
    first_seen.block_hash,
    first_seen.node,
    chain_blocks.height,
    block_pool.pool,
    chain_blocks.is_active,
    first_seen.n_nodes,
    first_seen.seen_at,
    seconds_between(first_seen.first_at, first_seen.seen_at) as lag_s,
    case when first_seen.n_nodes > 1 then seconds_between(first_seen.first_at, first_seen.last_at) end as spread_s,
    case
        when first_seen.connected_at >= first_seen.seen_at
            then seconds_between(first_seen.seen_at, first_seen.connected_at)
    end as connect_s
from first_seen
inner join chain_blocks
    on first_seen.block_hash = chain_blocks.block_hash
inner join block_pool
    on first_seen.block_hash = block_pool.block_hash
order by chain_blocks.height, first_seen.block_hash, first_seen.seen_at, first_seen.node
