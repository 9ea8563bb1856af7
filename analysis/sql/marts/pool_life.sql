/*
summary = "Births and deaths: when each pool was first and last seen, and whether its silence before or after is chance."
method = """
If a pool kept one share through the whole window, its n blocks would be any n of the N blocks, each choice equally
likely. The chance that none of them is among the first (or last) s blocks is then C(N - s, n) / C(N, n),
exactly. Below max_p_value the silence is no chance: the pool was born after the window began, or died before it
ended. It is small because every pool is tested twice: of 50 pools of constant share one in ten windows flags one. A
pool that only grows or shrinks, and has few blocks, can look born or dead. Neither can be told of a pool with few blocks, nor is a pool dead that came back, was renamed, or
changed its tag: pool_rename has what speaks for that. Unknown is not a pool and has no row.
"""
grain = ["pool"]
[parameters]
max_p_value = {value = 0.001, doc = "chance below which a silence counts as birth or death"}
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
is_birth = "BOOLEAN  it began inside the window"
silent_after_count = "BIGINT  blocks of the window after its last"
silent_after_p_value = "DOUBLE  0..1, chance of such a silence for a pool of constant share"
is_death = "BOOLEAN  it ended inside the window"
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
    silent_before_p_value < getvariable('max_p_value') as is_birth,
    silent_after_count,
    silent_after_p_value,
    silent_after_p_value < getvariable('max_p_value') as is_death
from judged
order by first_height, pool
