/*
summary = "Blocks that lost against a rival, as others list them; their work was checked."
grain = ["source", "block_hash"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Height of the block"
prev_hash = "BLOB  Hash of the parent, internal byte order"
header_time = "TIMESTAMP WITH TIME ZONE  Time in the header"
version = "INTEGER  Header version as a signed number"
merkle_root = "BLOB  Merkle root, internal byte order"
bits = "BIGINT  Compact target"
nonce = "BIGINT  Header nonce"
*/
select
    source,
    block_hash,
    height,
    prev_hash,
    header_time,
    version,
    merkle_root,
    bits,
    nonce
from external_stale_blocks
