/*
summary = "Pieces of constant growth between the break points of each owner's hashrate."
method = """
The series of hashrate_growth, cut where the better fit outweighs the added parameters (J. Bai and P. Perron, 2003;
number of cuts by the criterion of Liu, Wu and Zidek, 1997, allowing for residuals that depend on the day before;
analysis/stats/growth.py). An owner with one segment has no break. The interval of a break holds the days at which the
cut would fit nearly as well, by the likelihood ratio (Y. Eo and J. Morley, 2015). It holds the break in 92 to 100 % of
simulated series, but in fewer where a break is so small that it is hardly ever found.
"""
grain = ["grouped_by", "owner", "segment"]
[parameters]
min_days = {value = 30, doc = "days with a block; fewer give no fit"}
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

series as (
    select
        grouped_by,
        owner,
        sources_of(flatten(list(told_by))) as told_by,
        growth_segments(
            list(cast(cast(period as date) - date '1970-01-01' as double) order by period),
            list(observed_hashes_per_s order by period)
        ) as segments
    from hashrate
    where period_kind = 'day' and not is_unknown and observed_hashes_per_s > 0
    group by grouped_by, owner
    having count(*) >= getvariable('min_days')
),

pieces as (
    select
        grouped_by,
        owner,
        told_by,
        unnest(segments) as piece
    from series
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
