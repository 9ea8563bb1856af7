/*
summary = "Difficulty of each block of the active chain, the hashes it stands for, and the time since its parent."
method = """
The difficulty comes from the compact target in the header. A block of difficulty D takes D * 2^48 / (2^16 - 1) hashes
on average (arXiv:1902.07549), which is 2^256 / target. The time since the parent is the difference of header times,
which every block has. It may be negative, but differences add up: over a day or an epoch only the two ends matter,
each wrong by minutes. It is null where the dataset lacks the parent.

On the main chain all 2,016 blocks of an epoch have one target. A block whose source does not give it has the target of
the other blocks and imported headers of its epoch, unless these name several.
"""
grain = ["block_hash"]
[parameters]
epoch_blocks = {value = 2016, doc = "blocks of one difficulty"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
epoch = "INTEGER  height / 2,016, rounded down"
difficulty = "DOUBLE  difficulty, 1 for the target of the first blocks; null for a header without a target"
expected_hashes = "DOUBLE  hashes that a block of this difficulty takes on average"
target_told_by = "VARCHAR  source of the target: observed, backfilled, or the name of an imported source"
header_interval_s = "DOUBLE  s since the parent's header time; null when the dataset lacks the parent or the target"
*/
with

known_targets as (
    select
        height,
        bits,
        header_told_by as source
    from block_facts
    where bits is not null
    union all
    select
        height,
        bits,
        source
    from stg_external_headers
),

epoch_targets as (
    select
        known_targets.height // getvariable('epoch_blocks') as epoch,
        min(known_targets.bits) as bits,
        min(known_targets.source) as source
    from known_targets
    inner join build_facts
        on build_facts.key = 'chain' and build_facts.value = 'main'
    group by known_targets.height // getvariable('epoch_blocks')
    having count(distinct known_targets.bits) = 1
),

blocks as (
    select
        chain_blocks.block_hash,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.header_time,
        coalesce(block_facts.bits, epoch_targets.bits) as bits,
        difficulty_of(coalesce(block_facts.bits, epoch_targets.bits)) as difficulty,
        case
            when block_facts.bits is not null then block_facts.header_told_by
            else epoch_targets.source
        end as target_told_by
    from chain_blocks
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    left join epoch_targets
        on chain_blocks.height // getvariable('epoch_blocks') = epoch_targets.epoch
    where chain_blocks.is_active
)

select
    blocks.block_hash,
    blocks.height,
    cast(blocks.height // getvariable('epoch_blocks') as integer) as epoch,
    blocks.difficulty,
    blocks.difficulty * 281474976710656.0 / 65535.0 as expected_hashes,
    blocks.target_told_by,
    -- Only of blocks with a known target: time without the hashes that it took would make a rate too low.
    case
        when blocks.bits is not null then seconds_between(parents.header_time, blocks.header_time)
    end as header_interval_s
from blocks
left join blocks as parents
    on blocks.prev_hash = parents.block_hash
order by blocks.height
