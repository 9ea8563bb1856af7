/*
summary = "Every stay of a transaction in a node's mempool, and the blocks during which it waited."
method = """
A stay begins with a row of mempool_txs. It ends with the first of these: an R for the transaction, the C of a block
that holds it, or the end of the session (a new session lists its mempool again). The transaction waits at every cut
between, including the C that ends the stay: that block found it in the mempool. An R whose reason is `conflict` belongs
to the block whose C follows, so the transaction still waited at that cut. The order is that of the `sequence` stream
where the stay began or ended with a message of it (see mempool_cuts), else that of our clock. Where the mempool did not
give a fee, it is taken from the block. A stay without fee or size is kept but cannot be ranked.
"""
kept = {column = "stay_no", width = 1000000000}
grain = ["stay_no"]
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
parents = "BLOB[]  txids of its parents in the mempool at entry; null when it has none"
left_reason = "VARCHAR  mined, or the removal_reason of its R; null while it waits or when the session ended"
first_cut_no = "BIGINT  first cut at which it waited; above last_cut_no when it left before any block"
last_cut_no = "BIGINT  last cut at which it waited"
mined_cut_no = "BIGINT  cut of the block that took it; null when none did"
position = "HUGEINT  place of its entry in the node's stream (macro stream_position)"
left_position = "HUGEINT  place in the node's stream at which it left; null where left_reason is null"
*/
with

-- The times from one cut to the next, in steps of six minutes. A lookup in them is a join by hash; an ASOF join would
-- sort all stays once more.
cut_spans as (
    select
        node,
        cut_no,
        position,
        lag(position, 1, 0) over in_order as previous_position,
        lag(cut_no, 1, 0) over in_order as previous_cut_no,
        unnest(
            range(
                epoch_us(
                    coalesce(
                        lag(connected_at) over in_order,
                        least(
                            connected_at,
                            (select min(stg_mempool_txs.entered_at) from stg_mempool_txs),
                            (select min(stg_mempool_events.received_at) from stg_mempool_events)
                        )
                    )
                ) // 360000000,
                epoch_us(connected_at) // 360000000 + 1
            )
        ) as step_no
    from mempool_cuts
    window in_order as (partition by node order by cut_no)
),

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
        case when len(entry.parents) > 0 then entry.parents end as parents,
        epoch_us(coalesce(additions.received_at, entry.entered_at)) // 360000000 as step_no,
        coalesce(additions.position, stream_position(entry.entered_at, 0)) as position
    from stg_mempool_txs as entry
    left join additions
        on
            entry.first_seen_kind = 'pushed'
            and entry.node = additions.node
            and entry.session = additions.session
            and entry.mempool_sequence = additions.mempool_sequence
    where entry.first_seen_kind != 'in_block'
),

numbered as (
    select
        *,
        window_key(position, 86400) + row_number() over (
            partition by window_key(position, 86400) order by position, txid, node
        ) as stay_no
    from entries
),

removals as (
    select
        node,
        session,
        hash as txid,
        epoch_us(received_at) // 360000000 as step_no,
        stream_position(received_at, sequence) as position,
        coalesce(removal_reason, 'unknown') as left_reason
    from stg_mempool_events
    where event = 'R'
),

node_ends as (
    select
        node,
        max(cut_no) as last_cut_no
    from mempool_cuts
    group by node
),

-- What left behind the last cut waited there.
exits as materialized (
    select
        removals.node,
        removals.txid,
        removals.position,
        removals.left_reason,
        coalesce(
            if(removals.left_reason = 'conflict', cut_spans.cut_no, cut_spans.previous_cut_no),
            node_ends.last_cut_no,
            0
        ) as last_cut_no,
        null as mined_cut_no,
        null as fee_sat,
        null as vsize_vb
    from removals
    left join cut_spans
        on
            removals.node = cut_spans.node
            and removals.step_no = cut_spans.step_no
            and removals.position >= cut_spans.previous_position
            and removals.position < cut_spans.position
    left join node_ends
        on removals.node = node_ends.node
    union all
    select
        mempool_cuts.node,
        stg_transactions.txid,
        mempool_cuts.position,
        'mined' as left_reason,
        mempool_cuts.cut_no as last_cut_no,
        mempool_cuts.cut_no as mined_cut_no,
        stg_transactions.fee_sat,
        stg_transactions.vsize_vb
    from stg_transactions
    inner join mempool_cuts
        on stg_transactions.block_hash = mempool_cuts.block_hash
    where not stg_transactions.is_coinbase
),

happenings as (
    select
        node,
        session,
        position,
        cut_no
    from mempool_cuts
    union all
    select
        node,
        session,
        position,
        null as cut_no
    from removals
),

sessions as (
    select
        node,
        session,
        max(cut_no) as last_cut_no,
        max(position) as last_position
    from happenings
    group by node, session
),

begun as (
    select
        numbered.*,
        cut_spans.cut_no as first_cut_no
    from numbered
    left join cut_spans
        on
            numbered.node = cut_spans.node
            and numbered.step_no = cut_spans.step_no
            and numbered.position >= cut_spans.previous_position
            and numbered.position < cut_spans.position
),

repeated as (
    select
        node,
        txid
    from exits
    group by node, txid
    having count(*) > 1
),

-- Nearly everything leaves once; where something did not, the first exit after each entry is looked for.
single_exits as (
    select exits.*
    from exits
    anti join repeated
        on exits.node = repeated.node and exits.txid = repeated.txid
),

-- No ASOF join here: DuckDB 2.0.0 matches rows of other keys when a BLOB is one of several equal columns.
first_exits as (
    select
        begun.stay_no,
        arg_min(
            struct_pack(
                left_reason := exits.left_reason,
                last_cut_no := exits.last_cut_no,
                mined_cut_no := exits.mined_cut_no,
                position := exits.position,
                fee_sat := exits.fee_sat,
                vsize_vb := exits.vsize_vb
            ),
            exits.position
        ) as exit
    from repeated
    inner join exits
        on repeated.node = exits.node and repeated.txid = exits.txid
    inner join begun
        on
            exits.node = begun.node
            and exits.txid = begun.txid
            and exits.position > begun.position
    group by begun.stay_no
),

-- Nothing that waited in a session without any cut was there at one: its last is 0.
bounded as (
    select
        begun.*,
        case
            when single_exits.position is null then first_exits.exit
            else struct_pack(
                left_reason := single_exits.left_reason,
                last_cut_no := single_exits.last_cut_no,
                mined_cut_no := single_exits.mined_cut_no,
                position := single_exits.position,
                fee_sat := single_exits.fee_sat,
                vsize_vb := single_exits.vsize_vb
            )
        end as exit,
        coalesce(sessions.last_cut_no, 0) as session_last_cut_no,
        coalesce(single_exits.position, first_exits.exit.position) <= sessions.last_position as has_ended
    from begun
    left join single_exits
        on
            begun.node = single_exits.node
            and begun.txid = single_exits.txid
            and begun.position < single_exits.position
    left join first_exits
        on begun.stay_no = first_exits.stay_no
    left join sessions
        on begun.node = sessions.node and begun.session = sessions.session
)

select
    stay_no,
    node,
    session,
    txid,
    entered_at,
    first_seen_kind,
    coalesce(fee_sat, exit.fee_sat) as fee_sat,
    coalesce(vsize_vb, exit.vsize_vb) as vsize_vb,
    weight_wu,
    parents,
    case when has_ended then exit.left_reason end as left_reason,
    first_cut_no,
    least(coalesce(exit.last_cut_no, session_last_cut_no), session_last_cut_no) as last_cut_no,
    case when exit.mined_cut_no <= session_last_cut_no then exit.mined_cut_no end as mined_cut_no,
    position,
    case when has_ended then exit.position end as left_position
from bounded
order by stay_no
