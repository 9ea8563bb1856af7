/*
summary = "One row per block, stale blocks included; which chain is active is derived in analysis."
grain = ["block_hash"]
[columns]
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Blocks between this one and genesis"
height_source = "VARCHAR  Where the height is from"
prev_hash = "BLOB  Hash of the parent, internal byte order"
version = "INTEGER  Header version as a signed number; its bits signal deployments"
merkle_root = "BLOB  Merkle root in the header, internal byte order"
header_time = "TIMESTAMP WITH TIME ZONE  Time in the header: chosen by the miner, not a time of arrival"
bits = "BIGINT  Compact target"
nonce = "BIGINT  Header nonce"
size_bytes = "BIGINT  Serialised size with witness data"
stripped_bytes = "BIGINT  Serialised size without witness data"
weight_wu = "BIGINT  BIP141 weight"
n_tx = "INTEGER  Transactions, coinbase included"
n_segwit_tx = "INTEGER  Transactions with witness data, coinbase excluded"
n_inputs = "INTEGER  Inputs, coinbase excluded"
n_outputs = "INTEGER  Outputs, coinbase included"
output_value_sat = "BIGINT  Value of all outputs, coinbase excluded"
fees_sat = "BIGINT  Sum of the transactions' fees; null while unknown"
subsidy_sat = "BIGINT  New coins this height allows"
coinbase_txid = "BLOB  Id of the coinbase transaction, internal byte order"
coinbase_value_sat = "BIGINT  Value of the coinbase's outputs"
coinbase_script = "BLOB  The coinbase's scriptSig, raw: text in it is chosen by strangers"
coinbase_outputs = "STRUCT(value_sat BIGINT, script BLOB)[]  The coinbase's outputs in order: value and raw script"
witness_commitment = "BLOB  BIP141 commitment in the coinbase, if any"
verdict = "VARCHAR  What recomputing work, txids, merkle root and commitment gave"
verified_by = "VARCHAR  The hashing backend that recomputed them"
source = "VARCHAR  How the body reached us"
coinbase_version = "BIGINT  Version of the coinbase transaction"
coinbase_sequence = "BIGINT  nSequence of the coinbase's input"
coinbase_locktime = "BIGINT  Lock time of the coinbase transaction"
coinbase_reserved_value = "BLOB  BIP141 witness reserved value; null without a witness"
*/
select
    block_hash,
    height,
    height_source,
    prev_hash,
    version,
    merkle_root,
    header_time,
    bits,
    nonce,
    size_bytes,
    stripped_bytes,
    weight_wu,
    n_tx,
    n_segwit_tx,
    n_inputs,
    n_outputs,
    output_value_sat,
    fees_sat,
    subsidy_sat,
    coinbase_txid,
    coinbase_value_sat,
    coinbase_script,
    coinbase_outputs,
    witness_commitment,
    verdict,
    verified_by,
    source,
    coinbase_version,
    coinbase_sequence,
    coinbase_locktime,
    coinbase_reserved_value
from blocks
-- A block may have come over the wire and again from the node's files: the row that knows its fees is kept.
-- What two rows can differ in decides then, so that the order of files does not matter.
qualify row_number() over (
    partition by block_hash
    order by fees_sat is null, source, coinbase_version is null, verdict, height_source, verified_by
) = 1
