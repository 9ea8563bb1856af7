/*
summary = "Package feerate of every transaction that waits beside relatives, over time."
method = """
At a cut, the ancestors of a transaction are those of mempool_links, followed from parent to parent, that also wait
there. The mining score of a transaction is the lower of its own feerate and the feerate of it together with all its
ancestors. Its package feerate is the highest score among it and its waiting descendants. Bitcoin Core sorts by the
score when it fills a block (CompareTxMemPoolEntryByAncestorFee, src/txmempool.h, before cluster mempool); descendants
count because a parent is taken for the sake of its child (CPFP). A score changes only at a cut at which a relative
enters or leaves, so the result is kept as runs of cuts. Each UTC day is computed by itself: a run ends with the day, and
a transaction has runs on the days on which a relative waits beside it. On other days its package feerate is its own.
Pairs of an ancestor and a descendant are found once a day, by recursion over the links. While both wait, everything
between them waits too, since a child cannot outlast its unconfirmed parent. Stays without fee or size are left out.
"""
cost = """
A recursion finds all ancestors, and every pair of relatives counts at every cut at which one of them enters or leaves:
from links to runs there are eight joins and sorts.
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
package_feerate_sat_vb = "DOUBLE  sat/vB, package feerate during the run"
*/
with recursive

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
        day_no,
        child_no as stay_no
    from linked
    union
    select
        day_no,
        parent_no as stay_no
    from linked
),

-- One number stands for a day and a stay. With both as keys, all rows of a day may be joined with each other.
waiting as materialized (
    select
        related.day_no,
        related.stay_no,
        row_number() over (order by related.day_no, related.stay_no) as member_no,
        stay.fee_sat,
        stay.vsize_vb,
        greatest(stay.first_cut_no, day_cuts.first_cut_no) as first_cut_no,
        least(stay.last_cut_no, day_cuts.last_cut_no) as last_cut_no
    from related
    inner join mempool_residence as stay
        on related.stay_no = stay.stay_no
    inner join day_cuts
        on stay.node = day_cuts.node and related.day_no = day_cuts.day_no
),

children as materialized (
    select
        waiting.day_no,
        waiting.member_no as child_no,
        linked.parent_no as parent_stay_no
    from linked
    inner join waiting
        on linked.child_no = waiting.stay_no and linked.day_no = waiting.day_no
),

links as materialized (
    select
        children.child_no,
        waiting.member_no as parent_no
    from children
    inner join waiting
        on children.parent_stay_no = waiting.stay_no and children.day_no = waiting.day_no
),

pairs (descendant_no, ancestor_no) as (
    select
        child_no,
        parent_no
    from links
    union
    select
        pairs.descendant_no,
        links.parent_no
    from pairs
    inner join links
        on pairs.ancestor_no = links.child_no
),

family as (
    select * from pairs
    union all
    select
        member_no as descendant_no,
        member_no as ancestor_no
    from waiting
),

-- Materialised: else ancestors are joined with descendants by time before they are by family.
ancestors as materialized (
    select
        family.descendant_no,
        family.ancestor_no,
        waiting.fee_sat,
        waiting.vsize_vb,
        waiting.first_cut_no,
        waiting.last_cut_no
    from family
    inner join waiting
        on family.ancestor_no = waiting.member_no
),

together as (
    select
        ancestors.descendant_no,
        ancestors.ancestor_no,
        ancestors.fee_sat,
        ancestors.vsize_vb,
        greatest(ancestors.first_cut_no, descendant.first_cut_no) as first_cut_no,
        least(ancestors.last_cut_no, descendant.last_cut_no) as last_cut_no
    from ancestors
    inner join waiting as descendant
        on
            ancestors.descendant_no = descendant.member_no
            and ancestors.first_cut_no <= descendant.last_cut_no
            and ancestors.last_cut_no >= descendant.first_cut_no
),

changes as (
    select
        descendant_no,
        first_cut_no as cut_no,
        fee_sat,
        vsize_vb
    from together
    union all
    select
        descendant_no,
        last_cut_no + 1 as cut_no,
        -fee_sat as fee_sat,
        -vsize_vb as vsize_vb
    from together
),

changes_by_cut as (
    select
        descendant_no,
        cut_no,
        sum(fee_sat) as fee_sat,
        sum(vsize_vb) as vsize_vb
    from changes
    group by descendant_no, cut_no
),

ancestor_sums as (
    select
        descendant_no,
        cut_no as first_cut_no,
        lead(cut_no) over in_order - 1 as last_cut_no,
        sum(fee_sat) over in_order as fee_sat,
        sum(vsize_vb) over in_order as vsize_vb
    from changes_by_cut
    window in_order as (partition by descendant_no order by cut_no)
),

scores as (
    select
        ancestor_sums.descendant_no,
        ancestor_sums.first_cut_no,
        ancestor_sums.last_cut_no,
        least(
            waiting.fee_sat / waiting.vsize_vb,
            cast(ancestor_sums.fee_sat as bigint) / cast(ancestor_sums.vsize_vb as bigint)
        ) as score_sat_vb
    from ancestor_sums
    inner join waiting
        on ancestor_sums.descendant_no = waiting.member_no
    where ancestor_sums.vsize_vb > 0
),

offers as (
    select
        together.ancestor_no as member_no,
        scores.score_sat_vb,
        greatest(together.first_cut_no, scores.first_cut_no) as first_cut_no,
        least(together.last_cut_no, scores.last_cut_no) as last_cut_no
    from together
    inner join scores
        on
            together.descendant_no = scores.descendant_no
            and together.first_cut_no <= scores.last_cut_no
            and together.last_cut_no >= scores.first_cut_no
),

bounds as (
    select
        member_no,
        first_cut_no as cut_no
    from offers
    union
    select
        member_no,
        last_cut_no + 1 as cut_no
    from offers
),

runs as (
    select
        member_no,
        cut_no as first_cut_no,
        lead(cut_no) over (partition by member_no order by cut_no) - 1 as last_cut_no
    from bounds
)

select
    waiting.stay_no,
    runs.first_cut_no,
    runs.last_cut_no,
    max(offers.score_sat_vb) as package_feerate_sat_vb
from runs
inner join offers
    on
        runs.member_no = offers.member_no
        and runs.first_cut_no >= offers.first_cut_no
        and runs.last_cut_no <= offers.last_cut_no
inner join waiting
    on runs.member_no = waiting.member_no
group by waiting.stay_no, runs.first_cut_no, runs.last_cut_no
order by runs.first_cut_no // 1000000000, waiting.stay_no, runs.first_cut_no
