/*
summary = "getmempoolinfo and a feerate histogram, on a timer."
grain = ["node", "taken_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
taken_at = "TIMESTAMP WITH TIME ZONE  Our clock when the answer was complete"
n_tx = "BIGINT  Transactions"
vsize_vb = "BIGINT  Their virtual size"
usage_bytes = "BIGINT  Memory the node's mempool uses"
max_usage_bytes = "BIGINT  Memory it may use"
fees_sat = "BIGINT  Their fees"
min_feerate_sat_vb = "DOUBLE  Lowest feerate that the mempool accepts"
histogram = "STRUCT(from_feerate_sat_vb DOUBLE, n_tx BIGINT, vsize_vb BIGINT, fees_sat BIGINT)[]  Transactions by own feerate, as this collector knows them; lower bounds"
clock_offset_us = "BIGINT  Our clock minus the node host's when asked, to its resolution of 1 s"
*/
select
    node,
    session,
    taken_at,
    n_tx,
    vsize_vb,
    usage_bytes,
    max_usage_bytes,
    fees_sat,
    min_feerate_sat_vb,
    histogram,
    clock_offset_us
from mempool_stats
