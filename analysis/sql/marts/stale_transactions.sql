/*
summary = "The transactions of blocks that became stale, at each node that had connected them."
method = "The blocks of mempool_cuts that are not on the active chain (chain_blocks), without their coinbases."
grain = ["node", "cut_no", "txid"]
[ranges]
by = "heights"
needs = "mempool_cuts"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = "block_hash in (select block_hash from chain_blocks)"
stg_transactions = """height >= getvariable('range_from') and height < getvariable('range_to')
and block_hash in (select block_hash from chain_blocks where not is_active)"""
[columns]
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  number of the block's cut in mempool_cuts"
txid = "BLOB  transaction id, internal byte order"
height = "INTEGER  height of the stale block; 0 is the genesis block"
*/
select
    mempool_cuts.node,
    mempool_cuts.cut_no,
    stg_transactions.txid,
    chain_blocks.height
from mempool_cuts
inner join chain_blocks
    on mempool_cuts.block_hash = chain_blocks.block_hash
inner join stg_transactions
    on chain_blocks.height = stg_transactions.height and chain_blocks.block_hash = stg_transactions.block_hash
where not chain_blocks.is_active and not stg_transactions.is_coinbase
order by chain_blocks.height, mempool_cuts.node, mempool_cuts.cut_no, stg_transactions.txid
