/*
summary = "Blocks that failed verification; they are left out of every mart."
severity = "warn"
[needs]
stg_blocks = "no block of our own, and blocks of others are not verified"
*/
select
    block_hash,
    height,
    verdict
from stg_blocks
where verdict != 'valid'
