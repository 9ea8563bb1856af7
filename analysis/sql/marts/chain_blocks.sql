/*
summary = "Every valid block: whether it is on the active chain, when it arrived, and which source describes it."
method = """
The active chain is the chain with the most work that the dataset shows, as a node chooses it. Of branches with the
same work it is the longest, and of those the one whose tip reached us first. At a height with one block, which the
next block names as its parent, there is nothing to decide. Other heights are walked downwards from the block above
them along prev_hash, so a whole history costs no more than its forks. Where the dataset lacks the block that the walk
needs, the blocks it has at that height are stale, and the walk begins again one height below. This gives the longest
chain. A branch beside it replaces it where the branch has more work (after a change of difficulty, or with blocks of
least difficulty on a test network). Blocks that failed verification are left out. arrived_at is the first `seen` that
any node pushed to us; all nodes share our clock.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
prev_hash = "BLOB  hash of the parent, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
is_active = "BOOLEAN  on the active chain; false: stale"
is_empty = "BOOLEAN  has a coinbase and nothing else"
header_time = "TIMESTAMP WITH TIME ZONE  time that the miner wrote into the header"
arrived_at = "TIMESTAMP WITH TIME ZONE  time on our clock when a node first pushed the block to us; null when we only fetched it"
n_tx = "INTEGER  transactions, coinbase included"
size_bytes = "BIGINT  serialised size"
weight_wu = "BIGINT  BIP141 weight"
fees_sat = "BIGINT  sum of the fees; null while unknown"
subsidy_sat = "BIGINT  new coins this height allows; null where no source gives it"
told_by = "VARCHAR  source of the block, as in block_facts: observed, backfilled, or the name of an imported source"
sizes_told_by = "VARCHAR  source of n_tx, size_bytes and weight_wu: observed, backfilled, or the name of an imported source; null while all are unknown"
fees_told_by = "VARCHAR  source of the fees: observed, backfilled, or the name of an imported source; null while they are unknown"
*/
with recursive

arrivals as (
    select
        block_hash,
        min(event_at) filter (where kind = 'pushed') as arrived_at,
        min(event_at) as known_at
    from stg_block_arrivals
    where event = 'seen'
    group by block_hash
),

valid_blocks as (
    select
        block_facts.*,
        arrivals.arrived_at,
        arrivals.known_at,
        work_of(block_facts.bits) as work
    from block_facts
    left join arrivals
        on block_facts.block_hash = arrivals.block_hash
    where block_facts.verdict in ('valid', 'not verified')
),

heights as (
    select
        height,
        count(*) as n_blocks,
        min(block_hash) as only_hash,
        min(prev_hash) as only_prev_hash,
        arg_min(block_hash, (known_at is null, known_at, block_hash)) as first_hash
    from valid_blocks
    group by height
),

linked as (
    select
        heights.*,
        above.height is not null as has_above,
        above.n_blocks = 1 as is_above_single,
        above.only_prev_hash as wanted_hash
    from heights
    left join heights as above
        on heights.height + 1 = above.height
),

-- Heights at which there is a choice, or at which the single block is not the parent of the block above.
open_heights as (
    select * from linked
    where n_blocks > 1 or (is_above_single and only_hash != wanted_hash)
),

open_blocks as (
    select
        valid_blocks.block_hash,
        valid_blocks.prev_hash
    from valid_blocks
    inner join open_heights
        on valid_blocks.height = open_heights.height
),

walk (height, chosen_hash) as (
    select
        open_heights.height,
        coalesce(open_heights.wanted_hash, open_heights.first_hash) as chosen_hash
    from open_heights
    left join open_heights as above
        on open_heights.height + 1 = above.height
    where above.height is null
    union all
    select
        open_heights.height,
        coalesce(open_blocks.prev_hash, open_heights.first_hash) as chosen_hash
    from walk
    inner join open_heights
        on walk.height - 1 = open_heights.height
    left join open_blocks
        on walk.chosen_hash = open_blocks.block_hash
),

longest as (
    select
        valid_blocks.block_hash,
        valid_blocks.prev_hash,
        valid_blocks.height,
        valid_blocks.work,
        coalesce(valid_blocks.block_hash = walk.chosen_hash, true) as is_longest
    from valid_blocks
    left join walk
        on valid_blocks.height = walk.height
),

-- The chain above the last hole. Below one, the chain went on from where it was, with work that is not known.
trunk as (
    select
        block_hash,
        height,
        sum(work) over (order by height) as total_work
    from longest
    where is_longest
    qualify height - row_number() over (order by height) = max(height) over () - count(*) over ()
),

branches (block_hash, fork_height, total_work, branch_hashes) as (
    select
        longest.block_hash,
        trunk.height as fork_height,
        trunk.total_work + longest.work as total_work,
        [longest.block_hash] as branch_hashes
    from longest
    inner join trunk
        on longest.prev_hash = trunk.block_hash
    where not longest.is_longest
    union all
    select
        longest.block_hash,
        branches.fork_height,
        branches.total_work + longest.work as total_work,
        list_append(branches.branch_hashes, longest.block_hash) as branch_hashes
    from branches
    inner join longest
        on branches.block_hash = longest.prev_hash
),

overtaking as (
    select
        arg_max(fork_height, total_work) as fork_height,
        arg_max(branch_hashes, total_work) as branch_hashes
    from branches
    where total_work > (select max(trunk.total_work) from trunk)
)

select
    valid_blocks.block_hash,
    valid_blocks.prev_hash,
    valid_blocks.height,
    coalesce(list_contains(overtaking.branch_hashes, valid_blocks.block_hash), longest.is_longest) as is_active,
    valid_blocks.n_tx = 1 as is_empty,
    valid_blocks.header_time,
    valid_blocks.arrived_at,
    valid_blocks.n_tx,
    valid_blocks.size_bytes,
    valid_blocks.weight_wu,
    valid_blocks.fees_sat,
    valid_blocks.subsidy_sat,
    valid_blocks.told_by,
    valid_blocks.sizes_told_by,
    valid_blocks.fees_told_by
from valid_blocks
inner join longest
    on valid_blocks.block_hash = longest.block_hash
left join overtaking
    on valid_blocks.height > overtaking.fork_height
order by valid_blocks.height, valid_blocks.block_hash
