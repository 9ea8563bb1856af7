/*
summary = "Blocks whose rows in transactions are not as many as the block says."
severity = "fail"
[needs]
stg_blocks = "no block of our own, and others promise no transactions"
*/
with

counts as (
    select
        block_hash,
        count(*) as n_rows
    from stg_transactions
    group by block_hash
)

select
    stg_blocks.block_hash,
    stg_blocks.n_tx,
    counts.n_rows
from stg_blocks
left join counts
    on stg_blocks.block_hash = counts.block_hash
where counts.n_rows is distinct from stg_blocks.n_tx
