/*
summary = "How long each transaction waited, how that ended, and when we stopped looking."
method = """
Stays of mempool_residence whose entry was pushed while our copy of the mempool was in step: what was waiting before
we came has an unknown beginning and is left out. A spell ends with the stay, as mined, replaced (conflicts with a
mined transaction included), expired or other; if that is later than the last moment until which everything was seen,
it is censored there: the end of the uninterrupted observation or the session's last block. Deciles are by the
transaction's own feerate among those of its node and UTC day of entry, 1 pays least, so a rise of all fees moves
nobody. Spells without a known fee have no decile.
"""
cost = """
Deciles within a day sort all stays by feerate; a scan sorts nothing.
"""
grain = ["stay_no"]
[columns]
stay_no = "BIGINT  names a row of mempool_residence"
node = "VARCHAR  name of the watched node"
day = "DATE  UTC day of entry, our clock"
feerate_sat_vb = "DOUBLE  sat/vB, own fee / vsize; null when never learnt"
decile = "BIGINT  1 (pays least) to 10, of its node and day; null without a feerate"
delay_s = "DOUBLE  s from entry to the end of the spell"
outcome = "VARCHAR  mined, replaced, expired, other or censored"
*/
with

last_cuts as (
    select
        node,
        session,
        max(connected_at) as last_cut_at
    from mempool_cuts
    group by node, session
),

in_step as (
    select
        node,
        session,
        from_at,
        to_at
    from coverage_intervals
    where topic = 'mempool'
),

entered as (
    select
        stay.stay_no,
        stay.node,
        stay.entered_at,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        stay.left_reason,
        stay.left_position // 4294967296 - epoch_us(stay.entered_at) as left_after_us,
        epoch_us(least(in_step.to_at, last_cuts.last_cut_at)) - epoch_us(stay.entered_at) as seen_for_us
    from mempool_residence as stay
    asof inner join in_step
        on stay.node = in_step.node and stay.session = in_step.session and stay.entered_at >= in_step.from_at
    inner join last_cuts
        on stay.node = last_cuts.node and stay.session = last_cuts.session
    where stay.first_seen_kind = 'pushed' and stay.entered_at <= in_step.to_at
)

select
    stay_no,
    node,
    cast(entered_at as date) as day,
    feerate_sat_vb,
    case
        when feerate_sat_vb is not null
            then ntile(10) over (
                partition by node, cast(entered_at as date), feerate_sat_vb is null
                order by feerate_sat_vb, stay_no
            )
    end as decile,
    cast(greatest(least(coalesce(left_after_us, seen_for_us), seen_for_us), 0) as bigint) / 1e6 as delay_s,
    case
        when left_after_us is null or left_after_us > seen_for_us then 'censored'
        when left_reason = 'mined' then 'mined'
        when left_reason in ('replaced', 'conflict') then 'replaced'
        when left_reason = 'expired_or_evicted' then 'expired'
        else 'other'
    end as outcome
from entered
where seen_for_us >= 0
order by stay_no
