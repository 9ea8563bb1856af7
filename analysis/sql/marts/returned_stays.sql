/*
summary = "Stays of transactions that a block had taken which the node left, as far as mempool_returns needs them."
method = """
Of mempool_residence, the stays of each transaction of stale_transactions at that node, which began at most 15 days before
or after that block. They are few, so what mempool_returns does with all of them is small.
"""
grain = ["stay_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_residence = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
stale_transactions = """cut_no >= getvariable('range_from') - 15000000000
and cut_no < getvariable('range_to') + 15000000000"""
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
node = "VARCHAR  name of the watched node"
txid = "BLOB  transaction id, internal byte order"
position = "DECIMAL(38,0)  place of its entry in the node's stream (macro stream_position)"
left_reason = "VARCHAR  as in mempool_residence"
left_position = "DECIMAL(38,0)  place in the node's stream at which it left; null where left_reason is null"
left_at = "TIMESTAMP WITH TIME ZONE  time on our clock at which it left; null where left_reason is null"
mined_cut_no = "BIGINT  cut of the block that took it; null when none did"
*/
select
    stay.stay_no,
    stay.node,
    stay.txid,
    stay.position,
    stay.left_reason,
    stay.left_position,
    stay.left_at,
    stay.mined_cut_no
from mempool_residence as stay
semi join stale_transactions
    on
        stay.node = stale_transactions.node
        and stay.txid = stale_transactions.txid
        and stay.stay_no // 1000000000
        between stale_transactions.cut_no // 1000000000 - 15 and stale_transactions.cut_no // 1000000000 + 15
order by stay.stay_no
