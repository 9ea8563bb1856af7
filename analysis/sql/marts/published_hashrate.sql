/*
summary = "Hashrate of a pool as others publish it, against the blocks that the pool found."
method = """
On a day, a hashrate of H hashes per second finds H times the time that the day's blocks took (hashrate.elapsed_s)
divided by the hashes of a block of that difficulty, which is D * 2^48 / (2^16 - 1). These expected blocks are summed
over the days that the source tells of and the dataset has timed blocks for, and compared with the pool's blocks of the
same days. Blocks of which nobody tells a coinbase or a label may be anybody's: they and their time do not count. The
interval is that of a Poisson count (F. Garwood, 1936). A ratio below 1 says that the pool found fewer blocks than its
published hashrate expects. A source that makes its hashrates from blocks gives a ratio near 1 and shows nothing but its
own rounding.
"""
grain = ["source", "pool"]
[columns]
source = "VARCHAR  who publishes the hashrate; names rows of stg_external_sources"
pool = "VARCHAR  slug of the pool"
pool_name = "VARCHAR  name of the pool"
first_day = "DATE  first day compared, UTC"
last_day = "DATE  last day compared, UTC"
n_days = "BIGINT  days compared"
found_count = "BIGINT  timed blocks of the pool on these days"
expected_count = "DOUBLE  blocks that the published hashrate expects"
found_multiple = "DOUBLE  found / expected"
found_low_multiple = "DOUBLE  lower bound of the 95 % interval"
found_high_multiple = "DOUBLE  upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of the blocks of these days, each once: observed, backfilled, or names of imported sources"
*/
with

-- Labels of one pool add up: some sources name a pool's parts apart.
published as (
    select
        stg_external_pool_hashrate.source,
        pool_names.slug as pool,
        cast(cast(stg_external_pool_hashrate.day_at as date) as varchar) as day,
        ordered_sum(stg_external_pool_hashrate.hashrate_hashes_per_s) as hashes_per_s
    from stg_external_pool_hashrate
    inner join pool_names
        on lower(stg_external_pool_hashrate.label) = pool_names.name
    group by stg_external_pool_hashrate.source, pool_names.slug, cast(stg_external_pool_hashrate.day_at as date)
),

pool_days as (
    select
        period as day,
        owner as pool,
        timed_block_count,
        elapsed_s,
        mean_difficulty,
        told_by
    from hashrate
    where grouped_by = 'pool' and period_kind = 'day'
),

-- Time and difficulty are those of all pools, the same in each of their rows.
all_days as (
    select
        day,
        elapsed_s,
        mean_difficulty * 281474976710656.0 / 65535.0 as block_hashes,
        sources_of(flatten(list(told_by))) as told_by
    from pool_days
    where elapsed_s > 0 and mean_difficulty > 0
    group by day, elapsed_s, mean_difficulty
),

compared as (
    select
        published.source,
        published.pool,
        cast(min(published.day) as date) as first_day,
        cast(max(published.day) as date) as last_day,
        count(*) as n_days,
        cast(coalesce(sum(pool_days.timed_block_count), 0) as bigint) as found_count,
        ordered_sum(
            published.hashes_per_s * all_days.elapsed_s / all_days.block_hashes
        ) as expected_count,
        sources_of(flatten(list(all_days.told_by))) as told_by
    from published
    inner join all_days
        on published.day = all_days.day
    left join pool_days
        on published.day = pool_days.day and published.pool = pool_days.pool
    group by published.source, published.pool
)

select
    compared.source,
    compared.pool,
    pools.name as pool_name,
    compared.first_day,
    compared.last_day,
    compared.n_days,
    compared.found_count,
    compared.expected_count,
    compared.found_count / nullif(compared.expected_count, 0) as found_multiple,
    poisson_interval(compared.found_count).low / nullif(compared.expected_count, 0) as found_low_multiple,
    poisson_interval(compared.found_count).high / nullif(compared.expected_count, 0) as found_high_multiple,
    compared.told_by
from compared
inner join pools
    on compared.pool = pools.slug
order by compared.source, compared.pool
