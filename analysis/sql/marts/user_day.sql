/*
summary = "What users sent on each day: fees, sizes, replacements and children that pay for parents."
method = """
Stays of mempool_residence whose entry was pushed, by node and UTC day of entry on our clock. What came back from a
block that the node left (mempool_returns) was sent before and is left out. n_replaced are those that a later
transaction replaced; n_signalling are those that signal BIP125 themselves. A transaction with an unconfirmed parent is
a child; it pays for its parent (CPFP) when its own feerate is above that of one of its parents waiting at entry. Fees
and sizes are quartiles; fees and feerates leave out transactions whose fee is unknown. accepted_ratio is the number of
mined transactions divided by those whose end was seen (confirmation_spells); as in confirmation_decile it is too high
on days of which many are still waiting. Intervals are jackknives over max_day_batches batches of consecutive block
intervals of entry, by the method of feerate_strategy, because what enters between the same two blocks is alike, and one
block interval influences the next ones. Ten batches of 144 intervals hold the truth in 93 to 95 % of simulated samples
with a correlation of up to 0.8 between neighbouring intervals, and in 71 % with 0.95.
"""
grain = ["node", "day"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_entries = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
mempool_residence = """stay_no < getvariable('range_to')
and (stay_no >= getvariable('range_from') - 2000000000 or last_cut_no >= getvariable('range_from') - 2000000000)"""
mempool_returns = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
confirmation_spells = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
[ranges.clips.mempool_residence]
last_cut_no = "least(last_cut_no, getvariable('range_to'))"
left_position = """if(left_position >= stream_position(getvariable('range_to_at') + interval 1 hour, 0), null,
left_position)"""
left_reason = "if(stay_no < getvariable('range_from'), null, left_reason)"
[parameters]
min_day_intervals = {value = 5, doc = "block intervals of a day; fewer give no interval"}
max_day_batches = {value = 10, doc = "batches of block intervals of a day, over which the jackknife goes"}
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
n_signalling = "BIGINT  transactions that signal BIP125 replaceability"
signalling_ratio = "DOUBLE  0..1, part that signals, of those of which we know it"
signalling_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
signalling_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_replaced = "BIGINT  transactions that were replaced, conflicts not counted"
replaced_ratio = "DOUBLE  0..1, part of all that entered"
replaced_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
replaced_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_children = "BIGINT  transactions with an unconfirmed parent, as far as their parents are known"
child_ratio = "DOUBLE  0..1, part of all that entered"
n_cpfp = "BIGINT  transactions with a higher feerate than a parent that was waiting"
cpfp_ratio = "DOUBLE  0..1, part of all that entered"
cpfp_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
cpfp_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_mined = "BIGINT  transactions that were mined while we observed"
n_censored = "BIGINT  transactions whose end was not seen, or that entered while our copy of the mempool was not in step"
accepted_ratio = "DOUBLE  0..1, n_mined / transactions whose end was seen; null when there are none"
accepted_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
accepted_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
*/
with

entered as (
    select
        stay.stay_no,
        stay.node,
        entry.parents,
        stay.entered_at,
        stay.fee_sat,
        stay.vsize_vb,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        coalesce(stay.first_cut_no, 0) as wait_no,
        if(mempool_returns.stay_no is null, stay.left_reason, mempool_returns.left_reason) as left_reason,
        entry.signals_rbf
    from mempool_entries as entry
    inner join mempool_residence as stay
        on entry.stay_no = stay.stay_no
    left join mempool_returns
        on stay.stay_no = mempool_returns.stay_no
    where
        entry.first_seen_kind = 'pushed'
        and (mempool_returns.stay_no is null or mempool_returns.stay_no = mempool_returns.first_stay_no)
),

-- The join comes before unnest: behind it DuckDB would join all stays of a node with each other.
children as (
    select
        entry.stay_no,
        entry.node,
        entry.position,
        entry.parents,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb
    from mempool_entries as entry
    inner join mempool_residence as stay
        on entry.stay_no = stay.stay_no
    where entry.parents is not null and entry.first_seen_kind = 'pushed'
),

child_links as (
    select
        stay_no,
        node,
        position,
        feerate_sat_vb,
        unnest(parents) as parent_txid
    from children
),

-- Parents that waited at no block since two days before are not looked at.
payers as (
    select distinct child_links.stay_no
    from child_links
    inner join mempool_residence as parent
        on
            child_links.node = parent.node
            and child_links.parent_txid = parent.txid
            and child_links.position > parent.position
            and (child_links.position < parent.left_position or parent.left_position is null)
            and child_links.stay_no // 1000000000 >= parent.stay_no // 1000000000
            and child_links.stay_no // 1000000000 - 2
            <= greatest(parent.stay_no // 1000000000, parent.last_cut_no // 1000000000)
    where child_links.feerate_sat_vb > parent.fee_sat / nullif(parent.vsize_vb, 0)
),

middles as (
    select
        node,
        cast(entered_at as date) as day,
        quantile_cont(fee_sat, [0.25, 0.5, 0.75]) as fees_sat,
        quantile_cont(feerate_sat_vb, [0.25, 0.5, 0.75]) as feerates_sat_vb,
        quantile_cont(vsize_vb, [0.25, 0.5, 0.75]) as sizes_vb
    from entered
    group by node, cast(entered_at as date)
),

waits as (
    select
        entered.node,
        cast(entered.entered_at as date) as day,
        entered.wait_no,
        count(*) as n_entered,
        count(entered.fee_sat) as n_known_fee,
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
    group by entered.node, cast(entered.entered_at as date), entered.wait_no
),

numbered as (
    select
        *,
        batch_of(
            row_number() over (partition by node, day order by wait_no = 0, wait_no),
            count(*) over (partition by node, day),
            getvariable('max_day_batches')
        ) as batch
    from waits
),

batches as (
    select
        node,
        day,
        batch,
        sum(n_entered) as n_entered,
        sum(n_known_fee) as n_known_fee,
        sum(n_known_signal) as n_known_signal,
        sum(n_signalling) as n_signalling,
        sum(n_replaced) as n_replaced,
        sum(n_children) as n_children,
        sum(n_cpfp) as n_cpfp,
        sum(n_mined) as n_mined,
        sum(n_ended) as n_ended
    from numbered
    group by node, day, batch
),

counts as (
    select
        node,
        day,
        cast(sum(n_entered) as bigint) as n_entered,
        cast(sum(n_known_fee) as bigint) as n_known_fee,
        cast(sum(n_known_signal) as bigint) as n_known_signal,
        cast(sum(n_signalling) as bigint) as n_signalling,
        cast(sum(n_replaced) as bigint) as n_replaced,
        cast(sum(n_children) as bigint) as n_children,
        cast(sum(n_cpfp) as bigint) as n_cpfp,
        cast(sum(n_mined) as bigint) as n_mined,
        cast(sum(n_ended) as bigint) as n_ended,
        list(struct_pack(taken := n_signalling, offered := n_known_signal) order by batch) filter (
            where n_known_signal > 0
        ) as signalling,
        list(struct_pack(taken := n_replaced, offered := n_entered) order by batch) as replaced,
        list(struct_pack(taken := n_cpfp, offered := n_entered) order by batch) as cpfp,
        list(struct_pack(taken := n_mined, offered := n_ended) order by batch) filter (
            where n_ended > 0
        ) as accepted
    from batches
    group by node, day
),

judged as (
    select
        counts.*,
        middles.fees_sat,
        middles.feerates_sat_vb,
        middles.sizes_vb,
        block_ratio_interval(counts.signalling, getvariable('min_day_intervals')) as signalling_interval,
        block_ratio_interval(counts.replaced, getvariable('min_day_intervals')) as replaced_interval,
        block_ratio_interval(counts.cpfp, getvariable('min_day_intervals')) as cpfp_interval,
        block_ratio_interval(counts.accepted, getvariable('min_day_intervals')) as accepted_interval
    from counts
    inner join middles
        on counts.node = middles.node and counts.day = middles.day
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
    signalling_interval.low as signalling_low_ratio,
    signalling_interval.high as signalling_high_ratio,
    n_replaced,
    n_replaced / n_entered as replaced_ratio,
    replaced_interval.low as replaced_low_ratio,
    replaced_interval.high as replaced_high_ratio,
    n_children,
    n_children / n_entered as child_ratio,
    n_cpfp,
    n_cpfp / n_entered as cpfp_ratio,
    cpfp_interval.low as cpfp_low_ratio,
    cpfp_interval.high as cpfp_high_ratio,
    n_mined,
    n_entered - n_ended as n_censored,
    n_mined / nullif(n_ended, 0) as accepted_ratio,
    accepted_interval.low as accepted_low_ratio,
    accepted_interval.high as accepted_high_ratio
from judged
order by day, node
