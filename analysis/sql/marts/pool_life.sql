/*
summary = "Births and deaths: when each pool was first and last seen, and whether its silence before or after is chance."
method = """
If a pool kept one share through the whole window, its n blocks would be any n of the N blocks, each choice equally
likely. The chance that none of them is among the first (or last) s blocks is then exactly C(N - s, n) / C(N, n). Every
pool is tested twice, so the chances are corrected for the number of tests (Holm, as in empty_intervals). Below
max_p_value the silence is not chance: the pool was born after the window began, or died before it ended. Where all
pools have constant shares, at most one window in 20 has any pool flagged. A pool that only grows or shrinks can look
born or dead. Few blocks are not enough to show either. A pool that came back, was renamed or changed its tag is not
dead; pool_rename has the evidence for that. Unknown is not a pool and has no row.
"""
grain = ["pool"]
[parameters]
max_p_value = {value = 0.05, doc = "corrected chance below which a silence counts as birth or death"}
[columns]
pool = "VARCHAR  slug"
pool_name = "VARCHAR  name of the pool"
block_count = "BIGINT  blocks on the active chain"
first_height = "INTEGER  its first block in the window"
first_day = "DATE  UTC day of that block's header time"
last_height = "INTEGER  its last block in the window"
last_day = "DATE  UTC day of that block's header time"
silent_before_count = "BIGINT  blocks of the window before its first"
silent_before_p_value = "DOUBLE  0..1, chance of such a silence for a pool of constant share"
silent_before_adjusted_p_value = "DOUBLE  0..1, corrected for two tests of every pool"
is_birth = "BOOLEAN  it began inside the window"
silent_after_count = "BIGINT  blocks of the window after its last"
silent_after_p_value = "DOUBLE  0..1, chance of such a silence for a pool of constant share"
silent_after_adjusted_p_value = "DOUBLE  0..1, corrected for two tests of every pool"
is_death = "BOOLEAN  it ended inside the window"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

numbered as (
    select
        *,
        row_number() over (order by height) as number,
        count(*) over () as total_block_count
    from block_owner
    where grouped_by = 'pool'
),

lives as (
    select
        owner as pool,
        owner_name as pool_name,
        total_block_count,
        sources_of(list(told_by)) as told_by,
        count(*) as block_count,
        min(height) as first_height,
        arg_min(day, height) as first_day,
        max(height) as last_height,
        arg_max(day, height) as last_day,
        min(number) - 1 as silent_before_count,
        total_block_count - max(number) as silent_after_count
    from numbered
    where not is_unknown
    group by owner, owner_name, total_block_count
),

judged as (
    select
        *,
        silence_chance(total_block_count, block_count, silent_before_count) as silent_before_p_value,
        silence_chance(total_block_count, block_count, silent_after_count) as silent_after_p_value
    from lives
),

-- The family of tests as one list: of all pools the silences before, then those after.
corrected as (
    select
        *,
        row_number() over of_family as place,
        count(*) over () as n_pools,
        adjusted_p_values(
            list_concat(list(silent_before_p_value) over of_family, list(silent_after_p_value) over of_family)
        ) as adjusted
    from judged
    window of_family as (order by pool rows between unbounded preceding and unbounded following)
)

select
    pool,
    pool_name,
    block_count,
    first_height,
    first_day,
    last_height,
    last_day,
    silent_before_count,
    silent_before_p_value,
    adjusted[place] as silent_before_adjusted_p_value,
    adjusted[place] < getvariable('max_p_value') as is_birth,
    silent_after_count,
    silent_after_p_value,
    adjusted[n_pools + place] as silent_after_adjusted_p_value,
    adjusted[n_pools + place] < getvariable('max_p_value') as is_death,
    told_by
from corrected
order by first_height, pool
