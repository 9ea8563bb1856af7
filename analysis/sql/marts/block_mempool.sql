/*
summary = "How many transactions waited in a node's mempool when a block reached it."
method = """
Stays of mempool_residence that were waiting at the block's cut (cut_turnover), including the block's own transactions. Only blocks
at which the mempool is known have a row (mempool_cuts.is_measured). Where several nodes have a row, the node that
connected the block first shows best what the pool could know, because more transactions have reached later nodes.
"""
grain = ["block_hash", "node"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  the block's cut"
node_no = "BIGINT  1, 2, ... in the order in which nodes with a row connected the block"
n_mempool = "BIGINT  transactions waiting"
n_unrated = "BIGINT  those of them whose fee or size was never learnt"
n_own = "BIGINT  those of them that the block took"
*/
with

turnover as (
    select
        node,
        cut_no,
        sum(n_begun) as n_begun,
        sum(n_begun_unrated) as n_begun_unrated,
        sum(n_ended) as n_ended,
        sum(n_ended_unrated) as n_ended_unrated,
        cast(sum(n_own) as bigint) as n_own
    from cut_turnover
    group by node, cut_no
),

totals as (
    select
        mempool_cuts.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.connected_at,
        mempool_cuts.is_measured,
        coalesce(turnover.n_own, 0) as n_own,
        -- What ends with a cut still waits at it.
        sum(coalesce(turnover.n_begun, 0) - coalesce(turnover.n_ended, 0)) over in_order
        + coalesce(turnover.n_ended, 0) as n_mempool,
        sum(coalesce(turnover.n_begun_unrated, 0) - coalesce(turnover.n_ended_unrated, 0)) over in_order
        + coalesce(turnover.n_ended_unrated, 0) as n_unrated
    from mempool_cuts
    left join turnover
        on mempool_cuts.node = turnover.node and mempool_cuts.cut_no = turnover.cut_no
    window in_order as (partition by mempool_cuts.node order by mempool_cuts.cut_no)
)

select
    totals.block_hash,
    totals.node,
    totals.cut_no,
    row_number() over (partition by totals.block_hash order by totals.connected_at, totals.node) as node_no,
    cast(totals.n_mempool as bigint) as n_mempool,
    cast(totals.n_unrated as bigint) as n_unrated,
    totals.n_own
from totals
where totals.is_measured
order by totals.node, totals.cut_no
