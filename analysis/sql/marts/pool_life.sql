/*
summary = "Births and deaths: when each pool was first and last seen, and whether its silence before or after is chance."
method = """
A silence is judged by the share that the pool had next to it: a pool that shrank for years is not dead because it is
silent for some hours. The last recent_blocks blocks of the pool and the silence after them make a stretch of N blocks,
of which n are the pool's. If its share was constant there, they are any n of the N, each choice equally likely, and the
chance that none of them is among the last s blocks is exactly C(N - s, n) / C(N, n). A pool with fewer blocks is judged
by all that it has. For the silence before, the same holds with the first blocks. A stretch ends at a hole of more than
hole_blocks heights, because the share may have changed there: a pool that is only absent beyond a hole is neither born
nor dead. Every pool is tested twice, so the chances are corrected for the number of tests (Holm, as in
empty_intervals). Below max_p_value the silence is not chance: the pool was born after the window or the hole before it,
or died before the end of the window or the next hole. Where all pools have constant shares, at most one window in 20
has any pool flagged. Few blocks are not enough to show either. A pool that came back, was renamed or changed its tag is
not dead; pool_rename has the evidence for that. Unknown is not a pool and has no row.
"""
grain = ["pool"]
[parameters]
max_p_value = {value = 0.05, doc = "corrected chance below which a silence counts as birth or death"}
recent_blocks = {value = 30, doc = "blocks of a pool next to its silence, by whose share the silence is judged"}
hole_blocks = {value = 2016, doc = "missing heights, about two weeks, over which a share may have changed"}
[columns]
pool = "VARCHAR  slug"
pool_name = "VARCHAR  name of the pool"
block_count = "BIGINT  blocks on the active chain"
first_height = "INTEGER  its first block in the window"
first_day = "DATE  UTC day of that block's header time; null where no source gives it"
last_height = "INTEGER  its last block in the window"
last_day = "DATE  UTC day of that block's header time; null where no source gives it"
silent_before_count = "BIGINT  blocks of the window before its first"
silent_before_p_value = "DOUBLE  0..1, chance of such a silence up to a hole, at the share that the pool had next to it"
silent_before_adjusted_p_value = "DOUBLE  0..1, corrected for two tests of every pool"
is_birth = "BOOLEAN  it began inside the window"
silent_after_count = "BIGINT  blocks of the window after its last"
silent_after_p_value = "DOUBLE  0..1, chance of such a silence up to a hole, at the share that the pool had next to it"
silent_after_adjusted_p_value = "DOUBLE  0..1, corrected for two tests of every pool"
is_death = "BOOLEAN  it ended inside the window"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

heights as (
    select
        *,
        row_number() over (order by height) as number,
        count(*) over () as total_block_count,
        coalesce(height - lag(height) over (order by height) > getvariable('hole_blocks'), false) as is_after_hole
    from block_owner
    where grouped_by = 'pool'
),

-- A piece is a part of the window without a large hole.
numbered as (
    select
        *,
        count(case when is_after_hole then 1 end) over (order by height) as piece
    from heights
),

bounded as (
    select
        *,
        min(number) over (partition by piece) as piece_first_number,
        max(number) over (partition by piece) as piece_last_number
    from numbered
),

placed as (
    select
        *,
        piece = min(piece) over (partition by owner) as is_in_first_piece,
        piece = max(piece) over (partition by owner) as is_in_last_piece,
        number = min(number) over (partition by owner) as is_first,
        number = max(number) over (partition by owner) as is_last,
        row_number() over (partition by owner, piece order by number) as place,
        row_number() over (partition by owner, piece order by number desc) as place_from_last
    from bounded
    where not is_unknown
),

lives as (
    select
        owner as pool,
        owner_name as pool_name,
        sources_of(list(told_by)) as told_by,
        count(*) as block_count,
        min(height) as first_height,
        max(day) filter (where is_first) as first_day,
        max(height) as last_height,
        max(day) filter (where is_last) as last_day,
        min(number) - 1 as silent_before_count,
        total_block_count - max(number) as silent_after_count,
        least(count(*) filter (where is_in_first_piece), getvariable('recent_blocks')) as first_block_count,
        least(count(*) filter (where is_in_last_piece), getvariable('recent_blocks')) as last_block_count,
        min(number) - min(piece_first_number) as near_silent_before_count,
        max(piece_last_number) - max(number) as near_silent_after_count,
        -- A stretch ends before the next block of the pool beside it, or with the piece.
        coalesce(
            min(number) filter (where is_in_first_piece and place = getvariable('recent_blocks') + 1),
            min(piece_last_number) + 1
        ) - min(piece_first_number) as first_stretch_count,
        max(piece_last_number) - coalesce(
            max(number) filter (where is_in_last_piece and place_from_last = getvariable('recent_blocks') + 1),
            max(piece_first_number) - 1
        ) as last_stretch_count
    from placed
    group by owner, owner_name, total_block_count
),

judged as (
    select
        *,
        silence_chance(first_stretch_count, first_block_count, near_silent_before_count) as silent_before_p_value,
        silence_chance(last_stretch_count, last_block_count, near_silent_after_count) as silent_after_p_value
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
