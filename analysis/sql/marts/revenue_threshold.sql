/*
summary = "Does hashrate grow when a unit of it earns more than a threshold? Estimated and tested over difficulty epochs."
method = """
Level: the network's hashprice in an epoch (revenue). Response: ln of the next epoch's difficulty / this one's. The
protocol measures exactly that: mean hashrate of this epoch compared with the one before. Two means are fitted by least
squares, at levels up to the threshold and above it (analysis/stats/threshold.py); the interval is that of B. E. Hansen,
2000, the p-value comes from circular shifts. Two series with a trend look related, so a cubic polynomial over the
epochs is subtracted from ln level and from growth before the p-value: else 62 to 77 % of simulated unrelated series with
a common trend have p < 0.05, then 0 to 5 %. arXiv:1902.07549 states that hashrate grows when unit revenue is above a
threshold; a small later_p_value and later_above_growth > later_below_growth support that. The columns without later_
share this epoch's difficulty between level and response: luck of some 2 % that makes it too high lowers both, and up to
24 % of simulated unrelated series have p < 0.05. The later_* columns do not have that fault: they fit the growth one
epoch later, so that the level comes first. Only epochs that follow each other are paired.
"""
grain = ["unit"]
[columns]
unit = "VARCHAR  usd or sat, what the hashprice is in"
n_epochs = "BIGINT  pairs of an epoch and the next"
threshold_per_ph_day = "DOUBLE  USD or sat for 1 PH/s during a day; null for fewer than 20 epochs"
threshold_low_per_ph_day = "DOUBLE  lower bound of the 95 % interval"
threshold_high_per_ph_day = "DOUBLE  upper bound of the 95 % interval"
below_growth = "DOUBLE  mean growth per epoch, ln, at or below the threshold"
above_growth = "DOUBLE  mean growth per epoch, ln, above it"
r_squared = "DOUBLE  0..1, part of the variance of growth that the split explains"
p_value = "DOUBLE  0..1, small: there is a threshold"
later_threshold_per_ph_day = "DOUBLE  threshold of the growth one epoch later; null for fewer than 20 epochs"
later_threshold_low_per_ph_day = "DOUBLE  lower bound of the 95 % interval"
later_threshold_high_per_ph_day = "DOUBLE  upper bound of the 95 % interval"
later_below_growth = "DOUBLE  mean of that growth, ln, at or below its threshold"
later_above_growth = "DOUBLE  mean of that growth, ln, above it"
later_p_value = "DOUBLE  0..1, small: that growth has a threshold"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

difficulties as (
    select
        cast(period as integer) as epoch,
        mean_difficulty
    from hashrate
    where grouped_by = 'network' and period_kind = 'epoch' and mean_difficulty > 0
),

levels as (
    select
        cast(period as integer) as epoch,
        unnest(['usd', 'sat']) as unit,
        unnest([hashprice_usd_per_ph_day, hashprice_sat_per_ph_day]) as hashprice,
        told_by
    from revenue
    where grouped_by = 'network' and period_kind = 'epoch'
),

pairs as (
    select
        levels.epoch,
        levels.unit,
        levels.hashprice,
        levels.told_by,
        ln(following.mean_difficulty / difficulties.mean_difficulty) as growth,
        ln(later.mean_difficulty / following.mean_difficulty) as later_growth
    from levels
    inner join difficulties
        on levels.epoch = difficulties.epoch
    inner join difficulties as following
        on levels.epoch + 1 = following.epoch
    left join difficulties as later
        on levels.epoch + 2 = later.epoch
    where levels.hashprice > 0
),

fits as (
    select
        unit,
        count(*) as n_epochs,
        sources_of(flatten(list(told_by))) as told_by,
        detrended_threshold_fit(list(hashprice order by epoch), list(growth order by epoch)) as fit,
        detrended_threshold_fit(
            list(hashprice order by epoch) filter (where later_growth is not null),
            list(later_growth order by epoch) filter (where later_growth is not null)
        ) as later
    from pairs
    group by unit
)

select
    unit,
    n_epochs,
    fit.threshold as threshold_per_ph_day,
    fit.low as threshold_low_per_ph_day,
    fit.high as threshold_high_per_ph_day,
    fit.below_mean as below_growth,
    fit.above_mean as above_growth,
    fit.r_squared,
    fit.p_value,
    later.threshold as later_threshold_per_ph_day,
    later.low as later_threshold_low_per_ph_day,
    later.high as later_threshold_high_per_ph_day,
    later.below_mean as later_below_growth,
    later.above_mean as later_above_growth,
    later.p_value as later_p_value,
    told_by
from fits
order by unit
