/*
summary = "Chunk feerate of every transaction that waits beside relatives, over time."
method = """
Transactions that wait at a cut and are linked by mempool_links form a cluster. Its chunks are the sets in which it is
best mined: the first chunk has the highest feerate of all sets that hold all their ancestors, the next chunk the
highest of what is left, and so on. Every transaction has the feerate of its chunk. Bitcoin Core sorts by this since
31.0 (cluster mempool). Ours is the exact optimum (analysis/stats/chunk_feerates.py). Core's linearisation is the
optimum or close to it, since its search ends after a number of steps. Core also counts prioritisetransaction, weight
(we have the vsize that the node reports) and sigops, and holds no cluster above 64 transactions or 101 kvB; clusters
of an older node may be larger and are rated too. The chunk feerates of a cluster change only when one of its
transactions enters or leaves, so the result is kept as runs of cuts. Each UTC day is computed by itself, as in
mempool_packages: a transaction has runs on the days on which a relative waits beside it.
"""
cost = """
The best order of a cluster is searched again at every cut at which the cluster changes, with whole numbers in Python:
SQL has no minimum cut.
"""
grain = ["stay_no", "first_cut_no"]
[ranges]
by = "days"
[ranges.reads]
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_residence = "first_cut_no < getvariable('range_to') and last_cut_no >= getvariable('range_from')"
mempool_links = """
child_no in (select stay_no from mempool_residence) and parent_no in (select stay_no from mempool_residence)
"""
[ranges.clips.mempool_residence]
last_cut_no = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], getvariable('range_to'), last_cut_no)"""
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
first_cut_no = "BIGINT  first cut of the run"
last_cut_no = "BIGINT  last cut of the run"
cluster_feerate_sat_vb = "DOUBLE  sat/vB, feerate of its chunk during the run"
*/
with

day_cuts as (
    select
        node,
        cut_no // 1000000000 as day_no,
        min(cut_no) as first_cut_no,
        max(cut_no) as last_cut_no
    from mempool_cuts
    group by node, cut_no // 1000000000
),

linked as materialized (
    select
        mempool_links.child_no,
        mempool_links.parent_no,
        mempool_links.node,
        unnest(
            range(
                greatest(child.first_cut_no, parent.first_cut_no) // 1000000000,
                least(
                    child.last_cut_no, parent.last_cut_no, (select max(mempool_cuts.cut_no) from mempool_cuts)
                ) // 1000000000 + 1
            )
        ) as day_no
    from mempool_links
    inner join mempool_residence as child
        on mempool_links.child_no = child.stay_no
    inner join mempool_residence as parent
        on mempool_links.parent_no = parent.stay_no
),

related as (
    select
        node,
        day_no,
        child_no as stay_no
    from linked
    union
    select
        node,
        day_no,
        parent_no as stay_no
    from linked
),

members as materialized (
    select
        related.stay_no,
        related.node,
        related.day_no,
        greatest(stay.first_cut_no, day_cuts.first_cut_no) as first_cut_no,
        least(stay.last_cut_no, day_cuts.last_cut_no) as last_cut_no,
        stay.fee_sat,
        stay.vsize_vb,
        row_number() over (partition by related.node, related.day_no order by related.stay_no) - 1 as member
    from related
    inner join mempool_residence as stay
        on related.stay_no = stay.stay_no
    inner join day_cuts
        on related.node = day_cuts.node and related.day_no = day_cuts.day_no
),

member_lists as (
    select
        node,
        day_no,
        list(first_cut_no order by member) as first_cuts,
        list(last_cut_no order by member) as last_cuts,
        list(fee_sat order by member) as fees,
        list(vsize_vb order by member) as sizes
    from members
    group by node, day_no
),

-- Materialised: else all members of a day are joined with each other before their links are looked at.
children as materialized (
    select
        members.node,
        members.day_no,
        members.member,
        linked.parent_no
    from linked
    inner join members
        on linked.child_no = members.stay_no and linked.day_no = members.day_no
),

link_lists as (
    select
        children.node,
        children.day_no,
        list(children.member order by children.member, parent.member) as children,
        list(parent.member order by children.member, parent.member) as parents
    from children
    inner join members as parent
        on children.parent_no = parent.stay_no and children.day_no = parent.day_no
    group by children.node, children.day_no
),

runs as (
    select
        member_lists.node,
        member_lists.day_no,
        unnest(
            chunk_runs(
                member_lists.first_cuts, member_lists.last_cuts, member_lists.fees, member_lists.sizes,
                coalesce(link_lists.children, cast([] as bigint[])), coalesce(link_lists.parents, cast([] as bigint[]))
            )
        ) as run
    from member_lists
    left join link_lists
        on member_lists.node = link_lists.node and member_lists.day_no = link_lists.day_no
)

select
    members.stay_no,
    runs.run.first_cut_no,
    runs.run.last_cut_no,
    runs.run.feerate as cluster_feerate_sat_vb
from runs
inner join members
    on runs.node = members.node and runs.day_no = members.day_no and runs.run.member = members.member
order by runs.run.first_cut_no // 1000000000, members.stay_no, runs.run.first_cut_no
