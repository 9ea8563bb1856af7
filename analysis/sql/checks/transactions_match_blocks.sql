/*
summary = "Blocks whose rows in transactions are not as many as the block says."
severity = "fail"
[needs]
stg_blocks = "no block of our own, and others promise no transactions"
*/
with

-- A block that fails its own checks may be the only one of its height, which recorded_transactions then lacks.
unrecorded as (
    select stg_blocks.block_hash
    from stg_blocks
    anti join recorded_transactions
        on stg_blocks.block_hash = recorded_transactions.block_hash
),

counts as (
    select
        block_hash,
        sum(n_recorded) as n_recorded
    from recorded_transactions
    group by block_hash
    union all
    select
        block_hash,
        count(*) as n_recorded
    from stg_transactions
    where block_hash in (select unrecorded.block_hash from unrecorded)
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
