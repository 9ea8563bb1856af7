/*
summary = "How deep reorganisations went, and how often each depth occurs."
method = """
A node makes a reorganisation when it connects a block that does not descend from the one it had connected before; its
depth is the number of blocks that it left, back to the last one in common. So a lost message costs nothing as long as a
C before and one behind it are known. The C are those of the `sequence` stream (block_messages), and what a node had
connected while the stream was interrupted (mempool_cuts), unless a block at that height or above stands before it. A
node that connects again what it just left has made none. What two nodes report is one reorganisation if they leave the
same lowest block, each for the first time or each for the second. A block that was left may win in the end, when the
network comes back to it (n_undone). A lost branch whose blocks a node had connected (followed_depth of stale_branches)
counts too, where none of this tells of its lowest block; a branch that was left and taken up again within a gap is not
known. n_branches counts all branches that lost, by the number of heights. per_1000_blocks relates reorganisations to
the blocks of the active chain that were pushed to us; its interval is Garwood's for a Poisson count
(analysis/stats/count_tests.py).
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
with recursive

observed as (
    select nullif(count(arrived_at), 0) / 1000 as n_thousands
    from chain_blocks
    where is_active
),

stale as (
    select
        block_hash,
        prev_hash,
        height
    from chain_blocks
    where not is_active
),

-- Each stale block with the stale blocks that it descends from, itself included.
paths (tip_hash, block_hash, prev_hash, height) as (
    select
        block_hash as tip_hash,
        block_hash,
        prev_hash,
        height
    from stale
    union all
    select
        paths.tip_hash,
        stale.block_hash,
        stale.prev_hash,
        stale.height
    from paths
    inner join stale
        on paths.prev_hash = stale.block_hash
),

-- The height of the last active block that each block descends from, or that it is.
roots as (
    select
        tip_hash as block_hash,
        min(height) - 1 as root_height
    from paths
    group by tip_hash
    union all
    select
        block_hash,
        height as root_height
    from chain_blocks
    where is_active
),

connected as (
    select
        mempool_cuts.node,
        mempool_cuts.position,
        mempool_cuts.block_hash,
        chain_blocks.height,
        chain_blocks.is_active,
        roots.root_height,
        block_messages.block_hash is not null as is_announced,
        max(case when block_messages.block_hash is not null then chain_blocks.height end) over (
            partition by mempool_cuts.node, mempool_cuts.session order by mempool_cuts.position, chain_blocks.height
            rows between unbounded preceding and 1 preceding
        ) as announced_height
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    inner join roots
        on mempool_cuts.block_hash = roots.block_hash
    left join block_messages
        on
            mempool_cuts.node = block_messages.node
            and mempool_cuts.session = block_messages.session
            and mempool_cuts.block_hash = block_messages.block_hash
            and block_messages.event = 'C'
            and mempool_cuts.position = stream_position(block_messages.received_at, block_messages.sequence)
),

moves as (
    select
        *,
        lag(block_hash) over in_order as from_hash,
        lag(root_height) over in_order as from_root_height
    from connected
    where is_announced or announced_height is null or height > announced_height
    window in_order as (partition by node order by position, height)
),

turns as (
    select moves.*
    from moves
    anti join paths as own
        on moves.from_hash = own.tip_hash and moves.block_hash = own.block_hash
    where not (moves.is_active and moves.height <= moves.from_root_height)
),

left_stale as (
    select
        turns.node,
        turns.position,
        turns.block_hash,
        paths.block_hash as left_hash,
        paths.height
    from turns
    inner join paths
        on turns.from_hash = paths.tip_hash
    anti join paths as kept
        on turns.block_hash = kept.tip_hash and paths.block_hash = kept.block_hash
),

left_active as (
    select
        turns.node,
        turns.position,
        turns.block_hash,
        chain_blocks.block_hash as left_hash,
        chain_blocks.height
    from turns
    inner join chain_blocks
        on turns.root_height < chain_blocks.height and turns.from_root_height >= chain_blocks.height
    where chain_blocks.is_active and not turns.is_active
),

left_blocks as (
    select * from left_stale
    union all
    select * from left_active
),

left_at_once as (
    select
        node,
        position,
        arg_min(left_hash, height) as left_hash,
        count(*) as depth
    from left_blocks
    group by node, position, block_hash
),

told as (
    select
        *,
        row_number() over (partition by node, left_hash order by position) as time_no
    from left_at_once
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
        on stale_branches.first_hash = left_blocks.left_hash
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
