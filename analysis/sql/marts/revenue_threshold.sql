/*
summary = "Does hashrate grow when a unit of it earns more than a threshold? Estimated and tested over difficulty epochs."
method = """
Level: the network's hashprice in an epoch (revenue). Response: growth of the network until the next epoch, ln of
the ratio of their difficulties, which is what the protocol measured. Two means by least squares, one at levels up
to the threshold, one above (analysis/threshold.py): interval by B. E. Hansen, 2000; p-value by circular shifts. The
statement of arXiv:1902.07549, that hashrate grows when unit revenue is above a threshold, is borne out where
p_value is small and above_growth > below_growth. A higher difficulty lowers the hashprice of the next epoch by itself,
but not of the epoch whose level is used. Only epochs that follow each other are paired.
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
        unnest([hashprice_usd_per_ph_day, hashprice_sat_per_ph_day]) as hashprice
    from revenue
    where grouped_by = 'network' and period_kind = 'epoch'
),

pairs as (
    select
        levels.epoch,
        levels.unit,
        levels.hashprice,
        ln(following.mean_difficulty / difficulties.mean_difficulty) as growth
    from levels
    inner join difficulties
        on levels.epoch = difficulties.epoch
    inner join difficulties as following
        on levels.epoch + 1 = following.epoch
    where levels.hashprice is not null
),

fits as (
    select
        unit,
        count(*) as n_epochs,
        threshold_fit(list(hashprice order by epoch), list(growth order by epoch)) as fit
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
    fit.p_value
from fits
order by unit
