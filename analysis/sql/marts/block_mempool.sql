/*
summary = "How many transactions waited in a node's mempool when a block reached it."
method = """
Stays of mempool_residence that were waiting at the block's cut, including the block's own transactions. Only blocks
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

begun as (
    select
        node,
        first_cut_no as cut_no,
        count(*) as n_mempool,
        count(*) filter (where fee_sat is null or vsize_vb is null) as n_unrated
    from mempool_residence
    where first_cut_no <= last_cut_no
    group by node, first_cut_no
),

ended as (
    select
        node,
        last_cut_no as cut_no,
        count(*) as n_mempool,
        count(*) filter (where fee_sat is null or vsize_vb is null) as n_unrated
    from mempool_residence
    where first_cut_no <= last_cut_no
    group by node, last_cut_no
),

own as (
    select
        node,
        mined_cut_no as cut_no,
        count(*) as n_own
    from mempool_residence
    where first_cut_no <= last_cut_no and mined_cut_no is not null
    group by node, mined_cut_no
),

totals as (
    select
        mempool_cuts.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.connected_at,
        mempool_cuts.is_measured,
        sum(coalesce(begun.n_mempool, 0) - coalesce(ended.n_mempool, 0)) over in_order
        + coalesce(ended.n_mempool, 0) as n_mempool,
        sum(coalesce(begun.n_unrated, 0) - coalesce(ended.n_unrated, 0)) over in_order
        + coalesce(ended.n_unrated, 0) as n_unrated
    from mempool_cuts
    left join begun
        on mempool_cuts.node = begun.node and mempool_cuts.cut_no = begun.cut_no
    -- What ends with a cut still waits at it.
    left join ended
        on mempool_cuts.node = ended.node and mempool_cuts.cut_no = ended.cut_no
    window in_order as (partition by mempool_cuts.node order by mempool_cuts.cut_no)
)

select
    totals.block_hash,
    totals.node,
    totals.cut_no,
    row_number() over (partition by totals.block_hash order by totals.connected_at, totals.node) as node_no,
    cast(totals.n_mempool as bigint) as n_mempool,
    cast(totals.n_unrated as bigint) as n_unrated,
    coalesce(own.n_own, 0) as n_own
from totals
left join own
    on totals.node = own.node and totals.cut_no = own.cut_no
where totals.is_measured
order by totals.node, totals.cut_no
