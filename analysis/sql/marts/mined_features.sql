/*
summary = "Transactions of blocks that have a feature, by block."
method = "Rows of transactions, coinbases excluded, with a feature that the transaction itself shows (macro features_of)."
grain = ["block_hash", "txid", "feature"]
determined = ["height"]
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
[columns]
block_hash = "BLOB  header hash of its block, internal byte order"
height = "INTEGER  height of its block"
txid = "BLOB  transaction id, internal byte order"
feature = "VARCHAR  as in transaction_feature, without full_rbf"
*/
with

featured as (
    select
        block_hash,
        height,
        txid,
        features_of(
            version, output_types, op_return_bytes, n_dust_outputs, n_envelopes, fee_sat, vsize_vb
        ) as features
    from stg_transactions
    where not is_coinbase and block_hash in (select chain_blocks.block_hash from chain_blocks)
)

select
    block_hash,
    height,
    txid,
    unnest(features) as feature
from featured
where len(features) > 0
order by height, block_hash, feature, txid
