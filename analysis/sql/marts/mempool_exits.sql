/*
summary = "Every message that ends a stay in a mempool: an R for the transaction, or the C of a block that holds it."
method = """
A message ends every stay of its transaction that began before it in the same session, at most 15 days before: a node
lets a transaction wait for 14 days if it is not told otherwise. Where a stay has several ends, the first one counts
(mempool_residence). An R whose reason is `conflict` belongs to the block whose C follows, so the transaction still waited
at that cut. What left behind the node's last cut waited there.
"""
grain = ["stay_no", "position"]
[ranges]
by = "mempool_days"
[ranges.reads]
stg_mempool_events = """received_at >= getvariable('range_from_at') and received_at < getvariable('range_to_at')
and event = 'R'"""
mempool_spans = "from_at <= getvariable('range_to_at') and to_at >= getvariable('range_from_at')"
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
chain_blocks = "block_hash in (select block_hash from mempool_cuts)"
stg_transactions = "height in (select height from chain_blocks) and block_hash in (select block_hash from mempool_cuts)"
mempool_entries = """stay_no >= getvariable('range_from') - 15000000000
and (stay_no < getvariable('range_to') or position < getvariable('range_to_position'))"""
[ranges.clips.mempool_spans]
cut_no = """if(from_position > coalesce((select map(list(node), list(position)) from (
select node, max(stream_position(received_at, sequence)) as position from stg_mempool_events
where removal_reason = 'conflict' group by node))[node], -1), null, cut_no)"""
[columns]
stay_no = "BIGINT  number of the stay in mempool_entries"
position = "DECIMAL(38,0)  place of the message in the node's stream (macro stream_position)"
left_at = "TIMESTAMP WITH TIME ZONE  time of the message on our clock"
left_reason = "VARCHAR  mined, or the removal_reason of its R"
last_cut_no = "BIGINT  last cut at which it waited; 0 where there was none before"
mined_cut_no = "BIGINT  cut of the block that took it; null for an R"
fee_sat = "BIGINT  fee as the block's row has it; null for an R"
vsize_vb = "BIGINT  virtual size as the block's row has it; null for an R"
*/
with

removals as (
    select
        node,
        session,
        hash as txid,
        stream_position(received_at, sequence) as position,
        received_at as left_at,
        window_key(received_at, 86400) // 1000000000 as day_no,
        coalesce(removal_reason, 'unknown') as left_reason
    from stg_mempool_events
    where event = 'R'
),

exits as (
    select
        removals.node,
        removals.session,
        removals.txid,
        removals.position,
        removals.left_at,
        removals.day_no,
        removals.left_reason,
        coalesce(
            if(removals.left_reason = 'conflict', mempool_spans.cut_no, mempool_spans.previous_cut_no),
            mempool_spans.previous_cut_no,
            0
        ) as last_cut_no,
        null as mined_cut_no,
        null as fee_sat,
        null as vsize_vb
    from removals
    asof left join mempool_spans
        on removals.node = mempool_spans.node and removals.position >= mempool_spans.from_position
    union all
    select
        mempool_cuts.node,
        mempool_cuts.session,
        stg_transactions.txid,
        mempool_cuts.position,
        mempool_cuts.connected_at as left_at,
        mempool_cuts.cut_no // 1000000000 as day_no,
        'mined' as left_reason,
        mempool_cuts.cut_no as last_cut_no,
        mempool_cuts.cut_no as mined_cut_no,
        stg_transactions.fee_sat,
        stg_transactions.vsize_vb
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    inner join stg_transactions
        on chain_blocks.height = stg_transactions.height and chain_blocks.block_hash = stg_transactions.block_hash
    where not stg_transactions.is_coinbase
)

select
    entry.stay_no,
    exits.position,
    exits.left_at,
    exits.left_reason,
    cast(exits.last_cut_no as bigint) as last_cut_no,
    cast(exits.mined_cut_no as bigint) as mined_cut_no,
    cast(exits.fee_sat as bigint) as fee_sat,
    cast(exits.vsize_vb as bigint) as vsize_vb
from exits
inner join mempool_entries as entry
    on
        exits.txid = entry.txid
        and exits.node = entry.node
        and exits.session = entry.session
        and exits.position > entry.position
        and entry.stay_no // 1000000000
        between exits.day_no - 15 and exits.day_no + 1
order by exits.day_no, entry.stay_no, exits.position
