/*
summary = "Heights with more than one block on the active chain."
severity = "fail"
[needs]
chain_blocks = "no source tells of a block"
*/
select
    height,
    count(*) as n_active
from chain_blocks
where is_active
group by height
having count(*) > 1
