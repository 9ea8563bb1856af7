/*
summary = "Blocks that failed verification; they are left out of every mart."
severity = "warn"
*/
select
    block_hash,
    height,
    verdict
from stg_blocks
where verdict != 'valid'
