/*
summary = "How far each node lags behind the first one, for blocks and for transactions."
method = """
Blocks of block_propagation, and transactions of transaction_lags; only those that at least two nodes pushed, and of
transactions only what was pushed within an hour of the first entry. lag is the time behind the first of them. A quantile
of transactions is the least time, in ms, that so many of them do not exceed. Of two nodes that are equally well
connected, each should be first half of the time. With a single node there is nothing to compare and no row. The
intervals of blocks assume independent blocks: Wilson's of first_ratio, median_interval of the lag. Transactions that
come together lag together, so their median has no interval, and that of their first_ratio takes UTC days for
independent (part_interval): one day has none, and a few have a wide one. In a merged dataset the members' clocks were
compared by what they saw in common (stg_member_clocks): a lag between nodes of two members is known to clock_error_s,
and a node that is always late by some time cannot be told from a clock that is ahead by it.
"""
grain = ["node", "kind"]
[columns]
node = "VARCHAR  name of the watched node"
kind = "VARCHAR  block or transaction"
n_shared = "BIGINT  blocks or transactions that this node and at least one other pushed; a transaction counts once per UTC day (transaction_lags)"
n_first = "BIGINT  those of them that this node pushed first, ties counted for each"
first_ratio = "DOUBLE  0..1, n_first / n_shared"
first_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval; null for transactions of one UTC day"
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

blocks as (
    select
        node,
        'block' as kind,
        count(*) as n_shared,
        count(*) filter (where lag_s = 0) as n_first,
        quantile_cont(lag_s, [0.5, 0.9, 0.99]) as lags_s,
        list(lag_s order by lag_s) as sorted_lags_s,
        median(spread_s) as spread_median_s,
        median(connect_s) as connect_median_s
    from block_propagation
    where n_nodes > 1
    group by node
),

numbered as (
    select
        node,
        measure,
        value_ms,
        sum(n_transactions) as n_here,
        sum(sum(n_transactions)) over in_order as n_up_to_here,
        sum(sum(n_transactions)) over of_node as n_all
    from transaction_lags
    group by node, measure, value_ms
    window
        of_node as (partition by node, measure),
        in_order as (partition by node, measure order by value_ms rows between unbounded preceding and current row)
),

days as (
    select
        node,
        day_key,
        cast(sum(n_transactions) as double) as n_shared,
        cast(coalesce(sum(n_transactions) filter (where value_ms = 0), 0) as double) as n_first
    from transaction_lags
    where measure = 'lag'
    group by node, day_key
),

first_of_days as (
    select
        node,
        part_interval(list(n_first order by day_key), list(n_shared order by day_key)) as of_days
    from days
    group by node
),

transactions as (
    select
        node,
        'transaction' as kind,
        cast(sum(n_here) filter (where measure = 'lag') as bigint) as n_shared,
        cast(coalesce(sum(n_here) filter (where measure = 'lag' and value_ms = 0), 0) as bigint) as n_first,
        [
            min(value_ms) filter (where measure = 'lag' and n_up_to_here >= 0.5 * n_all) / 1e3,
            min(value_ms) filter (where measure = 'lag' and n_up_to_here >= 0.9 * n_all) / 1e3,
            min(value_ms) filter (where measure = 'lag' and n_up_to_here >= 0.99 * n_all) / 1e3
        ] as lags_s,
        cast(null as double[]) as sorted_lags_s,
        min(value_ms) filter (where measure = 'spread' and n_up_to_here >= 0.5 * n_all) / 1e3 as spread_median_s,
        cast(null as double) as connect_median_s
    from numbered
    group by node
),

counts as (
    select *
    from blocks
    union all
    select *
    from transactions
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
        counts.*,
        case
            when counts.kind = 'block' then wilson_interval(counts.n_first, counts.n_shared) else first_of_days.of_days
        end as first_interval,
        median_interval(counts.sorted_lags_s) as lag_median_interval
    from counts
    left join first_of_days
        on counts.node = first_of_days.node
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
