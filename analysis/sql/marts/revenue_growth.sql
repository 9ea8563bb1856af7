/*
summary = "Prisoner's dilemma and Malthusian trap as figures: growth of hashrate, of revenue and of revenue per unit."
method = """
ln y = lambda t + c over days (analysis/stats/growth.py), for hashrate (hashrate.observed_hashes_per_s), revenue and
hashprice (revenue; rates per day, so a day that the dataset has only in part counts with what it earned in its time).
The Malthusian trap means that hashrate grows until what a unit of it earns has fallen: hashrate lambda above revenue
lambda, hashprice lambda below 0. The prisoner's dilemma means that each pool still grows: its own hashrate lambda is
above 0 while its hashprice lambda is below 0. A figure is only as good as its interval, and a window without a change
of price or subsidy cannot show either. Series of fewer than min_days days are left out.
"""
grain = ["grouped_by", "owner", "metric"]
[parameters]
min_days = {value = 30, doc = "days with a value; fewer give no fit"}
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'all' for the network"
metric = "VARCHAR  hashrate, revenue_sat, revenue_usd, hashprice_sat or hashprice_usd"
n_days = "BIGINT  days fitted"
lambda_per_day = "DOUBLE  1/day, growth rate"
lambda_low_per_day = "DOUBLE  1/day, lower bound of the 95 % interval"
lambda_high_per_day = "DOUBLE  1/day, upper bound of the 95 % interval"
r_squared = "DOUBLE  0..1, part of the variance of the logarithm that the line explains"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

daily as (
    select
        grouped_by,
        owner,
        period,
        'hashrate' as metric,
        observed_hashes_per_s as amount,
        told_by
    from hashrate
    where period_kind = 'day' and not is_unknown
    union all
    select
        grouped_by,
        owner,
        period,
        unnest(['revenue_sat', 'revenue_usd', 'hashprice_sat', 'hashprice_usd']) as metric,
        unnest([
            revenue_sat_per_day,
            revenue_usd_per_day,
            hashprice_sat_per_ph_day,
            hashprice_usd_per_ph_day
        ]) as amount,
        told_by
    from revenue
    where period_kind = 'day' and not is_unknown
),

fits as (
    select
        grouped_by,
        owner,
        metric,
        count(*) as n_days,
        sources_of(flatten(list(told_by))) as told_by,
        growth_fit(
            list(cast(cast(period as date) - date '1970-01-01' as double) order by period),
            list(amount order by period)
        ) as fit
    from daily
    where amount > 0
    group by grouped_by, owner, metric
    having count(*) >= getvariable('min_days')
)

select
    grouped_by,
    owner,
    metric,
    n_days,
    fit.lambda_per_day,
    fit.lambda_low_per_day,
    fit.lambda_high_per_day,
    fit.r_squared,
    told_by
from fits
order by grouped_by, owner, metric
