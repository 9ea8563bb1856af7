/*
summary = "Difficulty of each block of the active chain, the hashes it stands for, and the time since its parent."
method = """
The difficulty comes from the compact target in the header. A block of difficulty D takes D * 2^48 / (2^16 - 1) hashes
on average (arXiv:1902.07549), which is 2^256 / target. The time since the parent is the difference of header times,
which every block has. It may be negative, but differences add up: over a day or an epoch only the two ends matter,
each wrong by minutes. It is null where the dataset lacks the parent.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
difficulty = "DOUBLE  difficulty, 1 for the target of the first blocks; null for a header without a target"
expected_hashes = "DOUBLE  hashes that a block of this difficulty takes on average"
header_interval_s = "DOUBLE  s since the parent's header time; null when the dataset lacks the parent or the target"
*/
with

blocks as (
    select
        chain_blocks.block_hash,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.header_time,
        block_facts.bits,
        difficulty_of(block_facts.bits) as difficulty
    from chain_blocks
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    where chain_blocks.is_active
)

select
    blocks.block_hash,
    blocks.height,
    blocks.difficulty,
    blocks.difficulty * 281474976710656.0 / 65535.0 as expected_hashes,
    -- Only of blocks with a known target: time without the hashes that it took would make a rate too low.
    case
        when blocks.bits is not null then seconds_between(parents.header_time, blocks.header_time)
    end as header_interval_s
from blocks
left join blocks as parents
    on blocks.prev_hash = parents.block_hash
order by blocks.height
