/*
summary = "What became of the transactions of each feerate decile."
method = """
Counts of the counted spells of confirmation_spells, from confirmation_cells. accepted_ratio is the number of mined
transactions divided by those whose end was seen, with a jackknife interval over the batches of block intervals of
confirmation_curves, because one block interval influences the next ones. In simulated chances with a correlation of up
to 0.8 between neighbouring intervals, 30 batches hold the truth in 87 to 95 % of samples of 144 intervals and more
(single intervals in 65 %); with 0.95 in 89 % of samples of 1,000 and in 50 % of 144. The ratio is too high where many
are censored, because being mined is the fastest end; confirmation_delay does not have that fault. half_mined_s is the
time by which half of the decile was mined, by the cumulative incidence, which includes those that are never mined; it
is rounded up as the delays of confirmation_cells are. Deciles are made anew for each day (confirmation_feerates), so
feerate_median_sat_vb is the median day's: of the days, each with the median of its decile.
"""
grain = ["decile"]
[parameters]
min_intervals = {value = 5, doc = "block intervals; fewer give no interval"}
max_batches = {value = 30, doc = "batches of block intervals, over which the jackknife goes"}
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

-- The many cells are summed once, for their decile and for all.
sums as (
    select
        decile,
        wait_no,
        outcome,
        sum(n_spells) as n_spells
    from confirmation_cells
    group by decile, wait_no, outcome
),

placed as (
    select
        unnest(if(decile = 0, [0], [0, decile])) as decile,
        wait_no,
        outcome,
        n_spells
    from sums
),

waits as (
    select
        decile,
        wait_no,
        sum(n_spells) as n_entered,
        cast(coalesce(sum(n_spells) filter (where outcome = 'mined'), 0) as bigint) as n_mined,
        coalesce(sum(n_spells) filter (where outcome = 'replaced'), 0) as n_replaced,
        coalesce(sum(n_spells) filter (where outcome = 'expired'), 0) as n_expired,
        coalesce(sum(n_spells) filter (where outcome = 'other'), 0) as n_other,
        cast(coalesce(sum(n_spells) filter (where outcome != 'censored'), 0) as bigint) as n_ended
    from placed
    group by decile, wait_no
),

counts as (
    select
        decile,
        cast(sum(n_entered) as bigint) as n_entered,
        cast(sum(n_mined) as bigint) as n_mined,
        cast(sum(n_replaced) as bigint) as n_replaced,
        cast(sum(n_expired) as bigint) as n_expired,
        cast(sum(n_other) as bigint) as n_other,
        cast(sum(n_entered) - sum(n_ended) as bigint) as n_censored
    from waits
    group by decile
),

numbered as (
    select
        decile,
        n_mined,
        n_ended,
        batch_of(
            row_number() over (partition by decile order by wait_no = 0, wait_no),
            count(*) over (partition by decile),
            getvariable('max_batches')
        ) as batch
    from waits
),

batches as (
    select
        decile,
        batch,
        cast(sum(n_mined) as bigint) as taken,
        cast(sum(n_ended) as bigint) as offered
    from numbered
    group by decile, batch
),

intervals as (
    select
        decile,
        block_ratio_interval(
            list(struct_pack(taken := taken, offered := offered) order by batch) filter (where offered > 0),
            getvariable('min_intervals')
        ) as accepted_interval
    from batches
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
        intervals.accepted_interval
    from counts
    inner join intervals
        on counts.decile = intervals.decile
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
