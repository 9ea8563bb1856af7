/*
summary = "How often empty and other blocks are found per second, by the time since their parent."
method = """
Cause-specific hazards of a piecewise-constant model. The time since the parent is cut at `edges_s`; in each bin the
rate is the number of blocks found divided by the seconds in which the network had not yet found the next block. Every
timed interval that ends with a block of owner_intervals counts as exposure, whoever found it. The rates of the owners
leave out intervals that end with a block that cannot be attributed; where there is none, they add up to those of 'all'.
Mining without memory that is never empty has the same rate of other blocks in all bins, and none of empty ones. Empty
blocks in the first bins, and fewer others there, mean that a pool mines before it has validated and filled a block. The
interval of a rate is Garwood's for a Poisson count (analysis/stats/count_tests.py). Clocks are those of empty_timing;
intervals below zero are left out. An empty block found while nothing was waiting counts as neither kind, but its
exposure counts.
"""
grain = ["grouped_by", "owner", "clock", "from_s"]
[parameters]
edges_s = {value = "0 1 2 5 10 20 30 60 120 300 600", doc = "where a bin begins, s since the parent; the last is open"}
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for every block"
clock = "VARCHAR  arrival, or header as a fallback"
from_s = "DOUBLE  s, where the bin begins, itself included"
to_s = "DOUBLE  s, where it ends; null for the last"
n_at_risk = "BIGINT  intervals that lasted until the bin began"
exposure_s = "DOUBLE  s, total time in the bin before the next block was found, by any owner"
n_empty = "BIGINT  empty blocks of the owner found in the bin"
n_nonempty = "BIGINT  other blocks of the owner found in the bin"
empty_per_s = "DOUBLE  empty blocks per second; null without exposure"
empty_low_per_s = "DOUBLE  lower bound of the 95 % interval"
empty_high_per_s = "DOUBLE  upper bound of the 95 % interval"
nonempty_per_s = "DOUBLE  other blocks per second; null without exposure"
nonempty_low_per_s = "DOUBLE  lower bound of the 95 % interval"
nonempty_high_per_s = "DOUBLE  upper bound of the 95 % interval"
empty_ratio = "DOUBLE  0..1, empty ones among the owner's blocks of the bin; null when there are none"
empty_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
empty_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of these blocks, of their sizes and, with the clock arrival, of their arrivals, each once: observed, backfilled, or names of imported sources"
*/
with

edges as (
    select unnest(cast(string_split(getvariable('edges_s'), ' ') as double[])) as from_s
),

bins as (
    select
        from_s,
        lead(from_s) over (order by from_s) as to_s
    from edges
),

clocked as (
    select
        grouped_by,
        owner,
        is_empty,
        is_empty and is_nothing_waiting as is_left_out,
        unnest(['arrival', 'header']) as clock,
        unnest([interval_s, header_interval_s]) as clock_s
    from owner_intervals
),

exposures as (
    select
        clocked.clock,
        clocked.owner = 'all' as is_of_all,
        bins.from_s,
        bins.to_s,
        count(*) as n_at_risk,
        ordered_sum(least(clocked.clock_s, coalesce(bins.to_s, clocked.clock_s)) - bins.from_s) as exposure_s
    from clocked
    inner join bins
        on clocked.clock_s >= bins.from_s
    where clocked.grouped_by = 'pool'
    group by clocked.clock, clocked.owner = 'all', bins.from_s, bins.to_s
),

found as (
    select
        clocked.grouped_by,
        clocked.owner,
        clocked.clock,
        bins.from_s,
        count(*) filter (where clocked.is_empty) as n_empty,
        count(*) filter (where not clocked.is_empty) as n_nonempty
    from clocked
    inner join bins
        on clocked.clock_s >= bins.from_s and (clocked.clock_s < bins.to_s or bins.to_s is null)
    where not clocked.is_left_out
    group by clocked.grouped_by, clocked.owner, clocked.clock, bins.from_s
),

owners as (
    select
        grouped_by,
        owner,
        sources_of(flatten(list(told_by))) as arrival_told_by,
        sources_of(flatten(list(block_told_by))) as header_told_by
    from owner_intervals
    group by grouped_by, owner
),

counts as (
    select
        owners.grouped_by,
        owners.owner,
        case exposures.clock when 'arrival' then owners.arrival_told_by else owners.header_told_by end as told_by,
        exposures.*,
        coalesce(found.n_empty, 0) as n_empty,
        coalesce(found.n_nonempty, 0) as n_nonempty,
        nullif(exposures.exposure_s, 0) as positive_s
    from owners
    inner join exposures
        on exposures.is_of_all = (owners.owner = 'all')
    left join found
        on
            owners.grouped_by = found.grouped_by
            and owners.owner = found.owner
            and exposures.clock = found.clock
            and exposures.from_s = found.from_s
),

judged as (
    select
        *,
        poisson_interval(n_empty) as empty_interval,
        poisson_interval(n_nonempty) as nonempty_interval,
        wilson_interval(n_empty, n_empty + n_nonempty) as ratio_interval
    from counts
)

select
    grouped_by,
    owner,
    clock,
    from_s,
    to_s,
    n_at_risk,
    exposure_s,
    n_empty,
    n_nonempty,
    n_empty / positive_s as empty_per_s,
    empty_interval.low / positive_s as empty_low_per_s,
    empty_interval.high / positive_s as empty_high_per_s,
    n_nonempty / positive_s as nonempty_per_s,
    nonempty_interval.low / positive_s as nonempty_low_per_s,
    nonempty_interval.high / positive_s as nonempty_high_per_s,
    n_empty / nullif(n_empty + n_nonempty, 0) as empty_ratio,
    ratio_interval.low as empty_low_ratio,
    ratio_interval.high as empty_high_ratio,
    told_by
from judged
order by grouped_by, owner != 'all', owner, clock, from_s
