/*
summary = "Heights inside the window of which the dataset has no block."
severity = "warn"
*/
with

heights as (
    select
        height,
        lead(height) over (order by height) as next_height
    from chain_blocks
    group by height
)

select *
from heights
where next_height > height + 1
