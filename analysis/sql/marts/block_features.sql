/*
summary = "How many transactions of each kind each block of the active chain holds."
method = """
Transactions of the block, coinbase excluded, that show a feature (mined_features), or of which our mempools showed one:
in mempool_features by their entry, in full_rbf by the replacement. What mempools showed counts on the UTC day on which
the first of our nodes connected the block, and on the 30 days before; a block that none of them connected has what it
shows itself, so no full_rbf.
"""
grain = ["block_hash", "feature"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_pool = "height >= getvariable('range_from') and height < getvariable('range_to')"
mined_features = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = "block_hash in (select block_hash from chain_blocks)"
mempool_features = """day_key >= (select min(cut_no) from mempool_cuts) - 31000000000
and day_key <= (select max(cut_no) from mempool_cuts)"""
full_rbf = """day_key >= (select min(cut_no) from mempool_cuts) - 31000000000
and day_key <= (select max(cut_no) from mempool_cuts)"""
stg_transactions = """height >= getvariable('range_from') and height < getvariable('range_to')
and (txid in (select txid from full_rbf) or txid in (select txid from mempool_features))"""
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
feature = "VARCHAR  as in transaction_feature"
n_mined = "BIGINT  such transactions in the block"
*/
with

connected_days as (
    select
        block_hash,
        min(cut_no) // 1000000000 * 1000000000 as day_key
    from mempool_cuts
    group by block_hash
),

shown_by_mempools as (
    select
        day_key,
        txid,
        feature
    from mempool_features
    union all
    select
        day_key,
        txid,
        'full_rbf' as feature
    from full_rbf
),

featured as (
    select
        block_hash,
        txid,
        feature
    from mined_features
    union
    select
        stg_transactions.block_hash,
        stg_transactions.txid,
        shown_by_mempools.feature
    from stg_transactions
    inner join connected_days
        on stg_transactions.block_hash = connected_days.block_hash
    inner join shown_by_mempools
        on
            stg_transactions.txid = shown_by_mempools.txid
            and connected_days.day_key >= shown_by_mempools.day_key
            and connected_days.day_key <= shown_by_mempools.day_key + 30000000000
    where not stg_transactions.is_coinbase
),

counts as (
    select
        featured.block_hash,
        featured.feature,
        count(*) as n_mined
    from featured
    inner join chain_blocks
        on featured.block_hash = chain_blocks.block_hash
    where chain_blocks.is_active
    group by featured.block_hash, featured.feature
)

select
    counts.block_hash,
    block_pool.height,
    block_pool.pool,
    counts.feature,
    counts.n_mined
from counts
inner join block_pool
    on counts.block_hash = block_pool.block_hash
order by block_pool.height, counts.block_hash, counts.feature
