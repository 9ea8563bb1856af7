/*
summary = "What users sent on each day: fees, sizes, replacements and children that pay for parents."
method = """
Stays of mempool_residence whose entry was pushed, by node and UTC day of entry on our clock. n_replaced are those
that a later transaction replaced; n_signalling those that signal BIP125 themselves. A transaction with an unconfirmed
parent is a child; it pays for its parent (CPFP) when its own feerate is above that of one of its parents waiting at
entry. Fees and sizes are quartiles; those of unknown fee are left out of fees and feerates. accepted_ratio is mined
ones among those whose end was seen (confirmation_spells), with Wilson's interval; as in confirmation_decile it is too
high on days of which many are still waiting.
"""
grain = ["node", "day"]
[columns]
node = "VARCHAR  name of the watched node"
day = "DATE  UTC day of entry, our clock"
n_entered = "BIGINT  transactions that entered"
n_known_fee = "BIGINT  those of them whose fee is known"
fee_q1_sat = "DOUBLE  sat, lower quartile"
fee_median_sat = "DOUBLE  sat, median"
fee_q3_sat = "DOUBLE  sat, upper quartile"
feerate_q1_sat_vb = "DOUBLE  sat/vB, lower quartile"
feerate_median_sat_vb = "DOUBLE  sat/vB, median"
feerate_q3_sat_vb = "DOUBLE  sat/vB, upper quartile"
size_q1_vb = "DOUBLE  vB, lower quartile of the virtual sizes"
size_median_vb = "DOUBLE  vB, median"
size_q3_vb = "DOUBLE  vB, upper quartile"
n_signalling = "BIGINT  signal BIP125 replaceability"
signalling_ratio = "DOUBLE  0..1, of those of which we know"
n_replaced = "BIGINT  were replaced, conflicts not counted"
replaced_ratio = "DOUBLE  0..1, of all that entered"
n_children = "BIGINT  had an unconfirmed parent"
child_ratio = "DOUBLE  0..1, of all that entered"
n_cpfp = "BIGINT  paid a higher feerate than a parent that was waiting"
cpfp_ratio = "DOUBLE  0..1, of all that entered"
n_mined = "BIGINT  were mined before we lost sight of them"
n_censored = "BIGINT  end not seen"
accepted_ratio = "DOUBLE  0..1, n_mined of those whose end was seen; null when there are none"
accepted_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
accepted_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
*/
with

entered as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        stay.parents,
        stay.entered_at,
        stay.fee_sat,
        stay.vsize_vb,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        stay.left_reason,
        entry.signals_rbf
    from mempool_residence as stay
    inner join stg_mempool_txs as entry
        on stay.node = entry.node and stay.txid = entry.txid and stay.entered_at = entry.entered_at
    where stay.first_seen_kind = 'pushed'
),

child_links as (
    select
        stay_no,
        node,
        fee_sat / nullif(vsize_vb, 0) as feerate_sat_vb,
        position,
        unnest(parents) as parent_txid
    from mempool_residence
    where parents is not null and first_seen_kind = 'pushed'
),

payers as (
    select distinct child_links.stay_no
    from child_links
    inner join mempool_residence as parent
        on
            child_links.node = parent.node
            and child_links.parent_txid = parent.txid
            and child_links.position > parent.position
            and (child_links.position < parent.left_position or parent.left_position is null)
    where child_links.feerate_sat_vb > parent.fee_sat / nullif(parent.vsize_vb, 0)
),

counts as (
    select
        entered.node,
        cast(entered.entered_at as date) as day,
        count(*) as n_entered,
        count(entered.fee_sat) as n_known_fee,
        quantile_cont(entered.fee_sat, [0.25, 0.5, 0.75]) as fees_sat,
        quantile_cont(entered.feerate_sat_vb, [0.25, 0.5, 0.75]) as feerates_sat_vb,
        quantile_cont(entered.vsize_vb, [0.25, 0.5, 0.75]) as sizes_vb,
        count(entered.signals_rbf) as n_known_signal,
        count(*) filter (where entered.signals_rbf) as n_signalling,
        count(*) filter (where entered.left_reason = 'replaced') as n_replaced,
        count(entered.parents) as n_children,
        count(payers.stay_no) as n_cpfp,
        count(*) filter (where spell.outcome = 'mined') as n_mined,
        count(*) filter (where spell.outcome != 'censored') as n_ended
    from entered
    left join payers
        on entered.stay_no = payers.stay_no
    left join confirmation_spells as spell
        on entered.stay_no = spell.stay_no
    group by entered.node, cast(entered.entered_at as date)
),

judged as (
    select
        *,
        wilson_interval(n_mined, n_ended) as accepted_interval
    from counts
)

select
    node,
    day,
    n_entered,
    n_known_fee,
    fees_sat[1] as fee_q1_sat,
    fees_sat[2] as fee_median_sat,
    fees_sat[3] as fee_q3_sat,
    feerates_sat_vb[1] as feerate_q1_sat_vb,
    feerates_sat_vb[2] as feerate_median_sat_vb,
    feerates_sat_vb[3] as feerate_q3_sat_vb,
    sizes_vb[1] as size_q1_vb,
    sizes_vb[2] as size_median_vb,
    sizes_vb[3] as size_q3_vb,
    n_signalling,
    n_signalling / nullif(n_known_signal, 0) as signalling_ratio,
    n_replaced,
    n_replaced / n_entered as replaced_ratio,
    n_children,
    n_children / n_entered as child_ratio,
    n_cpfp,
    n_cpfp / n_entered as cpfp_ratio,
    n_mined,
    n_entered - n_ended as n_censored,
    n_mined / nullif(n_ended, 0) as accepted_ratio,
    accepted_interval.low as accepted_low_ratio,
    accepted_interval.high as accepted_high_ratio
from judged
order by node, day
