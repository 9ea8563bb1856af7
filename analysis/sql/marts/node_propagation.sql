/*
summary = "How far each node lags behind the first one, for blocks and for transactions."
method = """
Blocks of block_propagation, and transactions by their first entry into each node's mempool that was pushed to us; only
those that at least two nodes pushed. lag is the time behind the first of them. Of two nodes that are equally well
connected, each should be first half of the time. With a single node there is nothing to compare and no row. The
interval of the median lag of blocks assumes independent blocks (median_interval). Transactions that come together lag
together, so their median has no interval. In a merged dataset the members' clocks were compared by what they saw in
common (stg_member_clocks): a lag between nodes of two members is known to clock_error_s, and a node that is always late
by some time cannot be told from a clock that is ahead by it.
"""
grain = ["node", "kind"]
[columns]
node = "VARCHAR  name of the watched node"
kind = "VARCHAR  block or transaction"
n_shared = "BIGINT  blocks or transactions that this node and at least one other pushed"
n_first = "BIGINT  those of them that this node pushed first, ties counted for each"
first_ratio = "DOUBLE  0..1, n_first / n_shared"
first_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
first_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
lag_median_s = "DOUBLE  s behind the first node, median"
lag_median_low_s = "DOUBLE  s, lower bound of its 95 % interval; null for transactions, and below 6 blocks"
lag_median_high_s = "DOUBLE  s, upper bound of that interval"
lag_p90_s = "DOUBLE  s behind the first node, 90 % quantile"
lag_p99_s = "DOUBLE  s behind the first node, 99 % quantile"
spread_median_s = "DOUBLE  s from the first to the last node, median"
connect_median_s = "DOUBLE  s from seen to connected, median over its blocks; null for transactions"
clock_error_s = "DOUBLE  s, largest error of the correction of this node's clock to the others'; 0 on the first one's clock"
*/
with

-- Grouping ten million transactions tells nothing where one node has seen them all.
tx_nodes as (
    select
        node,
        txid,
        min(entered_at) as seen_at
    from stg_mempool_txs
    where
        first_seen_kind = 'pushed'
        and (
            select count(distinct other.node)
            from stg_mempool_txs as other
            where other.first_seen_kind = 'pushed'
        ) > 1
    group by node, txid
),

tx_lags as (
    select
        node,
        count(*) over of_tx as n_nodes,
        seconds_between(min(seen_at) over of_tx, seen_at) as lag_s,
        seconds_between(min(seen_at) over of_tx, max(seen_at) over of_tx) as spread_s
    from tx_nodes
    window of_tx as (partition by txid)
),

lags as (
    select
        node,
        'block' as kind,
        lag_s,
        spread_s,
        connect_s
    from block_propagation
    where n_nodes > 1
    union all
    select
        node,
        'transaction' as kind,
        lag_s,
        spread_s,
        cast(null as double) as connect_s
    from tx_lags
    where n_nodes > 1
),

counts as (
    select
        node,
        kind,
        count(*) as n_shared,
        count(*) filter (where lag_s = 0) as n_first,
        quantile_cont(lag_s, [0.5, 0.9, 0.99]) as lags_s,
        list(lag_s order by lag_s) filter (where kind = 'block') as block_lags_s,
        median(spread_s) as spread_median_s,
        median(connect_s) as connect_median_s
    from lags
    group by node, kind
),

clock_errors as (
    select
        member,
        max(error_us) / 1e6 as clock_error_s
    from stg_member_clocks
    group by member
),

judged as (
    select
        *,
        wilson_interval(n_first, n_shared) as first_interval,
        median_interval(block_lags_s) as lag_median_interval
    from counts
)

select
    judged.node,
    judged.kind,
    judged.n_shared,
    judged.n_first,
    judged.n_first / judged.n_shared as first_ratio,
    judged.first_interval.low as first_low_ratio,
    judged.first_interval.high as first_high_ratio,
    judged.lags_s[1] as lag_median_s,
    judged.lag_median_interval.low as lag_median_low_s,
    judged.lag_median_interval.high as lag_median_high_s,
    judged.lags_s[2] as lag_p90_s,
    judged.lags_s[3] as lag_p99_s,
    judged.spread_median_s,
    judged.connect_median_s,
    coalesce(clock_errors.clock_error_s, 0) as clock_error_s
from judged
left join clock_errors
    on split_part(judged.node, '.', 1) = clock_errors.member
order by judged.kind, judged.node
