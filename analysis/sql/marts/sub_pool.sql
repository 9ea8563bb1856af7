/*
summary = "Who made the templates of a pool's blocks, where the coinbase names the maker."
method = """
Some pools let others make the template, and their coinbases name the maker: with DATUM, the tag of the maker follows that
of the pool. The makers are listed by exact bytes, with sources, in the file of the pool in data/pools. A block counts for
a maker if the pool mined it (block_pool) and the coinbase script holds the maker's tag, wherever it stands; of several
tags the longest counts. Text in the place of a maker's name that no rule lists is not named: miners choose it, so it may
be the name of a machine, or of somebody else. The remaining blocks of the pool have no maker here. A block whose
coinbase no source gives, so that only a label names its pool, is left out: it may name a maker or not.
"""
grain = ["pool", "maker"]
[columns]
pool = "VARCHAR  slug of the pool"
pool_name = "VARCHAR  name of the pool"
maker = "VARCHAR  name of who made the template"
block_count = "BIGINT  blocks on the active chain that name the maker"
pool_block_count = "BIGINT  blocks of the pool on the active chain whose coinbase is known"
maker_ratio = "DOUBLE  0..1, block_count / pool_block_count"
maker_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
maker_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
first_height = "INTEGER  height of the first of its blocks"
last_height = "INTEGER  height of the last of them"
told_by = "VARCHAR[]  sources of the coinbases, each once: observed, backfilled, or names of imported sources"
*/
with

mined as (
    select
        block_pool.pool,
        block_pool.pool_name,
        block_pool.height,
        block_pool.block_hash,
        block_pool.told_by,
        hex(block_facts.coinbase_script) as script_hex
    from block_pool
    inner join chain_blocks
        on block_pool.block_hash = chain_blocks.block_hash
    inner join block_facts
        on block_pool.block_hash = block_facts.block_hash
    where
        chain_blocks.is_active
        and block_facts.coinbase_script is not null
        and block_pool.pool in (select pool_makers.pool from pool_makers)
),

-- Two hex digits are a byte, so the tag is looked for at even places only.
named as (
    select
        mined.pool,
        mined.height,
        mined.block_hash,
        mined.told_by,
        pool_makers.maker
    from mined
    inner join pool_makers
        on mined.pool = pool_makers.pool
    where
        mined.height between pool_makers.from_height and pool_makers.to_height
        and regexp_matches(mined.script_hex, concat('^(..)*', hex(pool_makers.tag)))
    qualify row_number() over (
        partition by mined.block_hash order by octet_length(pool_makers.tag) desc, pool_makers.tag
    ) = 1
),

totals as (
    select
        pool,
        pool_name,
        count(*) as pool_block_count
    from mined
    group by pool, pool_name
),

counted as (
    select
        pool,
        maker,
        sources_of(list(told_by)) as told_by,
        count(*) as block_count,
        min(height) as first_height,
        max(height) as last_height
    from named
    group by pool, maker
),

bounded as (
    select
        counted.*,
        totals.pool_name,
        totals.pool_block_count,
        wilson_interval(counted.block_count, totals.pool_block_count) as maker_interval
    from counted
    inner join totals
        on counted.pool = totals.pool
)

select
    pool,
    pool_name,
    maker,
    block_count,
    pool_block_count,
    block_count / pool_block_count as maker_ratio,
    maker_interval.low as maker_low_ratio,
    maker_interval.high as maker_high_ratio,
    first_height,
    last_height,
    told_by
from bounded
order by pool, block_count desc, maker
