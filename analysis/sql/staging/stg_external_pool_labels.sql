/*
summary = "Who mined a block, as others say."
grain = ["source", "height"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
height = "INTEGER  Height of the block, as the source has it"
label = "VARCHAR  The source's name of the pool, as it writes it"
header_time = "TIMESTAMP WITH TIME ZONE  Time of the block, where the source gives one"
*/
select
    source,
    height,
    label,
    header_time
from external_pool_labels
