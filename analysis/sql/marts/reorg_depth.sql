/*
summary = "How deep reorganisations went, and how often each depth comes about."
method = """
Branches of stale_branches that are not open: by the heights they span, and by the blocks that a node of ours had
followed, which are its reorganisations. per_1000_blocks relates the latter to the blocks of the active chain that were pushed to us; its
interval is Garwood's for a Poisson count (analysis/rates.py).
"""
grain = ["depth"]
[columns]
depth = "BIGINT  blocks"
n_branches = "BIGINT  branches of so many heights that lost"
n_reorgs = "BIGINT  reorganisations in which a node of ours left so many blocks"
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

depths as (
    select
        depth,
        1 as n_branches,
        0 as n_reorgs
    from stale_branches
    where not is_open
    union all
    select
        followed_depth as depth,
        0 as n_branches,
        1 as n_reorgs
    from stale_branches
    where not is_open and followed_depth > 0
),

counts as (
    select
        depth,
        cast(sum(n_branches) as bigint) as n_branches,
        cast(sum(n_reorgs) as bigint) as n_reorgs
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
    judged.n_reorgs / observed.n_thousands as per_1000_blocks,
    judged.reorg_interval.low / observed.n_thousands as per_1000_low,
    judged.reorg_interval.high / observed.n_thousands as per_1000_high
from judged
cross join observed
order by judged.depth
