/*
summary = "Every empty block of the active chain, and the evidence for why it is empty."
method = """
There are five classes, named for what was measured; the first that matches counts. `mempool_empty`: nothing was waiting
at any node that was in step, so the block says nothing about its pool. `unknown`: the mempool or the time since the
parent is not known. `before_template`: transactions were waiting, but the block came before a node of ours had offered
a filled template on its parent; a pool no faster than our nodes could not fill it. Where no such template was ever
seen, this is said only of blocks within fast_s whose parent's parent had one. `soon`: our node had offered a filled
template, or none was asked for, and the block came within fast_s of its parent. `late`: it came later than that and
still took nothing. Times are on our clock, and an interval else on that of a list of arrivals (block_intervals); they
count from when the parent's body reached us. No class tells why: a job sent out on a header before the parent was
checked, one sent out on a checked parent before transactions were chosen, and one that a miner kept for too long look
alike, and a pool's own network may be slower or faster than ours.
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
evidence = "VARCHAR  mempool_empty, unknown, before_template, soon or late"
told_by = "VARCHAR[]  sources of the block, of its emptiness and of its interval, each once: observed, backfilled, or names of imported sources"
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
        when seconds_between(parent.arrived_at, filled.ready_at) > block.interval_s then 'before_template'
        when block.interval_s > getvariable('fast_s') then 'late'
        when filled.ready_at is null and filled_before.ready_at is not null then 'before_template'
        else 'soon'
    end as evidence,
    sources_of([block.told_by, block.emptiness_told_by, nullif(block.clock, 'own')]) as told_by
from block_intervals as block
inner join chain_blocks
    on block.block_hash = chain_blocks.block_hash
left join chain_blocks as parent
    on chain_blocks.prev_hash = parent.block_hash
left join filled
    on chain_blocks.prev_hash = filled.prev_hash
left join filled as filled_before
    on parent.prev_hash = filled_before.prev_hash
where block.is_active and block.is_empty
order by block.height, block.block_hash
