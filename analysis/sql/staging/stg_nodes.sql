/*
summary = "Run manifest: one row per node and session."
grain = ["node", "session"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
started_at = "TIMESTAMP WITH TIME ZONE  Our clock when the session began"
chain = "VARCHAR  Chain the node is on, as the node names it"
node_version = "INTEGER  The node's version number, e.g. 290000"
subversion = "VARCHAR  The node's user agent"
tip_height = "INTEGER  Height of the node's tip when the session began"
tip_hash = "BLOB  Hash of the node's tip when the session began"
n_mempool_at_start = "BIGINT  Transactions in the mempool when the session began"
clock_offset_us = "BIGINT  Our clock minus the node host's, to its resolution of 1 s"
policy = "VARCHAR  JSON: the node's relay and mempool policy as its RPC reports it"
zmq = "VARCHAR  JSON: topic, endpoint and high-water mark of each notifier used"
collector_version = "VARCHAR  Version of this software"
software = "VARCHAR  JSON: versions of Python and of the libraries that matter"
settings = "VARCHAR  JSON: the settings of the run, without secrets"
*/
select
    node,
    session,
    started_at,
    chain,
    node_version,
    subversion,
    tip_height,
    tip_hash,
    n_mempool_at_start,
    clock_offset_us,
    policy,
    zmq,
    collector_version,
    software,
    settings
from nodes
