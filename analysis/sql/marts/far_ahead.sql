/*
summary = "Transactions that stand far ahead of their feerate, in any block in feerate order."
method = """
The transactions from which ahead_of_feerate takes those of pools that order by feerate; its method says what the places
are. More of the block must be in feerate order than chance explains, and far more where it fits first come
(block_order).
"""
grain = ["block_hash", "txid"]
determined = ["height"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
needs = "block_order"
[ranges.reads]
block_order = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_pool = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
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
        block_order.own_margin_sat_vb
    from block_order
    where
        is_by_feerate(
            'feerate', block_order.ordering, block_order.n_feerate_ordered, block_order.n_feerates
        )
),

rated as (
    select
        judged.*,
        stg_transactions.txid,
        stg_transactions.tx_index,
        feerate_in_block(
            stg_transactions.effective_feerate_sat_vb, stg_transactions.fee_sat, stg_transactions.vsize_vb
        ) as feerate_sat_vb
    from judged
    inner join stg_transactions
        on judged.block_hash = stg_transactions.block_hash
    where not stg_transactions.is_coinbase
),

-- Blocks of block_order are active, so a height is a block, and sorts faster than a hash.
placed as (
    select
        *,
        count(*) over (partition by height) as n_txs,
        row_number() over (partition by height order by tx_index) as place,
        rank() over (partition by height order by feerate_sat_vb desc) as first_place,
        count(*) over (
            partition by height order by feerate_sat_vb desc
            range between current row and current row
        ) as n_equal
    from rated
    where feerate_sat_vb is not null
)

select
    placed.block_hash,
    placed.txid,
    placed.height,
    block_pool.pool,
    placed.n_txs,
    placed.place,
    (2 * placed.first_place + placed.n_equal - 1) / 2 as predicted_place,
    placed.feerate_sat_vb,
    placed.own_margin_sat_vb,
    (2 * placed.first_place + placed.n_equal - 1 - 2 * placed.place) / (2 * placed.n_txs) as sppe_ratio
from placed
inner join block_pool
    on placed.block_hash = block_pool.block_hash
where
    (2 * placed.first_place + placed.n_equal - 1 - 2 * placed.place) / (2 * placed.n_txs)
    >= getvariable('min_sppe_ratio')
order by placed.height, placed.block_hash, placed.place
