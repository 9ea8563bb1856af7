/*
summary = "Blocks whose rows in transactions are not as many as the block says."
severity = "fail"
[needs]
stg_blocks = "no block of our own, and others promise no transactions"
*/
with

-- recorded_transactions has the blocks of chain_blocks, which a block that fails its own checks is not in.
counts as (
    select
        block_hash,
        n_recorded
    from recorded_transactions
    union all
    select
        block_hash,
        count(*) as n_recorded
    from stg_transactions
    where
        block_hash in (
            select stg_blocks.block_hash
            from stg_blocks
            anti join chain_blocks on stg_blocks.block_hash = chain_blocks.block_hash
        )
    group by block_hash
)

select
    stg_blocks.block_hash,
    stg_blocks.n_tx,
    counts.n_recorded
from stg_blocks
left join counts
    on stg_blocks.block_hash = counts.block_hash
where counts.n_recorded is distinct from stg_blocks.n_tx
