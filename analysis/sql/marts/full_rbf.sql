/*
summary = "Transactions that replaced one that had not signalled that it may be replaced, by day."
method = """
Rows of replacements where what was replaced had not signalled at its entry (BIP 125), was of another version than 3, which
always signals (BIP 431), and had no unconfirmed parent, from which it could have the signal. Entries at that node on the
UTC day of the removal and on the 15 days before count.
"""
grain = ["day_key", "txid"]
[ranges]
by = "message_days"
[ranges.reads]
replacements = "replaced_at >= getvariable('range_from_at') and replaced_at < getvariable('range_to_at')"
stg_mempool_txs = """entered_at >= getvariable('range_from_at') - interval 15 days
and entered_at < getvariable('range_to_at') and txid in (select txid from replacements)"""
[columns]
day_key = "BIGINT  UTC day of the removal since 1970 times 1,000,000,000, as in stay_no"
txid = "BLOB  transaction id of what replaced another, internal byte order"
*/
with

replaced as (
    select
        node,
        txid,
        replaced_by,
        window_key(replaced_at, 86400) as day_key
    from replacements
)

select distinct
    replaced.day_key,
    replaced.replaced_by as txid
from replaced
inner join stg_mempool_txs as entry
    on replaced.node = entry.node and replaced.txid = entry.txid
where
    entry.signals_rbf = false
    and entry.version != 3
    and len(entry.parents) = 0
    and replaced.day_key - window_key(entry.entered_at, 86400) between 0 and 15000000000
order by replaced.day_key, replaced.replaced_by
