/*
summary = "What a chart over time marks: halvings, changes of difficulty, of owners and names, and holes in our observation."
method = """
'halving': the first block with half of the subsidy of its parent; on the main chain also every 210,000th block, for
blocks whose subsidy is not known. 'retarget': the first block with a new difficulty.
'owner', 'proxy' and 'name': from this day on, or until the day before (is_end), the pool belongs to that owner or group
with shared templates, or has that other name, as data/pools/entities.toml says. 'succession': the first block of a pool
that is paid to the script of a pool which has no later block (pool_rename): evidence, not a verdict. 'hole': an
interval of coverage_hole. Only what falls between the first and the last header time of the active chain, and only
pools with a block on it; of holes, all.
"""
grain = ["kind", "from_at", "subject", "other"]
[columns]
kind = "VARCHAR  halving, retarget, owner, proxy, name, succession or hole"
from_at = "TIMESTAMP WITH TIME ZONE  when: header time of a block, midnight UTC of a day, or our clock for a hole"
to_at = "TIMESTAMP WITH TIME ZONE  end of a hole; null for all others"
height = "INTEGER  block of a halving, retarget or succession"
subject = "VARCHAR  slug of the pool, or node of the hole; null for a halving or retarget"
other = "VARCHAR  owner, group, other name, later pool, or topic of the hole; null for a halving or retarget"
is_end = "BOOLEAN  the owner, group or name ends here"
relative_change = "DOUBLE  new / old, less 1, of the difficulty or the subsidy; below 0 is a fall"
told_by = "VARCHAR[]  sources of the blocks, each once: observed, backfilled, or names of imported sources; empty without any"
*/
with

chain as (
    select
        chain_blocks.height,
        chain_blocks.header_time,
        chain_blocks.subsidy_sat,
        chain_blocks.told_by,
        block_work.difficulty,
        lag(chain_blocks.height) over by_height as previous_height,
        lag(chain_blocks.subsidy_sat) over by_height as previous_subsidy_sat,
        lag(chain_blocks.told_by) over by_height as previous_told_by,
        lag(block_work.difficulty) over by_height as previous_difficulty
    from chain_blocks
    left join block_work
        on chain_blocks.block_hash = block_work.block_hash
    where chain_blocks.is_active
    window by_height as (order by chain_blocks.height)
),

seen as (
    select
        min(header_time) as first_time,
        max(header_time) as last_time
    from chain
),

chains as (
    select count(*) > 0 as is_main
    from build_facts
    where key = 'chain' and value = 'main'
),

halvings as (
    select
        'halving' as kind,
        chain.header_time as from_at,
        chain.height,
        cast(-0.5 as double) as relative_change,
        sources_of([chain.told_by]) as told_by
    from chain
    cross join chains
    where
        chain.header_time is not null
        and (
            (chains.is_main and chain.height > 0 and chain.height % 210000 = 0)
            or (
                chain.previous_height = chain.height - 1
                and chain.previous_subsidy_sat > 0
                and chain.subsidy_sat = chain.previous_subsidy_sat // 2
            )
        )
),

retargets as (
    select
        'retarget' as kind,
        header_time as from_at,
        height,
        difficulty / previous_difficulty - 1 as relative_change,
        sources_of([told_by, previous_told_by]) as told_by
    from chain
    where previous_height = height - 1 and difficulty != previous_difficulty
),

-- A day that a membership begins, or the day after it ends.
turns as (
    select
        entities.kind,
        entities.slug as subject,
        entities.name as other,
        unnest([entities.from_date, cast(entities.to_date + interval 1 day as date)]) as day,
        unnest([false, true]) as is_end
    from entities
    inner join pool_life
        on entities.slug = pool_life.pool
),

successions as (
    select
        'succession' as kind,
        pool_rename.pool as subject,
        pool_rename.other,
        pool_life.first_day as day,
        pool_life.first_height as height,
        sources_of(list_concat(pool_rename.told_by, pool_life.told_by)) as told_by
    from pool_rename
    inner join pool_life
        on pool_rename.other = pool_life.pool
    where pool_rename.evidence = 'payout' and pool_rename.is_succession and pool_life.first_day is not null
),

changes as (
    select
        kind,
        from_at,
        cast(null as timestamptz) as to_at,
        height,
        cast(null as varchar) as subject,
        cast(null as varchar) as other,
        false as is_end,
        relative_change,
        told_by
    from halvings
    union all
    select
        kind,
        from_at,
        null as to_at,
        height,
        null as subject,
        null as other,
        false as is_end,
        relative_change,
        told_by
    from retargets
    union all
    select
        turns.kind,
        cast(turns.day as timestamptz) as from_at,
        null as to_at,
        null as height,
        turns.subject,
        turns.other,
        bool_and(turns.is_end) as is_end,
        null as relative_change,
        [] as told_by
    from turns
    cross join seen
    where turns.day between cast(seen.first_time as date) and cast(seen.last_time as date)
    group by turns.kind, turns.day, turns.subject, turns.other
    union all
    select
        kind,
        cast(day as timestamptz) as from_at,
        null as to_at,
        height,
        subject,
        other,
        false as is_end,
        null as relative_change,
        told_by
    from successions
    where day is not null
    union all
    select
        'hole' as kind,
        from_at,
        to_at,
        null as height,
        node as subject,
        topic as other,
        false as is_end,
        null as relative_change,
        [] as told_by
    from coverage_hole
)

select
    kind,
    from_at,
    to_at,
    height,
    subject,
    other,
    is_end,
    relative_change,
    told_by
from changes
order by from_at, kind, subject, other
