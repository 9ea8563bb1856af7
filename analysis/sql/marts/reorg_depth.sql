/*
summary = "How deep reorganisations went, and how often each depth occurs."
method = """
A reorganisation is a run of D in a node's `sequence` stream (block_messages) up to a C of a block other than the lowest
block that was left; its depth is the number of D. What two nodes report is one reorganisation if they leave the same
lowest block, each for the first time or each for the second. A block that was left may win in the end, when the network
comes back to it (n_undone). Where the stream was interrupted, the blocks of a lost branch that a node had connected
(followed_depth of stale_branches) show a reorganisation without any D, unless the D of another reorganisation took its
lowest block; a branch that was left and taken up again within a gap is not known. n_branches counts all branches that
lost, by the number of heights. per_1000_blocks relates reorganisations to the blocks of the active chain that were
pushed to us; its interval is Garwood's for a Poisson count (analysis/stats/count_tests.py).
"""
grain = ["depth"]
[columns]
depth = "BIGINT  depth in blocks"
n_branches = "BIGINT  branches of this many heights that lost"
n_reorgs = "BIGINT  reorganisations in which a node of ours left this many blocks"
n_undone = "BIGINT  those of them whose lowest block is on the active chain again"
per_1000_blocks = "DOUBLE  reorganisations per 1,000 blocks; null when none was pushed"
per_1000_low = "DOUBLE  lower bound of the 95 % interval"
per_1000_high = "DOUBLE  upper bound of the 95 % interval"
*/
with

observed as (
    select nullif(count(arrived_at), 0) / 1000 as n_thousands
    from chain_blocks
    where is_active
),

steps as (
    select
        node,
        session,
        block_hash,
        event,
        stream_position(received_at, sequence) as position
    from block_messages
),

numbered as (
    select
        *,
        count(case when event = 'C' then 1 end) over (partition by node, session order by position) as run_no
    from steps
),

-- From one C to the next: the blocks that the node left between them.
runs as (
    select
        node,
        session,
        run_no,
        min(position) as position,
        count(*) filter (where event = 'D') as depth,
        arg_max(block_hash, position) filter (where event = 'D') as left_hash,
        arg_min(block_hash, position) filter (where event = 'C') as connected_hash
    from numbered
    group by node, session, run_no
),

followed_runs as (
    select
        *,
        lead(connected_hash) over (partition by node, session order by run_no) as next_hash
    from runs
),

told as (
    select
        node,
        session,
        run_no,
        left_hash,
        depth,
        row_number() over (partition by node, left_hash order by position) as time_no
    from followed_runs
    where next_hash != left_hash
),

left_blocks as (
    select distinct numbered.block_hash
    from numbered
    inner join told
        on numbered.node = told.node and numbered.session = told.session and numbered.run_no = told.run_no
    where numbered.event = 'D'
),

reorgs as (
    select
        left_hash,
        max(depth) as depth
    from told
    group by left_hash, time_no
    union all
    select
        stale_branches.first_hash as left_hash,
        stale_branches.followed_depth as depth
    from stale_branches
    anti join left_blocks
        on stale_branches.first_hash = left_blocks.block_hash
    where not stale_branches.is_open and stale_branches.followed_depth > 0
),

depths as (
    select
        reorgs.depth,
        0 as n_branches,
        1 as n_reorgs,
        cast(coalesce(chain_blocks.is_active, false) as integer) as n_undone
    from reorgs
    left join chain_blocks
        on reorgs.left_hash = chain_blocks.block_hash
    union all
    select
        depth,
        1 as n_branches,
        0 as n_reorgs,
        0 as n_undone
    from stale_branches
    where not is_open
),

counts as (
    select
        depth,
        cast(sum(n_branches) as bigint) as n_branches,
        cast(sum(n_reorgs) as bigint) as n_reorgs,
        cast(sum(n_undone) as bigint) as n_undone
    from depths
    group by depth
),

judged as (
    select
        *,
        poisson_interval(n_reorgs) as reorg_interval
    from counts
)

select
    judged.depth,
    judged.n_branches,
    judged.n_reorgs,
    judged.n_undone,
    judged.n_reorgs / observed.n_thousands as per_1000_blocks,
    judged.reorg_interval.low / observed.n_thousands as per_1000_low,
    judged.reorg_interval.high / observed.n_thousands as per_1000_high
from judged
cross join observed
order by judged.depth
