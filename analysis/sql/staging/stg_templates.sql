/*
summary = "getblocktemplate snapshots: what a stock node would mine."
grain = ["node", "taken_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
taken_at = "TIMESTAMP WITH TIME ZONE  Our clock when the answer was complete"
request_us = "BIGINT  How long the node took to answer, in microseconds"
trigger = "VARCHAR  Why it was taken"
height = "INTEGER  Height the template is for"
prev_hash = "BLOB  Tip it builds on, internal byte order"
node_time = "TIMESTAMP WITH TIME ZONE  `curtime` of the template"
n_tx = "INTEGER  Transactions, without a coinbase"
weight_wu = "BIGINT  Their weight"
n_sigops = "BIGINT  Their signature-operation cost"
fees_sat = "BIGINT  Their fees"
coinbase_value_sat = "BIGINT  Most that the coinbase may pay"
*/
select
    node,
    session,
    taken_at,
    request_us,
    trigger,
    height,
    prev_hash,
    node_time,
    n_tx,
    weight_wu,
    n_sigops,
    fees_sat,
    coinbase_value_sat
from templates
