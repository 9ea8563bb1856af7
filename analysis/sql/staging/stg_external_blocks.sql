/*
summary = "Blocks as another provider describes them."
grain = ["source", "block_hash"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Height of the block, as the source has it"
header_time = "TIMESTAMP WITH TIME ZONE  Time in the header"
version = "INTEGER  Header version as a signed number"
merkle_root = "BLOB  Merkle root, internal byte order"
bits = "BIGINT  Compact target"
nonce = "BIGINT  Header nonce"
size_bytes = "BIGINT  Serialised size with witness data"
stripped_bytes = "BIGINT  Serialised size without witness data"
weight_wu = "BIGINT  BIP141 weight"
n_tx = "INTEGER  Transactions, coinbase included"
n_segwit_tx = "INTEGER  Transactions with witness data, as the source counts"
n_inputs = "INTEGER  Inputs, as the source counts"
n_outputs = "INTEGER  Outputs, as the source counts"
fees_sat = "BIGINT  Sum of the fees"
subsidy_sat = "BIGINT  New coins"
coinbase_script = "BLOB  The coinbase's scriptSig, raw: chosen by strangers"
pool_label = "VARCHAR  The source's guess of who mined it"
*/
select
    source,
    block_hash,
    height,
    header_time,
    version,
    merkle_root,
    bits,
    nonce,
    size_bytes,
    stripped_bytes,
    weight_wu,
    n_tx,
    n_segwit_tx,
    n_inputs,
    n_outputs,
    fees_sat,
    subsidy_sat,
    coinbase_script,
    pool_label
from external_blocks
