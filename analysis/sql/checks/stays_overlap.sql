/*
summary = "Stays of one transaction in one mempool that overlap: it was counted twice at some block."
severity = "warn"
[needs]
mempool_residence = "no transaction was seen in a mempool"
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
        stay.node,
        stay.txid,
        stay.first_cut_no,
        lag(stay.last_cut_no) over (partition by stay.node, stay.txid order by stay.stay_no) as previous_cut_no
    from mempool_residence as stay
    semi join again
        on stay.node = again.node and stay.txid = again.txid
    where stay.first_cut_no <= stay.last_cut_no
)

select *
from stays
where previous_cut_no >= first_cut_no
