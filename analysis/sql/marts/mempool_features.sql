/*
summary = "Transactions that entered a mempool and have a feature, by day of entry."
method = """
Rows of mempool_txs with a feature of transaction_feature that the transaction itself shows (macro features_of). What was
first seen in a block is left out.
"""
grain = ["day_key", "txid", "feature"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_txs = "entered_at >= getvariable('range_from_at') and entered_at < getvariable('range_to_at')"
[columns]
day_key = "BIGINT  UTC day of entry since 1970 times 1,000,000,000, as in stay_no"
txid = "BLOB  transaction id, internal byte order"
feature = "VARCHAR  as in transaction_feature, without full_rbf"
*/
with

featured as (
    select
        window_key(entered_at, 86400) as day_key,
        txid,
        features_of(
            version, output_types, op_return_bytes, n_dust_outputs, n_envelopes, fee_sat, vsize_vb
        ) as features
    from stg_mempool_txs
    where first_seen_kind != 'in_block'
),

marked as (
    select
        day_key,
        txid,
        unnest(features) as feature
    from featured
    where len(features) > 0
)

select distinct
    day_key,
    txid,
    feature
from marked
order by day_key, feature, txid
