/*
summary = "Stays of one transaction in one mempool that overlap: it was counted twice at some block."
severity = "warn"
[needs]
mempool_residence = "no transaction was seen in a mempool"
*/
with

stays as (
    select
        node,
        txid,
        first_cut_no,
        lag(last_cut_no) over (partition by node, txid order by stay_no) as previous_cut_no
    from mempool_residence
    where first_cut_no <= last_cut_no
)

select *
from stays
where previous_cut_no >= first_cut_no
