/*
summary = "Blocks of the active chain that hold a transaction which a block had taken that a node left."
method = "Of blocks at most 2,000 heights from the block that was left (stale_transactions)."
grain = ["block_hash", "txid"]
[ranges]
by = "heights"
needs = "stale_transactions"
[ranges.reads]
stale_transactions = "height >= getvariable('range_from') - 2000 and height < getvariable('range_to') + 2000"
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
[columns]
block_hash = "BLOB  header hash, internal byte order"
txid = "BLOB  transaction id, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
*/
select
    chain_blocks.block_hash,
    stg_transactions.txid,
    chain_blocks.height
from chain_blocks
inner join stg_transactions
    on chain_blocks.height = stg_transactions.height and chain_blocks.block_hash = stg_transactions.block_hash
semi join stale_transactions
    on
        stg_transactions.txid = stale_transactions.txid
        and abs(chain_blocks.height - stale_transactions.height) <= 2000
where chain_blocks.is_active
order by chain_blocks.height, chain_blocks.block_hash, stg_transactions.txid
