/*
summary = "Transactions that stand far ahead of their feerate in blocks that are ordered by feerate."
method = """
A block's transactions are numbered in the block's own order, and again by effective feerate within the block
(stg_transactions), highest first; equal feerates share the mean of their places. The second number is the place that an
order by feerate would give. sppe_ratio is the signed position prediction error (arXiv:2110.11740): (predicted place -
place) / number of transactions. It is near 1 for a transaction that pays least and stands first. Listed are those from
min_sppe_ratio on, in blocks of pools that order by feerate (pool_ordering), if more of the block is in that order than
chance explains and it is no first-come block (block_order): where a pool sells many places, less than half of the block
is in order. It needs blocks alone, so it covers history without a mempool. A place ahead is no proof of a payment: pools put their own
payments first, too, and may keep a promise for free. A transaction that is paid for and stands at the end of the block
is not found here.
"""
grain = ["block_hash", "txid"]
[parameters]
min_sppe_ratio = {value = 0.5, doc = "signed position prediction error, as a part of the block"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
txid = "BLOB  transaction id, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
n_txs = "BIGINT  transactions of the block that are numbered"
place = "BIGINT  1, 2, ... in the order of the block"
predicted_place = "DOUBLE  place by falling feerate; equal feerates share the mean"
feerate_sat_vb = "DOUBLE  sat/vB, effective feerate within the block"
own_margin_sat_vb = "DOUBLE  sat/vB, feerate at the end of the block's own order"
sppe_ratio = "DOUBLE  0..1, (predicted_place - place) / n_txs"
*/
with

judged as (
    select
        block_order.block_hash,
        block_order.height,
        block_order.pool,
        block_order.own_margin_sat_vb
    from block_order
    inner join pool_ordering
        on block_order.pool = pool_ordering.pool
    where
        is_by_feerate(
            pool_ordering.verdict, block_order.ordering, block_order.n_feerate_ordered, block_order.n_feerates
        )
),

rated as (
    select
        judged.*,
        stg_transactions.txid,
        stg_transactions.tx_index,
        coalesce(
            stg_transactions.effective_feerate_sat_vb,
            stg_transactions.fee_sat / nullif(stg_transactions.vsize_vb, 0)
        ) as feerate_sat_vb
    from judged
    inner join stg_transactions
        on judged.block_hash = stg_transactions.block_hash
    where not stg_transactions.is_coinbase
),

placed as (
    select
        *,
        count(*) over (partition by block_hash) as n_txs,
        row_number() over (partition by block_hash order by tx_index) as place,
        rank() over (partition by block_hash order by feerate_sat_vb desc) as first_place,
        count(*) over (partition by block_hash, feerate_sat_vb) as n_equal
    from rated
    where feerate_sat_vb is not null
)

select
    block_hash,
    txid,
    height,
    pool,
    n_txs,
    place,
    (2 * first_place + n_equal - 1) / 2 as predicted_place,
    feerate_sat_vb,
    own_margin_sat_vb,
    (2 * first_place + n_equal - 1 - 2 * place) / (2 * n_txs) as sppe_ratio
from placed
where (2 * first_place + n_equal - 1 - 2 * place) / (2 * n_txs) >= getvariable('min_sppe_ratio')
order by height, block_hash, place
