/*
summary = "Prisoner's dilemma and Malthusian trap as figures: growth of hashrate, of revenue and of revenue per unit."
method = """
ln y = lambda t + c over days (analysis/stats/growth.py), for hashrate (hashrate_growth), revenue and hashprice
(revenue; rates per day, so a day that the dataset has only in part counts with what it earned in its time). An owner's
revenue is fitted as its hashrate is, as its part of the network's by a count of blocks; a day without a block of the
owner counts as 0, so an owner that finds nothing any more has shrunk. Hashprice exists only on days with a block, and
is fitted by least squares on its logarithm, as is the network's revenue.
The Malthusian trap means that hashrate grows until what a unit of it earns has fallen: hashrate lambda above revenue
lambda, hashprice lambda below 0. The prisoner's dilemma means that each pool still grows: its own hashrate lambda is
above 0 while its hashprice lambda is below 0. A figure is only as good as its interval, and a window without a change
of price or subsidy cannot show either. Series of fewer than min_days days with a value above 0 are left out.
"""
grain = ["grouped_by", "owner", "metric"]
[parameters]
min_days = {value = 30, doc = "days with a value above 0; fewer give no fit"}
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'all' for the network"
metric = "VARCHAR  hashrate, revenue_sat, revenue_usd, hashprice_sat or hashprice_usd"
n_days = "BIGINT  days fitted; of hashrate and revenue also those without a block of the owner"
lambda_per_day = "DOUBLE  1/day, growth rate"
lambda_low_per_day = "DOUBLE  1/day, lower bound of the 95 % interval"
lambda_high_per_day = "DOUBLE  1/day, upper bound of the 95 % interval"
r_squared = "DOUBLE  0..1, part of the variance of the logarithm that the line explains; hashrate and revenue of owners weighted by expected blocks"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

daily as (
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

owners as (
    select
        grouped_by,
        owner,
        metric,
        sources_of(flatten(list(told_by))) as told_by
    from daily
    where amount > 0
    group by grouped_by, owner, metric
    having count(*) >= getvariable('min_days')
),

prices as (
    select
        owners.grouped_by,
        owners.owner,
        owners.metric,
        count(*) as n_days,
        growth_fit(
            list(cast(cast(daily.period as date) - date '1970-01-01' as double) order by daily.period),
            list(daily.amount order by daily.period)
        ) as fit
    from owners
    inner join daily
        on
            owners.grouped_by = daily.grouped_by
            and owners.owner = daily.owner
            and owners.metric = daily.metric
    where daily.amount > 0 and owners.metric in ('hashprice_sat', 'hashprice_usd')
    group by owners.grouped_by, owners.owner, owners.metric
),

owned_days as (
    select distinct
        grouped_by,
        period
    from daily
),

-- Days of which an owner is known, and what the network earned.
days as (
    select
        owned_days.grouped_by,
        owned_days.period,
        daily.metric,
        daily.amount as network_amount,
        hashrate.timed_block_count as network_block_count
    from owned_days
    inner join daily
        on owned_days.period = daily.period
    inner join hashrate
        on daily.period = hashrate.period
    where
        daily.grouped_by = 'network' and daily.amount > 0
        and hashrate.grouped_by = 'network' and hashrate.period_kind = 'day'
),

earned as (
    select
        owners.grouped_by,
        owners.owner,
        owners.metric,
        days.period,
        days.network_amount,
        days.network_block_count,
        case when daily.owner is null then 0 else daily.amount end as amount
    from owners
    inner join days
        on owners.grouped_by = days.grouped_by and owners.metric = days.metric
    left join daily
        on
            owners.grouped_by = daily.grouped_by
            and owners.owner = daily.owner
            and owners.metric = daily.metric
            and days.period = daily.period
    where owners.metric in ('revenue_sat', 'revenue_usd')
),

revenues as (
    select
        grouped_by,
        owner,
        metric,
        count(*) as n_days,
        case
            when grouped_by = 'network'
                then growth_fit(
                    list(cast(cast(period as date) - date '1970-01-01' as double) order by period),
                    list(amount order by period)
                )
            else count_growth_fit(
                list(cast(cast(period as date) - date '1970-01-01' as double) order by period),
                list(amount order by period),
                list(network_amount order by period),
                list(cast(network_block_count as double) order by period)
            )
        end as fit
    from earned
    where amount is not null
    group by grouped_by, owner, metric
),

fits as (
    select * from prices
    union all
    select * from revenues
),

grown as (
    select
        grouped_by,
        owner,
        'hashrate' as metric,
        n_days,
        lambda_per_day,
        lambda_low_per_day,
        lambda_high_per_day,
        r_squared,
        told_by
    from hashrate_growth
    union all
    select
        fits.grouped_by,
        fits.owner,
        fits.metric,
        fits.n_days,
        fits.fit.lambda_per_day,
        fits.fit.lambda_low_per_day,
        fits.fit.lambda_high_per_day,
        fits.fit.r_squared,
        owners.told_by
    from fits
    inner join owners
        on
            fits.grouped_by = owners.grouped_by
            and fits.owner = owners.owner
            and fits.metric = owners.metric
)

select *
from grown
order by grouped_by, owner, metric
