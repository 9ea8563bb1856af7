/*
summary = "The last block of each branch that a node knows, whenever a tip is new or its row would differ."
grain = ["node", "session", "taken_at", "block_hash"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
taken_at = "TIMESTAMP WITH TIME ZONE  Our clock when the answer of getchaintips was complete"
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Height of the block"
branch_length = "INTEGER  Blocks between it and the active chain, itself included; 0 on that chain"
status = "VARCHAR  As the node names it; headers-only and valid-headers were never connected"
*/
select
    node,
    session,
    taken_at,
    block_hash,
    height,
    branch_length,
    status
from chain_tips
