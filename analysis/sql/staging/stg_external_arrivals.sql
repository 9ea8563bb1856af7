/*
summary = "When others saw a block first, on their clocks."
grain = ["source", "block_hash"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Height of the block, as the source has it"
arrived_at = "TIMESTAMP WITH TIME ZONE  Clock of the source"
*/
select
    source,
    block_hash,
    height,
    arrived_at
from external_arrivals
