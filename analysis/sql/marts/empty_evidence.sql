/*
summary = "Every empty block of the active chain, and the evidence for why it is empty."
method = """
There are four classes, and the first that matches counts. `mempool_empty`: nothing was waiting at any node that was in
step, so the block says nothing about its pool. `unknown`: the mempool or the time since the parent is not known.
`validationless`: the block came within fast_s of its parent while transactions were waiting, as a block does that is
mined on a header before the parent's transactions are known. `idle`: it came later than that and still took nothing.
Times are arrivals on our clock. template_ready_s says when our own node could offer a filled template on the same
parent; a pool no faster than our node could not fill a block that came before. A class is evidence, not proof: a
pool's own network may be slower or faster than ours.
"""
grain = ["block_hash"]
[parameters]
fast_s = {value = 30, doc = "s after the parent; about how often pools give out new work"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
parent_pool = "VARCHAR  pool of the parent; null when the dataset lacks it"
is_same_pool = "BOOLEAN  the parent is of the same pool; null when either is unknown"
interval_s = "DOUBLE  s since the parent's arrival; null where either arrival is unknown"
header_interval_s = "DOUBLE  s since the parent's header time"
n_mempool = "BIGINT  transactions waiting when the block arrived, at the node with most; null where not measured"
template_ready_s = "DOUBLE  s after the parent's arrival until a node of ours had a filled template on it"
evidence = "VARCHAR  mempool_empty, unknown, validationless or idle"
*/
with

filled as (
    select
        prev_hash,
        min(taken_at) as ready_at
    from stg_templates
    where n_tx > 0
    group by prev_hash
)

select
    block.block_hash,
    block.height,
    block.pool,
    block.parent_pool,
    case
        when block.pool != 'unknown' and block.parent_pool != 'unknown' then block.pool = block.parent_pool
    end as is_same_pool,
    block.interval_s,
    block.header_interval_s,
    block.n_mempool,
    seconds_between(parent.arrived_at, filled.ready_at) as template_ready_s,
    case
        when block.n_mempool = 0 then 'mempool_empty'
        when block.n_mempool is null or block.interval_s is null then 'unknown'
        when block.interval_s <= getvariable('fast_s') then 'validationless'
        else 'idle'
    end as evidence
from block_intervals as block
inner join chain_blocks
    on block.block_hash = chain_blocks.block_hash
left join chain_blocks as parent
    on chain_blocks.prev_hash = parent.block_hash
left join filled
    on chain_blocks.prev_hash = filled.prev_hash
where block.is_active and block.is_empty
order by block.height, block.block_hash
