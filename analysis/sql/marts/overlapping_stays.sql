/*
summary = "Stays at whose first block an earlier stay of the same transaction still waited in the same mempool."
method = """
Such a transaction is counted twice at some block, so mempool_residence should have none. The check stays_overlap tells
how many there are. Any earlier stay counts, not the one before alone.
"""
grain = ["stay_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_entries = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_residence = """stay_no < getvariable('range_to')
and (stay_no >= getvariable('range_from') or last_cut_no >= getvariable('range_from') - 1000000000)"""
[ranges.clips.mempool_residence]
last_cut_no = "if(last_cut_no >= getvariable('range_to') + 1000000000, 9000000000000000000, last_cut_no)"
[columns]
stay_no = "BIGINT  number of the later stay in mempool_residence"
node = "VARCHAR  name of the watched node"
txid = "BLOB  transaction id, internal byte order"
first_cut_no = "BIGINT  first cut at which the later stay waited"
*/
with

again as (
    select
        node,
        txid
    from mempool_residence
    where first_cut_no <= last_cut_no
    group by node, txid
    having count(*) > 1
),

-- Few transactions stay twice; only these are sorted.
stays as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        stay.first_cut_no,
        max(stay.last_cut_no) over (
            partition by stay.node, stay.txid order by stay.stay_no
            rows between unbounded preceding and 1 preceding
        ) as earlier_cut_no
    from mempool_residence as stay
    semi join again
        on stay.node = again.node and stay.txid = again.txid
    where stay.first_cut_no <= stay.last_cut_no
)

select
    stays.stay_no,
    stays.node,
    stays.txid,
    stays.first_cut_no
from stays
semi join mempool_entries
    on stays.stay_no = mempool_entries.stay_no
where stays.earlier_cut_no >= stays.first_cut_no
order by stays.stay_no
