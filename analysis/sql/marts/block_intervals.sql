/*
summary = "Time from each block's parent to the block, on our clock and by header times."
method = """
interval_s is the arrival of the block minus the arrival of its parent, both by one clock. Our own clock comes first:
an arrival is the first `seen` that a node pushed to us. Where our clock lacks either block, the first source, by name,
whose imported arrivals have both is used, and clock names it. Stamps of a list that were made after a pause say nothing
and are left out (is_catch_up of arrival_stamps); our collector marks its own. header_interval_s is the difference of
the header times. Miners choose header times, so it may be negative, and it never replaces interval_s.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
parent_pool = "VARCHAR  pool of the parent; null when the dataset lacks it"
is_active = "BOOLEAN  on the active chain; false: stale"
is_empty = "BOOLEAN  has a coinbase and nothing else"
header_time = "TIMESTAMP WITH TIME ZONE  time that the miner wrote into the header"
arrived_at = "TIMESTAMP WITH TIME ZONE  time on our clock when a node first pushed the block to us; null when we only fetched it"
told_arrived_at = "TIMESTAMP WITH TIME ZONE  arrival on the clock of told_by, where that is a list of arrivals; null for any other source"
interval_s = "DOUBLE  s since the parent's arrival; null where no clock has both"
clock = "VARCHAR  whose clock gives interval_s: own, or the name of an imported source; null without an interval"
header_interval_s = "DOUBLE  s since the parent's header time; null when the dataset lacks the parent"
n_mempool = "BIGINT  transactions waiting when the block arrived, at the node with most; null where not measured"
told_by = "VARCHAR  source of the block: observed, backfilled, or the name of an imported source"
emptiness_told_by = "VARCHAR  source of is_empty: observed, backfilled, or the name of an imported source; null where is_empty is"
*/
with

waiting as (
    select
        block_hash,
        max(n_mempool) as n_mempool
    from block_mempool
    group by block_hash
),

told_stamps as (
    select
        clock,
        block_hash,
        arrived_at
    from arrival_stamps
    where clock != 'own' and not is_catch_up
),

-- Worked out before the next step: else the planner may join on the source alone, every arrival with every other.
parent_arrivals as materialized (
    select
        block.block_hash,
        told_stamps.clock,
        told_stamps.arrived_at
    from chain_blocks as block
    inner join told_stamps
        on block.prev_hash = told_stamps.block_hash
),

told_intervals as (
    select
        told_stamps.block_hash,
        arg_min(seconds_between(parent_arrivals.arrived_at, told_stamps.arrived_at), told_stamps.clock) as interval_s,
        min(told_stamps.clock) as source
    from told_stamps
    inner join parent_arrivals
        on told_stamps.block_hash = parent_arrivals.block_hash and told_stamps.clock = parent_arrivals.clock
    group by told_stamps.block_hash
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
    told_arrival.arrived_at as told_arrived_at,
    coalesce(seconds_between(parent.arrived_at, block.arrived_at), told_intervals.interval_s) as interval_s,
    case
        when seconds_between(parent.arrived_at, block.arrived_at) is not null then 'own'
        else told_intervals.source
    end as clock,
    seconds_between(parent.header_time, block.header_time) as header_interval_s,
    waiting.n_mempool,
    block.told_by,
    case when block.is_empty is not null then block.sizes_told_by end as emptiness_told_by
from chain_blocks as block
inner join block_pool
    on block.block_hash = block_pool.block_hash
left join chain_blocks as parent
    on block.prev_hash = parent.block_hash
left join block_pool as parent_block_pool
    on parent.block_hash = parent_block_pool.block_hash
left join waiting
    on block.block_hash = waiting.block_hash
left join told_intervals
    on block.block_hash = told_intervals.block_hash
left join stg_external_arrivals as told_arrival
    on block.block_hash = told_arrival.block_hash and block.told_by = told_arrival.source
order by block.height, block.block_hash
