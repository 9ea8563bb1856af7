/*
summary = "Runs: how often an owner found n blocks in a row or more, against chance."
method = """
Within a difficulty epoch an owner with a constant share has its k blocks anywhere among the N, each order equally
likely. Runs of at least n blocks then number (N - k + 1) C(N - n, N - k) / C(N, k) on average. Found and expected runs
are summed over the epochs; one with missing heights counts as several, each without a hole. (arXiv:2208.05748 asks the
same of two blocks in a row, as a sign of withheld blocks.) p_value is the chance of as many runs or more if their
number has the Poisson distribution. Runs crowd each other out, so the true spread is a little smaller and the p-value
on the safe side. It is corrected over all owners and lengths of a grouping (Holm, as in empty_intervals). A run is cut
where an epoch ends and where a height is missing. Owners with fewer than min_blocks blocks, and unknown, are left out.

More runs than chance explains prove nothing about anybody's conduct: a share that changes within an epoch, blocks named
for the wrong pool, and a pool's own block reaching its miners first give the same.
"""
grain = ["grouped_by", "owner", "run_length"]
[parameters]
min_blocks = {value = 20, doc = "blocks of the owner; fewer say too little"}
longest_tested = {value = 6, doc = "runs are counted from 2 blocks to this length"}
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
owner = "VARCHAR  slug of the pool or entity"
owner_name = "VARCHAR  name of the owner"
run_length = "INTEGER  n, blocks in a row"
block_count = "BIGINT  blocks of the owner on the active chain"
found_count = "BIGINT  runs of n blocks or more"
expected_count = "DOUBLE  such runs by chance, at the owner's share of each epoch"
found_multiple = "DOUBLE  found / expected; null where none is possible"
found_low_multiple = "DOUBLE  lower bound of the 95 % interval"
found_high_multiple = "DOUBLE  upper bound of the 95 % interval"
p_value = "DOUBLE  0..1, chance of as many or more"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of owners and lengths"
longest_run = "BIGINT  blocks of the owner's longest run"
longest_from_height = "INTEGER  first block of the first such run"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

-- A sequence holds heights without a hole, of one epoch.
numbered as (
    select
        grouped_by,
        owner,
        owner_name,
        is_unknown,
        height,
        told_by,
        epoch,
        height - row_number() over (partition by grouped_by order by height) as hole
    from block_owner
),

sequences as (
    select
        grouped_by,
        epoch,
        hole,
        count(*) as total_block_count
    from numbered
    group by grouped_by, epoch, hole
),

placed as (
    select
        *,
        height - row_number() over (partition by grouped_by, epoch, hole, owner order by height) as run
    from numbered
    where not is_unknown
),

runs as (
    select
        grouped_by,
        owner,
        epoch,
        hole,
        count(*) as n_blocks,
        min(height) as from_height
    from placed
    group by grouped_by, owner, epoch, hole, run
),

owners as (
    select
        grouped_by,
        owner,
        any_value(owner_name) as owner_name,
        count(*) as block_count,
        sources_of(list(told_by)) as told_by
    from placed
    group by grouped_by, owner
    having count(*) >= getvariable('min_blocks')
),

longest_runs as (
    select
        grouped_by,
        owner,
        max(n_blocks) as longest_run,
        arg_min(from_height, (-n_blocks, from_height)) as longest_from_height
    from runs
    group by grouped_by, owner
),

owner_sequences as (
    select
        runs.grouped_by,
        runs.owner,
        sequences.total_block_count,
        cast(sum(runs.n_blocks) as bigint) as block_count
    from runs
    inner join sequences
        on runs.grouped_by = sequences.grouped_by and runs.epoch = sequences.epoch and runs.hole = sequences.hole
    group by runs.grouped_by, runs.owner, runs.epoch, runs.hole, sequences.total_block_count
),

tested_lengths as (
    select cast(unnest(range(2, getvariable('longest_tested') + 1)) as integer) as run_length
),

found as (
    select
        runs.grouped_by,
        runs.owner,
        tested_lengths.run_length,
        count(*) as found_count
    from runs
    inner join tested_lengths
        on runs.n_blocks >= tested_lengths.run_length
    group by runs.grouped_by, runs.owner, tested_lengths.run_length
),

expected as (
    select
        owner_sequences.grouped_by,
        owner_sequences.owner,
        tested_lengths.run_length,
        ordered_sum(
            (owner_sequences.total_block_count - owner_sequences.block_count + 1)
            * silence_chance(
                owner_sequences.total_block_count,
                owner_sequences.total_block_count - owner_sequences.block_count,
                tested_lengths.run_length
            )
        ) as expected_count
    from owner_sequences
    cross join tested_lengths
    group by owner_sequences.grouped_by, owner_sequences.owner, tested_lengths.run_length
),

tested as (
    select
        owners.*,
        expected.run_length,
        expected.expected_count,
        coalesce(found.found_count, 0) as found_count,
        poisson_interval(coalesce(found.found_count, 0)) as bounds,
        poisson_excess(coalesce(found.found_count, 0), expected.expected_count) as p_value,
        longest_runs.longest_run,
        longest_runs.longest_from_height
    from owners
    inner join expected
        on owners.grouped_by = expected.grouped_by and owners.owner = expected.owner
    left join found
        on
            expected.grouped_by = found.grouped_by
            and expected.owner = found.owner
            and expected.run_length = found.run_length
    inner join longest_runs
        on owners.grouped_by = longest_runs.grouped_by and owners.owner = longest_runs.owner
),

corrected as (
    select
        *,
        row_number() over of_family as place,
        adjusted_p_values(list(p_value) over of_family) as adjusted
    from tested
    window of_family as (
        partition by grouped_by
        order by owner, run_length rows between unbounded preceding and unbounded following
    )
)

select
    grouped_by,
    owner,
    owner_name,
    run_length,
    block_count,
    found_count,
    expected_count,
    found_count / nullif(expected_count, 0) as found_multiple,
    bounds.low / nullif(expected_count, 0) as found_low_multiple,
    bounds.high / nullif(expected_count, 0) as found_high_multiple,
    p_value,
    adjusted[place] as adjusted_p_value,
    longest_run,
    longest_from_height,
    told_by
from corrected
order by grouped_by, owner, run_length
