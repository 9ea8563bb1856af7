/*
summary = "Pieces of constant growth between the break points of each owner's hashrate."
method = """
The series of hashrate_growth, cut where the better fit outweighs the added parameters (J. Bai and P. Perron, 2003;
number of cuts by the criterion of Liu, Wu and Zidek, 1997, allowing for residuals that depend on the day before;
analysis/stats/growth.py). An owner with one segment has no break. The interval of a break holds the days at which the
cut would fit nearly as well, by the likelihood ratio (Y. Eo and J. Morley, 2015). It holds the break in 92 to 100 % of
simulated series, but in fewer where a break is so small that it is hardly ever found. The fit is least squares on ln H,
which falls short for few blocks and does not exist for none. So an owner that, over any min_days days of the network
in a row, found fewer than min_blocks_per_day blocks a day has no row: one that is small, or was, or found nothing any
more. The network has a row whatever its blocks; what it expects per day does not change.
"""
grain = ["grouped_by", "owner", "segment"]
[parameters]
min_days = {value = 30, doc = "days with a block; fewer give no fit"}
min_blocks_per_day = {value = 10, doc = "mean over min_days days of the network in a row; an owner with fewer has no row"}
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'all' for the network"
segment = "BIGINT  1, 2, ... in order of time"
first_day_low = "DATE  lower bound of the 95 % interval of the break at which it begins; null for the first"
first_day = "DATE  first day of the segment"
first_day_high = "DATE  upper bound of that interval"
last_day = "DATE  last day of the segment"
n_days = "BIGINT  days fitted"
lambda_per_day = "DOUBLE  1/day, growth rate within the segment"
intercept = "DOUBLE  c, ln of hashes/s on 1970-01-01"
r_squared = "DOUBLE  0..1, part of the variance of ln H that the line explains"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

rates as (
    select
        grouped_by,
        owner,
        cast(period as date) as day,
        timed_block_count,
        observed_hashes_per_s,
        told_by
    from hashrate
    where period_kind = 'day' and not is_unknown
),

series as (
    select
        grouped_by,
        owner,
        sources_of(flatten(list(told_by))) as told_by,
        growth_segments(
            list(cast(day - date '1970-01-01' as double) order by day),
            list(observed_hashes_per_s order by day)
        ) as segments
    from rates
    where observed_hashes_per_s > 0
    group by grouped_by, owner
    having count(*) >= getvariable('min_days')
),

-- Days of which an owner is known.
days as (
    select distinct
        owned.grouped_by,
        owned.day
    from rates as owned
    inner join rates as networks
        on owned.day = networks.day
    where owned.grouped_by != 'network' and networks.grouped_by = 'network' and networks.observed_hashes_per_s > 0
),

running as (
    select
        series.grouped_by,
        series.owner,
        row_number() over in_order as place,
        sum(coalesce(rates.timed_block_count, 0)) over in_order as n_blocks
    from series
    inner join days
        on series.grouped_by = days.grouped_by
    left join rates
        on series.grouped_by = rates.grouped_by and series.owner = rates.owner and days.day = rates.day
    window
        in_order as (
            partition by series.grouped_by, series.owner
            order by days.day
            rows between unbounded preceding and current row
        )
),

too_small as (
    select distinct
        last_days.grouped_by,
        last_days.owner
    from running as last_days
    left join running as earlier
        on
            last_days.grouped_by = earlier.grouped_by
            and last_days.owner = earlier.owner
            and last_days.place - getvariable('min_days') = earlier.place
    where
        last_days.place >= getvariable('min_days')
        and last_days.n_blocks - coalesce(earlier.n_blocks, 0)
        < getvariable('min_blocks_per_day') * getvariable('min_days')
),

pieces as (
    select
        series.grouped_by,
        series.owner,
        series.told_by,
        unnest(series.segments) as piece
    from series
    left join too_small
        on series.grouped_by = too_small.grouped_by and series.owner = too_small.owner
    where too_small.owner is null
)

select
    grouped_by,
    owner,
    row_number() over (partition by grouped_by, owner order by piece.first_t) as segment,
    date '1970-01-01' + cast(piece.first_low_t as integer) as first_day_low,
    date '1970-01-01' + cast(piece.first_t as integer) as first_day,
    date '1970-01-01' + cast(piece.first_high_t as integer) as first_day_high,
    date '1970-01-01' + cast(piece.last_t as integer) as last_day,
    cast(piece.n_days as bigint) as n_days,
    piece.lambda_per_day,
    piece.intercept,
    piece.r_squared,
    told_by
from pieces
order by grouped_by, owner, segment
