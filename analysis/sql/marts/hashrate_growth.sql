/*
summary = "Does hashrate grow exponentially? ln H = lambda t + c per owner, how well it fits, and what its residuals show."
method = """
The network: least squares on ln H of each day's observed hashrate (arXiv:1902.07549), t in days since 1970-01-01. An
owner: the same line, with its part of the day's blocks fitted as a count (quasi-Poisson, analysis/stats/growth.py). A
day of the network without a block of the owner counts as 0; of days whose blocks are all unknown, nothing is known of
an owner. For large pools this is nearly least squares on ln H, as in the paper; for few blocks ln falls short of that
of their mean, and for none it does not exist, so small pools would seem to grow or shrink too little. The bounds of
lambda allow for residuals that depend on the day before. Residuals are checked by Durbin and Watson's statistic (2:
independent) and by Jarque and Bera's test of normality, which few blocks per day fail. A high r_squared alone does not
prove exponential growth; hashrate_segment shows breaks. Series with fewer than min_days days with a block, and unknown,
are not fitted.
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
n_days = "BIGINT  days fitted, also those without a block of the owner"
lambda_per_day = "DOUBLE  1/day, growth rate"
lambda_low_per_day = "DOUBLE  1/day, lower bound of the 95 % interval"
lambda_high_per_day = "DOUBLE  1/day, upper bound of the 95 % interval"
doubling_days = "DOUBLE  days, ln 2 / lambda; negative: halving"
intercept = "DOUBLE  c, ln of hashes/s on 1970-01-01"
r_squared = "DOUBLE  0..1, part of the variance of ln H, that the line explains; of owners weighted by expected blocks"
adjusted_r_squared = "DOUBLE  the same, allowing for the number of parameters"
residual_sd = "DOUBLE  standard deviation of a day's hashrate about the curve, as a part of it"
durbin_watson = "DOUBLE  0..4, 2 for independent residuals, 0 when neighbours are alike"
normality_p_value = "DOUBLE  0..1, small: residuals are not normal"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

rates as (
    select
        grouped_by,
        owner,
        owner_name,
        cast(period as date) as day,
        case when timed_block_count = 0 then 0 else observed_hashes_per_s end as hashes_per_s,
        told_by
    from hashrate
    where period_kind = 'day' and not is_unknown
),

networks as (
    select
        cast(period as date) as day,
        observed_hashes_per_s as network_hashes_per_s,
        timed_block_count as network_block_count
    from hashrate
    where period_kind = 'day' and grouped_by = 'network' and observed_hashes_per_s > 0
),

owned_days as (
    select distinct
        grouped_by,
        day
    from rates
),

-- Days of which an owner is known.
days as (
    select
        owned_days.grouped_by,
        owned_days.day,
        networks.network_hashes_per_s,
        networks.network_block_count
    from owned_days
    inner join networks
        on owned_days.day = networks.day
),

owners as (
    select
        grouped_by,
        owner,
        owner_name,
        min(day) as first_day,
        max(day) as last_day,
        sources_of(flatten(list(told_by))) as told_by
    from rates
    where hashes_per_s > 0
    group by grouped_by, owner, owner_name
    having count(*) >= getvariable('min_days')
),

series as (
    select
        owners.grouped_by,
        owners.owner,
        days.day,
        days.network_hashes_per_s,
        days.network_block_count,
        case when rates.owner is null then 0 else rates.hashes_per_s end as hashes_per_s
    from owners
    inner join days
        on owners.grouped_by = days.grouped_by
    left join rates
        on owners.grouped_by = rates.grouped_by and owners.owner = rates.owner and days.day = rates.day
),

fits as (
    select
        grouped_by,
        owner,
        count(*) as n_days,
        case
            when grouped_by = 'network'
                then growth_fit(
                    list(cast(day - date '1970-01-01' as double) order by day),
                    list(hashes_per_s order by day)
                )
            else count_growth_fit(
                list(cast(day - date '1970-01-01' as double) order by day),
                list(hashes_per_s order by day),
                list(network_hashes_per_s order by day),
                list(cast(network_block_count as double) order by day)
            )
        end as fit
    from series
    where hashes_per_s is not null
    group by grouped_by, owner
)

select
    owners.grouped_by,
    owners.owner,
    owners.owner_name,
    owners.first_day,
    owners.last_day,
    fits.n_days,
    fits.fit.lambda_per_day,
    fits.fit.lambda_low_per_day,
    fits.fit.lambda_high_per_day,
    ln(2) / nullif(fits.fit.lambda_per_day, 0) as doubling_days,
    fits.fit.intercept,
    fits.fit.r_squared,
    fits.fit.adjusted_r_squared,
    fits.fit.residual_sd,
    fits.fit.durbin_watson,
    fits.fit.normality_p_value,
    owners.told_by
from owners
inner join fits
    on owners.grouped_by = fits.grouped_by and owners.owner = fits.owner
order by owners.grouped_by, owners.owner
