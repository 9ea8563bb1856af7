/*
summary = "Pairs of a transaction and its unconfirmed parent that waited in the same mempool at some block."
method = """
The parents are those that mempool_txs lists at the child's entry, by txid. A pair counts where the stays of both
overlap at one cut or more, and the parent's did not begin on a later day. Stays without fee or size are left out, since
neither package nor cluster could be rated with them.
"""
grain = ["child_no", "parent_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_entries = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_residence = "stay_no < getvariable('range_to') and last_cut_no >= getvariable('range_from') - 1000000000"
[ranges.clips.mempool_residence]
last_cut_no = "if(last_cut_no >= getvariable('range_to'), 9000000000000000000, last_cut_no)"
[columns]
child_no = "BIGINT  stay_no of the child in mempool_residence"
parent_no = "BIGINT  stay_no of the parent in mempool_residence"
node = "VARCHAR  name of the watched node"
*/
with

waiting as not materialized (
    select
        stay_no,
        node,
        txid,
        first_cut_no,
        last_cut_no
    from mempool_residence
    where first_cut_no <= last_cut_no and fee_sat is not null and vsize_vb > 0
),

-- The join comes before unnest: behind it DuckDB would join all stays of a node with each other.
children as (
    select
        waiting.node,
        waiting.stay_no,
        waiting.first_cut_no,
        waiting.last_cut_no,
        mempool_entries.parents
    from mempool_entries
    inner join waiting
        on mempool_entries.stay_no = waiting.stay_no
    where mempool_entries.parents is not null
),

parent_links as (
    select
        node,
        stay_no,
        first_cut_no,
        last_cut_no,
        unnest(parents) as parent_txid
    from children
)

select distinct
    parent_links.stay_no as child_no,
    waiting.stay_no as parent_no,
    parent_links.node
from parent_links
inner join waiting
    on
        parent_links.node = waiting.node
        and parent_links.parent_txid = waiting.txid
        and parent_links.first_cut_no <= waiting.last_cut_no
        and parent_links.last_cut_no >= waiting.first_cut_no
        and parent_links.stay_no // 1000000000 >= waiting.stay_no // 1000000000
order by child_no, parent_no
