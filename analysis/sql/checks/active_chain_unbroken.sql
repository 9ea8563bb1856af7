/*
summary = "Active blocks whose parent is not the active block of the height below."
severity = "warn"
[needs]
stg_blocks = "no block of our own; others name no parents, and imported headers were linked when they were imported"
*/
select
    block.block_hash,
    block.height
from chain_blocks as block
inner join chain_blocks as parent
    on block.height - 1 = parent.height
where
    block.is_active
    and parent.is_active
    and block.prev_hash != parent.block_hash
    -- A list that names no hash does not contradict the block above it.
    and parent.block_hash != label_block_key(parent.height)
