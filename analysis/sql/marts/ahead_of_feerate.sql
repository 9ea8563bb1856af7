/*
summary = "Transactions that stand far ahead of their feerate in blocks that are ordered by feerate."
method = """
A block's transactions are numbered in the block's own order, and again by effective feerate within the block
(stg_transactions), highest first; equal feerates share the mean of their places. The second number is the place that an
order by feerate would give. sppe_ratio is the signed position prediction error (arXiv:2110.11740): (predicted place -
place) / number of transactions. It is near 1 for a transaction that pays least and stands first. Listed are those of
far_ahead, from min_sppe_ratio on, in blocks of pools that order by feerate (pool_ordering), if more of the block is in
that order than chance explains, and far more in a block that fits first come (block_order): where a pool sells many
places, less than half of the block is in order. It needs blocks alone, so it covers history without a mempool. A place ahead is no proof
of a payment: pools put their own payments first, too, and may keep a promise for free. A transaction that is paid for
and stands at the end of the block is not found here.
"""
grain = ["block_hash", "txid"]
[ranges]
by = "heights"
needs = "far_ahead"
[ranges.reads]
far_ahead = "height >= getvariable('range_from') and height < getvariable('range_to')"
pool_ordering = "verdict = 'feerate'"
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
select
    far_ahead.block_hash,
    far_ahead.txid,
    far_ahead.height,
    far_ahead.pool,
    far_ahead.n_txs,
    far_ahead.place,
    far_ahead.predicted_place,
    far_ahead.feerate_sat_vb,
    far_ahead.own_margin_sat_vb,
    far_ahead.sppe_ratio
from far_ahead
inner join pool_ordering
    on far_ahead.pool = pool_ordering.pool
where pool_ordering.verdict = 'feerate'
order by far_ahead.height, far_ahead.block_hash, far_ahead.place
