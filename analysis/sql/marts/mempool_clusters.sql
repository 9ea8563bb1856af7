/*
summary = "Chunk feerate of every waiting transaction that has relatives in the mempool, over time."
method = """
Transactions that wait at a cut and are linked by mempool_links form a cluster. Its chunks are the sets in which it is
best mined: the first chunk has the highest feerate of all sets that hold all their ancestors, the next chunk the
highest of what is left, and so on. Every transaction has the feerate of its chunk. Bitcoin Core sorts by this since
31.0 (cluster mempool). Ours is the exact optimum (analysis/stats/chunk_feerates.py). Core's linearisation is the
optimum or close to it, since its search ends after a number of steps. Core also counts prioritisetransaction, weight
(we have the vsize that the node reports) and sigops, and holds no cluster above 64 transactions or 101 kvB; clusters
of an older node may be larger and are rated too. The chunk feerates of a cluster change only when one of its
transactions enters or leaves, so the result is kept as runs of cuts, like mempool_packages.
"""
cost = """
The best order of a cluster is searched again at every cut at which the cluster changes, with whole numbers in Python:
SQL has no minimum cut.
"""
grain = ["stay_no", "first_cut_no"]
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
first_cut_no = "BIGINT  first cut of the run"
last_cut_no = "BIGINT  last cut of the run"
cluster_feerate_sat_vb = "DOUBLE  sat/vB, feerate of its chunk during the run"
*/
with

related as (
    select
        child_no as stay_no,
        node
    from mempool_links
    union
    select
        parent_no as stay_no,
        node
    from mempool_links
),

members as (
    select
        related.stay_no,
        related.node,
        stay.first_cut_no,
        stay.last_cut_no,
        stay.fee_sat,
        stay.vsize_vb,
        row_number() over (partition by related.node order by related.stay_no) - 1 as member
    from related
    inner join mempool_residence as stay
        on related.stay_no = stay.stay_no
),

member_lists as (
    select
        node,
        list(first_cut_no order by member) as first_cuts,
        list(last_cut_no order by member) as last_cuts,
        list(fee_sat order by member) as fees,
        list(vsize_vb order by member) as sizes
    from members
    group by node
),

link_lists as (
    select
        mempool_links.node,
        list(child.member order by child.member, parent.member) as children,
        list(parent.member order by child.member, parent.member) as parents
    from mempool_links
    inner join members as child
        on mempool_links.child_no = child.stay_no
    inner join members as parent
        on mempool_links.parent_no = parent.stay_no
    group by mempool_links.node
),

runs as (
    select
        member_lists.node,
        unnest(
            chunk_runs(
                member_lists.first_cuts, member_lists.last_cuts, member_lists.fees, member_lists.sizes,
                link_lists.children, link_lists.parents
            )
        ) as run
    from member_lists
    inner join link_lists
        on member_lists.node = link_lists.node
)

select
    members.stay_no,
    runs.run.first_cut_no,
    runs.run.last_cut_no,
    runs.run.feerate as cluster_feerate_sat_vb
from runs
inner join members
    on runs.node = members.node and runs.run.member = members.member
