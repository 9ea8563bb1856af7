/*
summary = "How many transactions of each block the dataset holds."
method = "Rows of transactions at heights of our own blocks. The check transactions_match_blocks compares them with n_tx."
grain = ["block_hash", "height"]
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height in the rows of the transactions; 0 is the genesis block"
n_recorded = "BIGINT  transactions of the block at that height, the coinbase included"
*/
select
    block_hash,
    height,
    count(*) as n_recorded
from stg_transactions
where
    height in (
        select chain_blocks.height
        from chain_blocks
        semi join stg_blocks
            on chain_blocks.block_hash = stg_blocks.block_hash
    )
group by block_hash, height
order by height, block_hash
