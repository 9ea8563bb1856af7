/*
summary = "How many transactions of each block the dataset holds."
method = "Rows of transactions of known blocks, by block. The check transactions_match_blocks compares them with n_tx of the block."
grain = ["block_hash"]
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
n_recorded = "BIGINT  transactions of the block in the dataset, the coinbase included"
*/
select
    block_hash,
    height,
    count(*) as n_recorded
from stg_transactions
where block_hash in (select chain_blocks.block_hash from chain_blocks)
group by block_hash, height
order by height, block_hash
