/*
summary = "Pairs of a transaction and its unconfirmed parent that waited in the same mempool at some block."
method = """
The parents are those that mempool_txs lists at the child's entry, by txid. A pair counts where the stays of both
overlap at one cut or more. Stays without fee or size are left out, since neither package nor cluster could be rated
with them.
"""
kept = {column = "child_no", width = 1000000000}
grain = ["child_no", "parent_no"]
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
        parents,
        first_cut_no,
        last_cut_no
    from mempool_residence
    where first_cut_no <= last_cut_no and fee_sat is not null and vsize_vb > 0
),

parent_links as (
    select
        node,
        stay_no,
        first_cut_no,
        last_cut_no,
        unnest(parents) as parent_txid
    from waiting
    where parents is not null
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
