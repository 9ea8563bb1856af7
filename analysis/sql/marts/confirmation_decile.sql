/*
summary = "What became of the transactions of each feerate decile."
method = """
Counts of the counted spells of confirmation_spells, from confirmation_cells. accepted_ratio is the number of mined
transactions divided by those whose end was seen, with a jackknife interval over the block intervals of their entry. It
is too high where many are censored, because being mined is the fastest end; confirmation_delay does not have that
fault. half_mined_s is the time by which half of the decile was mined, by the cumulative incidence, which includes those
that are never mined; it is rounded up as the delays of confirmation_cells are. Deciles are made anew for each day
(confirmation_feerates), so feerate_median_sat_vb is the median day's: of the days, each with the median of its decile.
"""
grain = ["decile"]
[parameters]
min_intervals = {value = 5, doc = "block intervals; fewer give no interval"}
[columns]
decile = "BIGINT  1 pays least, 10 most; 0 for all, those of unknown feerate included"
n_entered = "BIGINT  number of spells"
n_mined = "BIGINT  spells that ended mined"
n_replaced = "BIGINT  spells that ended replaced, or in conflict with what was mined"
n_expired = "BIGINT  spells that ended expired or evicted"
n_other = "BIGINT  spells that ended for another reason"
n_censored = "BIGINT  transactions whose end was not seen"
feerate_low_sat_vb = "DOUBLE  sat/vB, lowest of any day"
feerate_median_sat_vb = "DOUBLE  sat/vB, median over days of the median of the day"
feerate_high_sat_vb = "DOUBLE  sat/vB, highest of any day"
accepted_ratio = "DOUBLE  0..1, n_mined / (n_entered - n_censored)"
accepted_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
accepted_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
half_mined_s = "DOUBLE  s after entry by which half were mined; null when fewer were"
*/
with

cells as (
    select
        unnest(if(decile = 0, [0], [0, decile])) as decile,
        wait_no,
        outcome,
        n_spells
    from confirmation_cells
),

waits as (
    select
        decile,
        wait_no,
        cast(coalesce(sum(n_spells) filter (where outcome = 'mined'), 0) as bigint) as taken,
        cast(coalesce(sum(n_spells) filter (where outcome != 'censored'), 0) as bigint) as offered
    from cells
    group by decile, wait_no
),

wait_lists as (
    select
        decile,
        list(struct_pack(taken := taken, offered := offered) order by wait_no) as waits
    from waits
    where offered > 0
    group by decile
),

counts as (
    select
        decile,
        cast(sum(n_spells) as bigint) as n_entered,
        cast(coalesce(sum(n_spells) filter (where outcome = 'mined'), 0) as bigint) as n_mined,
        cast(coalesce(sum(n_spells) filter (where outcome = 'replaced'), 0) as bigint) as n_replaced,
        cast(coalesce(sum(n_spells) filter (where outcome = 'expired'), 0) as bigint) as n_expired,
        cast(coalesce(sum(n_spells) filter (where outcome = 'other'), 0) as bigint) as n_other,
        cast(coalesce(sum(n_spells) filter (where outcome = 'censored'), 0) as bigint) as n_censored
    from cells
    group by decile
),

feerates as (
    select
        decile,
        min(low_sat_vb) as feerate_low_sat_vb,
        median(median_sat_vb) as feerate_median_sat_vb,
        max(high_sat_vb) as feerate_high_sat_vb
    from confirmation_feerates
    group by decile
),

judged as (
    select
        counts.*,
        block_ratio_interval(wait_lists.waits, getvariable('min_intervals')) as accepted_interval
    from counts
    left join wait_lists
        on counts.decile = wait_lists.decile
)

select
    judged.decile,
    judged.n_entered,
    judged.n_mined,
    judged.n_replaced,
    judged.n_expired,
    judged.n_other,
    judged.n_censored,
    feerates.feerate_low_sat_vb,
    feerates.feerate_median_sat_vb,
    feerates.feerate_high_sat_vb,
    judged.n_mined / nullif(judged.n_entered - judged.n_censored, 0) as accepted_ratio,
    judged.accepted_interval.low as accepted_low_ratio,
    judged.accepted_interval.high as accepted_high_ratio,
    confirmation_curves.curves.half_mined_s
from judged
inner join confirmation_curves
    on judged.decile = confirmation_curves.decile
left join feerates
    on judged.decile = feerates.decile
order by judged.decile
