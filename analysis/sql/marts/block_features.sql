/*
summary = "How many transactions of each kind each block of the active chain holds."
method = "Transactions of the block, coinbase excluded, that have a feature of transaction_feature."
grain = ["block_hash", "feature"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
feature = "VARCHAR  as in transaction_feature"
n_mined = "BIGINT  such transactions in the block"
*/
with

mined as (
    select
        stg_transactions.block_hash,
        transaction_feature.feature,
        count(*) as n_mined
    from stg_transactions
    inner join transaction_feature
        on stg_transactions.txid = transaction_feature.txid
    inner join chain_blocks
        on stg_transactions.block_hash = chain_blocks.block_hash
    where chain_blocks.is_active and not stg_transactions.is_coinbase
    group by stg_transactions.block_hash, transaction_feature.feature
)

select
    mined.block_hash,
    block_pool.height,
    block_pool.pool,
    mined.feature,
    mined.n_mined
from mined
inner join block_pool
    on mined.block_hash = block_pool.block_hash
order by block_pool.height, mined.block_hash, mined.feature
