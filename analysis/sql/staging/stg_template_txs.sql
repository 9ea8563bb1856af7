/*
summary = "The transactions of each template, in its order."
grain = ["node", "taken_at", "tx_index"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
taken_at = "TIMESTAMP WITH TIME ZONE  Names the row of `templates`"
tx_index = "INTEGER  Position in a block made of the template; the first is 1"
txid = "BLOB  Transaction id, internal byte order"
fee_sat = "BIGINT  Fee as the node counts it for selection, priority included"
weight_wu = "BIGINT  BIP141 weight"
n_sigops = "BIGINT  Signature-operation cost"
parents = "INTEGER[]  tx_index of its parents in the template"
*/
select
    node,
    session,
    taken_at,
    tx_index,
    txid,
    fee_sat,
    weight_wu,
    n_sigops,
    parents
from template_txs
