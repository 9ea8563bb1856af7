/*
summary = "How long each transaction waited, how that ended, and when we stopped looking."
method = """
Stays of mempool_residence whose entry was pushed while our copy of the mempool was in step. Transactions that were
waiting before we began have an unknown beginning and are left out. A spell ends with the stay, as mined, replaced
(including conflicts with a mined transaction), expired or other. A spell that is open when the uninterrupted
observation ends is censored there. A block that became stale confirms nothing: the spell goes on to what came after it
(mempool_returns), or is censored at that block when nothing did. Deciles rank the transaction's own feerate among those
of its node and UTC day of entry; decile 1 pays least. So a rise of all fees moves no transaction to another decile.
Spells without a known fee have no decile. A transaction that several nodes saw would count several times: is_counted
marks the spell at the node that saw it first.
"""
cost = """
Deciles within a day sort all stays by feerate; a plain scan sorts nothing.
"""
kept = {column = "stay_no", width = 1000000000}
grain = ["stay_no"]
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
node = "VARCHAR  name of the watched node"
day = "DATE  UTC day of entry, our clock"
feerate_sat_vb = "DOUBLE  sat/vB, own fee / vsize; null when never learnt"
decile = "BIGINT  1 (pays least) to 10, of its node and day; null without a feerate"
delay_s = "DOUBLE  s from entry to the end of the spell"
outcome = "VARCHAR  mined, replaced, expired, other or censored"
wait_no = "BIGINT  block interval of entry: cut_no of the node's next block; spells of one interval are not independent"
is_counted = "BOOLEAN  true at the node that saw the transaction first; curves and sums use only these spells"
*/
with

in_step as (
    select
        node,
        session,
        from_at,
        to_at
    from coverage_intervals
    where topic = 'mempool'
),

-- Of several nodes, the one that saw it first; with one node there is nothing to choose and nothing to group.
first_nodes as (
    select
        txid,
        arg_min(node, (entered_at, node)) as node
    from mempool_residence
    where first_seen_kind = 'pushed' and (select count(distinct nodes.node) from mempool_residence as nodes) > 1
    group by txid
),

entered as (
    select
        stay.stay_no,
        stay.node,
        cast(stay.entered_at as date) as day,
        coalesce(stay.first_cut_no, 0) as wait_no,
        coalesce(stay.node = first_nodes.node, true) as is_counted,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        if(mempool_returns.stay_no is null, stay.left_reason, mempool_returns.left_reason) as left_reason,
        if(mempool_returns.stay_no is null, stay.left_position, mempool_returns.left_position)
        // 4294967296 - epoch_us(stay.entered_at) as left_after_us,
        epoch_us(in_step.to_at) - epoch_us(stay.entered_at) as seen_for_us
    from mempool_residence as stay
    asof inner join in_step
        on stay.node = in_step.node and stay.session = in_step.session and stay.entered_at >= in_step.from_at
    left join mempool_returns
        on stay.stay_no = mempool_returns.stay_no
    left join first_nodes
        on stay.txid = first_nodes.txid
    where
        stay.first_seen_kind = 'pushed'
        and stay.entered_at <= in_step.to_at
        and (mempool_returns.stay_no is null or mempool_returns.stay_no = mempool_returns.first_stay_no)
),

ended as (
    select
        stay_no,
        node,
        day,
        feerate_sat_vb,
        wait_no,
        is_counted,
        cast(greatest(least(coalesce(left_after_us, seen_for_us), seen_for_us), 0) as bigint) / 1e6 as delay_s,
        case
            when left_after_us is null or left_after_us > seen_for_us or left_reason = 'undone' then 'censored'
            when left_reason = 'mined' then 'mined'
            when left_reason in ('replaced', 'conflict') then 'replaced'
            when left_reason = 'expired_or_evicted' then 'expired'
            else 'other'
        end as outcome
    from entered
)

select
    stay_no,
    node,
    day,
    feerate_sat_vb,
    case
        when feerate_sat_vb is not null
            then ntile(10) over (
                partition by node, day, feerate_sat_vb is null
                order by feerate_sat_vb, stay_no
            )
    end as decile,
    delay_s,
    outcome,
    wait_no,
    is_counted
from ended
order by stay_no
