/*
summary = "Stays of transactions that were replaced, or that replaced others, as far as replacement_chain needs them."
method = """
Of mempool_residence, the stays that ended by a replacement, and those of what replaced another transaction at that node on
the UTC day of their entry, the day before or the day after. They are few, so what replacement_chain does with all of them is
small.
"""
grain = ["stay_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_residence = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
replacements = """replaced_at >= getvariable('range_from_at') - interval 1 day
and replaced_at < getvariable('range_to_at') + interval 1 day"""
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
node = "VARCHAR  name of the watched node"
txid = "BLOB  transaction id, internal byte order"
entered_at = "TIMESTAMP WITH TIME ZONE  time of entry on our clock"
fee_sat = "BIGINT  base fee; null when never learnt"
vsize_vb = "BIGINT  virtual size; null when never learnt"
left_reason = "VARCHAR  as in mempool_residence"
position = "DECIMAL(38,0)  place of its entry in the node's stream (macro stream_position)"
left_position = "DECIMAL(38,0)  place in the node's stream at which it left; null where left_reason is null"
*/
with

replacing as (
    select distinct
        node,
        replaced_by as txid,
        epoch_us(replaced_at) // 86400000000 as replaced_day
    from replacements
)

select
    stay.stay_no,
    stay.node,
    stay.txid,
    stay.entered_at,
    stay.fee_sat,
    stay.vsize_vb,
    stay.left_reason,
    stay.position,
    stay.left_position
from mempool_residence as stay
where
    stay.left_reason = 'replaced'
    or exists (
        select 1
        from replacing
        where
            replacing.node = stay.node
            and replacing.txid = stay.txid
            and abs(replacing.replaced_day - stay.stay_no // 1000000000) <= 1
    )
order by stay.stay_no
