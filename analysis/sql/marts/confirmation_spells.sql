/*
summary = "How long each transaction waited, how that ended, and when we stopped looking."
method = """
Stays of mempool_residence whose entry was pushed while our copy of the mempool was in step. Transactions that were
waiting before we began have an unknown beginning and are left out. A spell ends with the stay, as mined, replaced
(including conflicts with a mined transaction), expired or other. A spell that is open when the uninterrupted
observation ends is censored there. A block that became stale confirms nothing: the spell goes on to what came after it
(mempool_returns), or is censored at that block when nothing did. A block that a node connects, leaves and connects
again has confirmed its transactions the first time: each has one spell, which ends there. Deciles rank the
transaction's own feerate among those of its node and UTC day of entry; decile 1 pays least. So a rise of all fees moves
no transaction to another decile. Spells without a known fee have no decile. A transaction that several nodes saw would
count several times: is_counted is false where another node, of whose mempool our copy was in step, saw it before on
that day or the day before.
"""
cost = """
Deciles within a day sort all stays by feerate; a plain scan sorts nothing.
"""
grain = ["stay_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_residence = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_entries = "stay_no >= getvariable('range_from') - 1000000000 and stay_no < getvariable('range_to')"
mempool_returns = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to') + 2"
watch_periods = """from_at < getvariable('range_to_at')
and (to_at >= getvariable('range_from_at') - interval 1 day or to_at is null)"""
latest_watch = """(last_cut_no <= (select max(last_cut_no) from mempool_residence)
or to_position <= (select max(left_position) from mempool_residence))"""
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
node = "VARCHAR  name of the watched node"
day = "DATE  UTC day of entry, our clock"
feerate_sat_vb = "DOUBLE  sat/vB, own fee / vsize; null when never learnt"
decile = "BIGINT  1 (pays least) to 10, of its node and day: tenths of equal number, equal feerates in order of entry; null without a feerate"
delay_s = "DOUBLE  s from entry to the end of the spell"
outcome = "VARCHAR  mined, replaced, expired, other or censored"
wait_no = "BIGINT  block interval of entry: height of the node's next block (its cut_no where that is not known, and where a UTC day without a block lies between), 0 behind its last one; spells of one interval are not independent"
is_counted = "BOOLEAN  true at the node that saw the transaction first of those in step; curves and sums use only these spells"
*/
with

-- Where the end of the newest period is not read, everything of this day and of the day before ended before it.
in_step as (
    select
        watch_periods.node,
        watch_periods.session,
        watch_periods.from_at,
        coalesce(watch_periods.to_at, latest_watch.to_at) as to_at
    from watch_periods
    left join latest_watch
        on watch_periods.node = latest_watch.node and watch_periods.from_at = latest_watch.from_at
),

-- With one node there is nothing to compare.
compared as (
    select
        stay_no,
        node,
        session,
        txid,
        entered_at
    from mempool_entries
    where first_seen_kind = 'pushed' and (select count(distinct nodes.node) from mempool_entries as nodes) > 1
),

pushed as (
    select
        compared.stay_no,
        compared.node,
        compared.txid,
        compared.entered_at
    from compared
    asof inner join in_step
        on
            compared.node = in_step.node
            and compared.session = in_step.session
            and compared.entered_at >= in_step.from_at
    where in_step.to_at is null or compared.entered_at <= in_step.to_at
),

seen_before as (
    select distinct later.stay_no
    from pushed as later
    inner join pushed as earlier
        on
            later.txid = earlier.txid
            and later.node != earlier.node
            and earlier.stay_no // 1000000000 >= later.stay_no // 1000000000 - 1
    where earlier.entered_at < later.entered_at or (earlier.entered_at = later.entered_at and earlier.node < later.node)
),

entered as (
    select
        stay.stay_no,
        stay.node,
        cast(stay.entered_at as date) as day,
        coalesce(mempool_cuts.height, stay.first_cut_no, 0) as wait_no,
        seen_before.stay_no is null as is_counted,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        if(mempool_returns.stay_no is null, stay.left_reason, mempool_returns.left_reason) as left_reason,
        epoch_us(if(mempool_returns.stay_no is null, stay.left_at, mempool_returns.left_at))
        - epoch_us(stay.entered_at) as left_after_us,
        epoch_us(in_step.to_at) - epoch_us(stay.entered_at) as seen_for_us
    from mempool_residence as stay
    asof inner join in_step
        on stay.node = in_step.node and stay.session = in_step.session and stay.entered_at >= in_step.from_at
    left join mempool_cuts
        on
            stay.node = mempool_cuts.node
            and stay.first_cut_no = mempool_cuts.cut_no
            and mempool_cuts.cut_no < (stay.stay_no // 1000000000 + 1) * 1000000000 + 2  -- + 1 is the first of a day
    left join mempool_returns
        on stay.stay_no = mempool_returns.stay_no
    left join seen_before
        on stay.stay_no = seen_before.stay_no
    where
        stay.first_seen_kind = 'pushed'
        and (in_step.to_at is null or stay.entered_at <= in_step.to_at)
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
        cast(greatest(least(left_after_us, seen_for_us), 0) as bigint) / 1e6 as delay_s,
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
