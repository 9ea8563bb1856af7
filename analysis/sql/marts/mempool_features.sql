/*
summary = "Transactions that entered a mempool and have a feature, by day of entry."
method = "Rows of mempool_txs with a feature of transaction_feature that the transaction itself shows (macro features_of)."
grain = ["entry_day", "txid", "feature"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_txs = "entered_at >= getvariable('range_from_at') and entered_at < getvariable('range_to_at')"
[columns]
entry_day = "BIGINT  UTC day of entry since 1970, our clock"
txid = "BLOB  transaction id, internal byte order"
feature = "VARCHAR  as in transaction_feature, without full_rbf"
*/
with

featured as (
    select
        epoch_us(entered_at) // 86400000000 as entry_day,
        txid,
        features_of(
            version, output_types, op_return_bytes, n_dust_outputs, n_envelopes, fee_sat, vsize_vb
        ) as features
    from stg_mempool_txs
),

marked as (
    select
        entry_day,
        txid,
        unnest(features) as feature
    from featured
    where len(features) > 0
)

select distinct
    entry_day,
    txid,
    feature
from marked
order by entry_day, feature, txid
