/*
summary = "Event study of halvings: did price, fees, revenue or hashrate change then more than at placebo dates?"
method = """
The change of the mean logarithm from window_days before to window_days after the day, without the day itself, is
compared with the same change at every other day whose windows do not overlap those of a halving
(analysis/stats/event_study.py). p_value is the part of placebo dates at least as far from their median. Their windows
overlap, so they count as n_placebos / window_days dates, and p_value cannot be smaller than one of so many. All rows
are one family of tests: adjusted_p_value is corrected for their number (Holm, as in luck), and where
least_adjusted_p_value is not small, even a change larger than at every placebo date would not stand out. Halvings are
those that the dataset shows (the subsidy halves from one active block to the next; a block without a time has no day)
and, on the main chain, the days 2012-11-28, 2016-07-09, 2020-05-11 and 2024-04-20, for which prices alone are enough.
Series are daily: price_usd from price_day, the others from revenue (rates per day, so that a day that the dataset has
only in part does not look like a fall) and hashrate of the network. A metric without enough days has nulls.
"""
grain = ["halving_day", "metric"]
[parameters]
window_days = {value = 30, doc = "days on either side of the halving"}
[columns]
halving_day = "DATE  UTC day of the header time of the first block with the new subsidy"
metric = "VARCHAR  price_usd, fees_sat, revenue_sat, revenue_usd, hashrate or hashprice_usd"
change_ratio = "DOUBLE  after / before, geometric means; 0..1 is a fall, above 1 a rise"
placebo_low_ratio = "DOUBLE  the same at placebo dates, 2.5 % quantile; 0..1 is a fall, above 1 a rise"
placebo_high_ratio = "DOUBLE  the same at placebo dates, 97.5 % quantile; 0..1 is a fall, above 1 a rise"
n_placebos = "BIGINT  placebo dates"
p_value = "DOUBLE  0..1, small: a change like this is rare at other dates"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of halvings and metrics"
least_adjusted_p_value = "DOUBLE  0..1, what it would be for a change larger than on all placebo dates and the least p of all tests"
told_by = "VARCHAR[]  sources of the blocks behind the series: observed, backfilled, or names of imported sources; empty for a price"
*/
with

subsidies as (
    select
        chain_blocks.height,
        cast(chain_blocks.header_time as date) as day,
        chain_blocks.subsidy_sat,
        lag(chain_blocks.subsidy_sat) over (order by chain_blocks.height) as previous_subsidy_sat,
        lag(chain_blocks.height) over (order by chain_blocks.height) as previous_height
    from chain_blocks
    where chain_blocks.is_active
),

known_days as (
    select unnest([date '2012-11-28', date '2016-07-09', date '2020-05-11', date '2024-04-20']) as halving_day
),

halvings as (
    select day as halving_day
    from subsidies
    where
        subsidy_sat = previous_subsidy_sat // 2
        and height = previous_height + 1
        and previous_subsidy_sat > 0
        and day is not null
    union
    select known_days.halving_day
    from known_days
    inner join build_facts
        on build_facts.key = 'chain' and build_facts.value = 'main'
),

series as (
    select
        day,
        'price_usd' as metric,
        price_usd as amount,
        cast([] as varchar[]) as told_by
    from price_day
    union all
    select
        cast(period as date) as day,
        unnest(['fees_sat', 'revenue_sat', 'revenue_usd', 'hashprice_usd']) as metric,
        unnest([
            fees_sat_per_day,
            revenue_sat_per_day,
            revenue_usd_per_day,
            hashprice_usd_per_ph_day
        ]) as amount,
        told_by
    from revenue
    where grouped_by = 'network' and period_kind = 'day'
    union all
    select
        cast(period as date) as day,
        'hashrate' as metric,
        observed_hashes_per_s as amount,
        told_by
    from hashrate
    where grouped_by = 'network' and period_kind = 'day'
),

lists as (
    select
        metric,
        sources_of(flatten(list(told_by))) as told_by,
        list(cast(day - date '1970-01-01' as double) order by day) as days,
        list(amount order by day) as amounts
    from series
    where amount > 0
    group by metric
),

events as (
    select list(cast(halving_day - date '1970-01-01' as double) order by halving_day) as days
    from halvings
),

effects as (
    select
        halvings.halving_day,
        lists.metric,
        lists.told_by,
        event_effect(
            lists.days,
            lists.amounts,
            cast(halvings.halving_day - date '1970-01-01' as double),
            cast(getvariable('window_days') as bigint),
            events.days
        ) as effect
    from halvings
    cross join lists
    cross join events
),

tested as (
    select
        *,
        getvariable('window_days') / (effect.n_placebos + getvariable('window_days')) as least_p_value,
        row_number() over of_family as place,
        adjusted_p_values(list(effect.p_value) over of_family) as adjusted
    from effects
    window of_family as (
        order by halving_day, metric rows between unbounded preceding and unbounded following
    )
)

select
    halving_day,
    metric,
    exp(effect.log_change) as change_ratio,
    exp(effect.placebo_low) as placebo_low_ratio,
    exp(effect.placebo_high) as placebo_high_ratio,
    cast(effect.n_placebos as bigint) as n_placebos,
    effect.p_value,
    adjusted[place] as adjusted_p_value,
    least(1.0, least_p_value * count(effect.p_value) over ()) as least_adjusted_p_value,
    told_by
from tested
order by halving_day, metric
