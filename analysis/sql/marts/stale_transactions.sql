/*
summary = "The transactions of blocks that a node left: those that became stale, and those that it connected again later."
method = """
The blocks of mempool_cuts that are not on the active chain (chain_blocks), or that the node connected more than once,
without their coinbases.
"""
grain = ["node", "cut_no", "txid"]
[ranges]
by = "heights"
needs = "mempool_cuts"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = "block_hash in (select block_hash from chain_blocks)"
stg_transactions = """height >= getvariable('range_from') and height < getvariable('range_to')
and (
block_hash in (select block_hash from chain_blocks where not is_active)
or block_hash in (select block_hash from mempool_cuts group by node, block_hash having count(*) > 1)
)"""
[columns]
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  number of the block's cut in mempool_cuts"
txid = "BLOB  transaction id, internal byte order"
height = "INTEGER  height of that block; 0 is the genesis block"
*/
with

cuts as (
    select
        node,
        cut_no,
        block_hash,
        count(*) over (partition by node, block_hash) > 1 as is_connected_again
    from mempool_cuts
)

select
    cuts.node,
    cuts.cut_no,
    stg_transactions.txid,
    chain_blocks.height
from cuts
inner join chain_blocks
    on cuts.block_hash = chain_blocks.block_hash
inner join stg_transactions
    on chain_blocks.height = stg_transactions.height and chain_blocks.block_hash = stg_transactions.block_hash
where (cuts.is_connected_again or not chain_blocks.is_active) and not stg_transactions.is_coinbase
order by chain_blocks.height, cuts.node, cuts.cut_no, stg_transactions.txid
