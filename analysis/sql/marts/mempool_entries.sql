/*
summary = "Every entry of a transaction into a node's mempool: its number, and its place in the node's stream."
method = """
A row of mempool_txs that was not first seen in a block is the beginning of a stay. Its place is that of its A in the
`sequence` stream, where it came within an hour of the entry, else that of its time of entry.
"""
grain = ["stay_no"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_txs = "entered_at >= getvariable('range_from_at') and entered_at < getvariable('range_to_at')"
stg_mempool_events = """received_at >= getvariable('range_from_at') - interval 1 hour
and received_at < getvariable('range_to_at') + interval 1 hour and event = 'A' and (received_at <
getvariable('range_to_at') or mempool_sequence <= (select max(mempool_sequence) from stg_mempool_txs))"""
[columns]
stay_no = "BIGINT  UTC day of entry since 1970 times 1,000,000,000, plus 1, 2, ... in order of entry, then txid"
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
txid = "BLOB  transaction id, internal byte order"
entered_at = "TIMESTAMP WITH TIME ZONE  time of entry on our clock, as in mempool_txs"
first_seen_kind = "VARCHAR  pushed, pulled or at_start; only pushed is a time of entry"
fee_sat = "BIGINT  base fee as the mempool gave it; null when it did not"
vsize_vb = "BIGINT  virtual size as the mempool counts it; null when never learnt"
weight_wu = "BIGINT  BIP141 weight; null when the mempool did not give it"
signals_rbf = "BOOLEAN  it signals BIP125 replaceability itself; null when never learnt"
parents = "BLOB[]  txids of its parents in the mempool at entry; null when it has none"
position = "DECIMAL(38,0)  place of its entry in the node's stream (macro stream_position)"
*/
with

additions as (
    select
        node,
        session,
        mempool_sequence,
        received_at,
        stream_position(received_at, sequence) as position
    from stg_mempool_events
    where event = 'A' and kind = 'pushed'
),

entries as (
    select
        entry.node,
        entry.session,
        entry.txid,
        entry.entered_at,
        entry.first_seen_kind,
        entry.fee_sat,
        entry.vsize_vb,
        entry.weight_wu,
        entry.signals_rbf,
        case when len(entry.parents) > 0 then entry.parents end as parents,
        coalesce(additions.position, stream_position(entry.entered_at, 0)) as position
    from stg_mempool_txs as entry
    left join additions
        on
            entry.first_seen_kind = 'pushed'
            and entry.node = additions.node
            and entry.session = additions.session
            and entry.mempool_sequence = additions.mempool_sequence
            and abs(epoch_us(entry.entered_at) - epoch_us(additions.received_at)) <= 3600000000
    where entry.first_seen_kind != 'in_block'
)

select
    window_key(entries.entered_at, 86400) + row_number() over (
        partition by window_key(entries.entered_at, 86400)
        order by entries.position, entries.txid, entries.node
    ) as stay_no,
    entries.node,
    entries.session,
    entries.txid,
    entries.entered_at,
    entries.first_seen_kind,
    entries.fee_sat,
    entries.vsize_vb,
    entries.weight_wu,
    entries.signals_rbf,
    entries.parents,
    entries.position
from entries
order by stay_no
