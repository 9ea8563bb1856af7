/*
summary = "Heights between our own first and last block of which no source has a block."
severity = "warn"
[needs]
stg_blocks = "no block of our own, and lists of others may have holes"
*/
with

heights as (
    select
        height,
        lead(height) over (order by height) as next_height
    from chain_blocks
    group by height
),

own as (
    select
        min(height) as first_height,
        max(height) as last_height
    from stg_blocks
)

select
    heights.height,
    heights.next_height
from heights
inner join own
    on heights.height >= own.first_height and heights.height < own.last_height
where heights.next_height > heights.height + 1
