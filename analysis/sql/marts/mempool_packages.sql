/*
summary = "Package feerate of every waiting transaction that has relatives in the mempool, over time."
method = """
At a cut, the ancestors of a transaction are those of mempool_links, followed from parent to parent, that also wait
there. The mining score of a transaction is the lower of its own feerate and the feerate of it together with all its
ancestors. Its package feerate is the highest score among it and its waiting descendants. Bitcoin Core sorts by the
score when it fills a block (CompareTxMemPoolEntryByAncestorFee, src/txmempool.h, before cluster mempool); descendants
count because a parent is taken for the sake of its child (CPFP). A score changes only at a cut at which a relative
enters or leaves, so the result is kept as runs of cuts, and its size does not grow with the number of blocks. Pairs of
an ancestor and a descendant are found once, by recursion over the links. While both wait, everything between them
waits too, since a child cannot outlast its unconfirmed parent. Stays without fee or size are left out.
"""
cost = """
A recursion finds all ancestors, and every pair of relatives counts at every cut at which one of them enters or leaves:
from links to runs there are eight joins and sorts.
"""
grain = ["stay_no", "first_cut_no"]
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
first_cut_no = "BIGINT  first cut of the run"
last_cut_no = "BIGINT  last cut of the run"
package_feerate_sat_vb = "DOUBLE  sat/vB, package feerate during the run"
*/
with recursive

waiting as not materialized (
    select
        stay_no,
        fee_sat,
        vsize_vb,
        first_cut_no,
        last_cut_no
    from mempool_residence
    where first_cut_no <= last_cut_no and fee_sat is not null and vsize_vb > 0
),

pairs (descendant_no, ancestor_no) as (
    select
        child_no,
        parent_no
    from mempool_links
    union
    select
        pairs.descendant_no,
        mempool_links.parent_no
    from pairs
    inner join mempool_links
        on pairs.ancestor_no = mempool_links.child_no
),

related as (
    select descendant_no as stay_no from pairs
    union
    select ancestor_no as stay_no from pairs
),

family as (
    select * from pairs
    union all
    select
        related.stay_no as descendant_no,
        related.stay_no as ancestor_no
    from related
),

together as (
    select
        family.descendant_no,
        family.ancestor_no,
        ancestor.fee_sat,
        ancestor.vsize_vb,
        greatest(ancestor.first_cut_no, descendant.first_cut_no) as first_cut_no,
        least(ancestor.last_cut_no, descendant.last_cut_no) as last_cut_no
    from family
    inner join waiting as ancestor
        on family.ancestor_no = ancestor.stay_no
    inner join waiting as descendant
        on family.descendant_no = descendant.stay_no
    where ancestor.first_cut_no <= descendant.last_cut_no and descendant.first_cut_no <= ancestor.last_cut_no
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
        on ancestor_sums.descendant_no = waiting.stay_no
    where ancestor_sums.vsize_vb > 0
),

offers as (
    select
        together.ancestor_no as stay_no,
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
        stay_no,
        first_cut_no as cut_no
    from offers
    union
    select
        stay_no,
        last_cut_no + 1 as cut_no
    from offers
),

runs as (
    select
        stay_no,
        cut_no as first_cut_no,
        lead(cut_no) over (partition by stay_no order by cut_no) - 1 as last_cut_no
    from bounds
)

select
    runs.stay_no,
    runs.first_cut_no,
    runs.last_cut_no,
    max(offers.score_sat_vb) as package_feerate_sat_vb
from runs
inner join offers
    on
        runs.stay_no = offers.stay_no
        and runs.first_cut_no >= offers.first_cut_no
        and runs.last_cut_no <= offers.last_cut_no
group by runs.stay_no, runs.first_cut_no, runs.last_cut_no
