/*
summary = "Does hashrate grow exponentially? ln H = lambda t + c per owner, how well it fits, and what its residuals show."
method = """
Ordinary least squares on the daily observed hashrate, t in days since 1970-01-01 (arXiv:1902.07549;
analysis/stats/growth.py). The bounds of lambda allow for residuals that depend on the day before. Residuals are checked
by Durbin and Watson's statistic (2: independent) and by Jarque and Bera's test of normality. A high r_squared alone
does not prove exponential growth; hashrate_segment shows breaks. Days without a block of the owner have no logarithm
and are left out, which favours small pools. Series of fewer than min_days days, and unknown, are not fitted.
"""
grain = ["grouped_by", "owner"]
[parameters]
min_days = {value = 30, doc = "days with a block; fewer give no fit"}
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'all' for the network"
owner_name = "VARCHAR  name of the owner"
first_day = "DATE  first day with a block"
last_day = "DATE  last day with a block"
n_days = "BIGINT  days fitted"
lambda_per_day = "DOUBLE  1/day, growth rate"
lambda_low_per_day = "DOUBLE  1/day, lower bound of the 95 % interval"
lambda_high_per_day = "DOUBLE  1/day, upper bound of the 95 % interval"
doubling_days = "DOUBLE  days, ln 2 / lambda; negative: halving"
intercept = "DOUBLE  c, ln of hashes/s on 1970-01-01"
r_squared = "DOUBLE  0..1, part of the variance of ln H that the line explains"
adjusted_r_squared = "DOUBLE  the same, allowing for the number of parameters"
residual_sd = "DOUBLE  standard deviation of the residuals of ln H"
durbin_watson = "DOUBLE  0..4, 2 for independent residuals, 0 when neighbours are alike"
normality_p_value = "DOUBLE  0..1, small: residuals are not normal"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

days as (
    select
        grouped_by,
        owner,
        owner_name,
        min(cast(period as date)) as first_day,
        max(cast(period as date)) as last_day,
        count(*) as n_days,
        sources_of(flatten(list(told_by))) as told_by,
        growth_fit(
            list(cast(cast(period as date) - date '1970-01-01' as double) order by period),
            list(observed_hashes_per_s order by period)
        ) as fit
    from hashrate
    where period_kind = 'day' and not is_unknown and observed_hashes_per_s > 0
    group by grouped_by, owner, owner_name
    having count(*) >= getvariable('min_days')
)

select
    grouped_by,
    owner,
    owner_name,
    first_day,
    last_day,
    n_days,
    fit.lambda_per_day,
    fit.lambda_low_per_day,
    fit.lambda_high_per_day,
    ln(2) / nullif(fit.lambda_per_day, 0) as doubling_days,
    fit.intercept,
    fit.r_squared,
    fit.adjusted_r_squared,
    fit.residual_sd,
    fit.durbin_watson,
    fit.normality_p_value,
    told_by
from days
order by grouped_by, owner
