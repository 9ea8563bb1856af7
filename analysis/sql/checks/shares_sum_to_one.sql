/*
summary = "Days, or the whole window, on which the shares do not add up to 1."
severity = "fail"
[needs]
pool_share = "no block whose coinbase or label is known"
*/
with

totals as (
    select
        day,
        sum(share_ratio) as share_ratio,
        sum(block_count) as block_count,
        max(total_block_count) as total_block_count
    from pool_share_day
    group by day
    union all
    select
        null as day,
        sum(share_ratio) as share_ratio,
        sum(block_count) as block_count,
        max(total_block_count) as total_block_count
    from pool_share
    having count(*) > 0
)

select *
from totals
where abs(share_ratio - 1) > 1e-9 or block_count != total_block_count
