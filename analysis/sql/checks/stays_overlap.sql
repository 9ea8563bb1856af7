/*
summary = "Stays of one transaction in one mempool that overlap: it was counted twice at some block."
severity = "warn"
[needs]
mempool_residence = "no transaction was seen in a mempool"
*/
select *
from overlapping_stays
