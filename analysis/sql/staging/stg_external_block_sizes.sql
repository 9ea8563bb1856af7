/*
summary = "Size and number of transactions of a block, from others who name it by its height."
grain = ["source", "height"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
height = "INTEGER  Height of the block, as the source has it"
size_bytes = "BIGINT  Serialised size, as the source counts"
n_tx = "INTEGER  Transactions, coinbase included"
label = "VARCHAR  The source's name of the pool, as it writes it; null where it gives none"
*/
select
    source,
    height,
    size_bytes,
    n_tx,
    label
from external_block_sizes
