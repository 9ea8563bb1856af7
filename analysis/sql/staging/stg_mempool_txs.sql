/*
summary = "One row per entry of a transaction into a node's mempool."
grain = ["node", "txid", "entered_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
txid = "BLOB  Transaction id, internal byte order"
wtxid = "BLOB  Witness transaction id, internal byte order"
entered_at = "TIMESTAMP WITH TIME ZONE  Our clock when we learnt that it was in the mempool (or in a block)"
first_seen_kind = "VARCHAR  How we learnt of it; only `pushed` is a time of entry"
mempool_sequence = "BIGINT  The node's mempool sequence of the entry"
node_entered_at = "TIMESTAMP WITH TIME ZONE  The node's own entry time; survives its restarts"
size_bytes = "BIGINT  Serialised size with witness data"
weight_wu = "BIGINT  BIP141 weight"
vsize_vb = "BIGINT  Virtual size as the node's mempool counts it"
n_inputs = "INTEGER  Inputs"
n_outputs = "INTEGER  Outputs"
output_value_sat = "BIGINT  Value of the outputs"
fee_sat = "BIGINT  Base fee; null when it could not be learnt"
fee_source = "VARCHAR  Where the fee is from"
ancestor_count = "INTEGER  In-mempool ancestors at entry, itself included"
ancestor_vsize_vb = "BIGINT  Their virtual size, itself included"
ancestor_fees_sat = "BIGINT  Their fees, itself included"
descendant_count = "INTEGER  In-mempool descendants when asked, itself included"
descendant_vsize_vb = "BIGINT  Their virtual size, itself included"
descendant_fees_sat = "BIGINT  Their fees, itself included"
parents = "BLOB[]  Txids of its parents in the mempool at entry"
signals_rbf = "BOOLEAN  True when it signals BIP125 replaceability itself"
version = "BIGINT  Transaction version"
locktime = "BIGINT  Lock time"
output_types = "VARCHAR[]  Type of each output in order, as the node names it"
op_return_bytes = "INTEGER  Largest output script that begins with OP_RETURN, that opcode included; 0 without one"
n_dust_outputs = "INTEGER  Outputs below the dust threshold of Bitcoin Core's default"
n_envelopes = "INTEGER  Envelopes in scripts of taproot script-path spends, as inscriptions have"
envelope_bytes = "INTEGER  Size of these envelopes"
spent_types = "VARCHAR[]  Type of the output that each input spends, in order; null where one is not known"
sigop_cost = "INTEGER  BIP141 cost of signature operations; null while the spent outputs are unknown"
*/
select
    node,
    session,
    txid,
    wtxid,
    entered_at,
    first_seen_kind,
    mempool_sequence,
    node_entered_at,
    size_bytes,
    weight_wu,
    vsize_vb,
    n_inputs,
    n_outputs,
    output_value_sat,
    fee_sat,
    fee_source,
    ancestor_count,
    ancestor_vsize_vb,
    ancestor_fees_sat,
    descendant_count,
    descendant_vsize_vb,
    descendant_fees_sat,
    parents,
    signals_rbf,
    version,
    locktime,
    output_types,
    op_return_bytes,
    n_dust_outputs,
    n_envelopes,
    envelope_bytes,
    spent_types,
    sigop_cost
from mempool_txs
