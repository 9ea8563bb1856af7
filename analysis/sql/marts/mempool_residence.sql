/*
summary = "Every stay of a transaction in a node's mempool, and the blocks during which it waited."
method = """
A stay begins with a row of mempool_txs (mempool_entries). It ends with the first of these: an R for the transaction, the C
of a block that holds it (mempool_exits), or the end of the session (mempool_sessions; a new session lists its mempool
again). The first cut at which the transaction waits is the next one behind its entry (mempool_spans). It waits at every cut
from there to its end, also at the C that ends the stay. The order is that of the `sequence` stream where the
stay began or ended with a message of it (see mempool_cuts), else that of our clock. Where the mempool did not give a fee,
it is taken from the block. A stay without fee or size is kept but cannot be ranked.
"""
grain = ["stay_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_entries = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_exits = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_spans = """from_at <= getvariable('range_to_at') + interval 1 hour
and to_at >= getvariable('range_from_at') - interval 1 hour"""
mempool_sessions = """started_at < getvariable('range_to_at') + interval 1 hour
and ended_at > getvariable('range_from_at') - interval 1 hour"""
[columns]
stay_no = "BIGINT  UTC day of entry since 1970 times 1,000,000,000, plus 1, 2, ... in order of entry, then txid"
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
txid = "BLOB  transaction id, internal byte order"
entered_at = "TIMESTAMP WITH TIME ZONE  time of entry on our clock, as in mempool_txs"
first_seen_kind = "VARCHAR  pushed, pulled or at_start; only pushed is a time of entry"
fee_sat = "BIGINT  base fee; null when never learnt"
vsize_vb = "BIGINT  virtual size as the mempool counts it; null when never learnt"
weight_wu = "BIGINT  BIP141 weight; null when the mempool did not give it"
signals_rbf = "BOOLEAN  it signals BIP125 replaceability itself; null when never learnt"
parents = "BLOB[]  txids of its parents in the mempool at entry; null when it has none"
left_at = "TIMESTAMP WITH TIME ZONE  time on our clock at which it left; null where left_reason is null"
left_reason = "VARCHAR  mined, or the removal_reason of its R; null while it waits or when the session ended"
first_cut_no = "BIGINT  first cut at which it waited; above last_cut_no when it left before any block"
last_cut_no = "BIGINT  last cut at which it waited; while it still waits, 9,000,000,000,000,000,000, which is above every cut"
mined_cut_no = "BIGINT  cut of the block that took it; null when none did"
position = "DECIMAL(38,0)  place of its entry in the node's stream (macro stream_position)"
left_position = "DECIMAL(38,0)  place in the node's stream at which it left; null where left_reason is null"
*/
with

first_exits as (
    select
        stay_no,
        arg_min(
            struct_pack(
                left_reason := left_reason,
                last_cut_no := last_cut_no,
                mined_cut_no := mined_cut_no,
                position := position,
                left_at := left_at,
                fee_sat := fee_sat,
                vsize_vb := vsize_vb
            ),
            position
        ) as exit
    from mempool_exits
    group by stay_no
)

select
    entry.stay_no,
    entry.node,
    entry.session,
    entry.txid,
    entry.entered_at,
    entry.first_seen_kind,
    coalesce(entry.fee_sat, first_exits.exit.fee_sat) as fee_sat,
    coalesce(entry.vsize_vb, first_exits.exit.vsize_vb) as vsize_vb,
    entry.weight_wu,
    entry.signals_rbf,
    entry.parents,
    first_exits.exit.left_at,
    first_exits.exit.left_reason,
    mempool_spans.cut_no as first_cut_no,
    coalesce(first_exits.exit.last_cut_no, mempool_sessions.last_cut_no, 9000000000000000000) as last_cut_no,
    first_exits.exit.mined_cut_no,
    entry.position,
    first_exits.exit.position as left_position
from mempool_entries as entry
asof left join mempool_spans
    on entry.node = mempool_spans.node and entry.position >= mempool_spans.from_position
left join first_exits
    on entry.stay_no = first_exits.stay_no
left join mempool_sessions
    on
        entry.node = mempool_sessions.node
        and entry.session = mempool_sessions.session
        and entry.entered_at >= mempool_sessions.started_at - interval 1 hour
        and entry.entered_at < mempool_sessions.ended_at + interval 1 hour
order by entry.stay_no
