/*
summary = "How many transactions came how late to each node's mempool, by UTC day."
method = """
Entries that a node pushed to us. Of each UTC day, a transaction counts if two nodes or more pushed it within an hour of
its first entry on that day; so one that several nodes push on two days counts twice. What a node pushes later than that
hour is a return, or the node had refused it before, and says nothing of the network. What one node pushes before
midnight and another after it is left out: of the transactions with a lag of 10 s, this loses one in 8,640. lag is the
time behind the first node, spread that from the first node to the last. A row counts the transactions of one node and
day whose time, rounded up to milliseconds, is the same: a lag of 0 is that of the first.
"""
grain = ["node", "day_key", "measure", "value_ms"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_txs = """entered_at >= getvariable('range_from_at') and entered_at < getvariable('range_to_at')
and first_seen_kind = 'pushed'"""
[columns]
node = "VARCHAR  name of the watched node"
day_key = "BIGINT  UTC day of entry since 1970 times 1,000,000,000, as in stay_no"
measure = "VARCHAR  lag or spread"
value_ms = "BIGINT  ms, rounded up"
n_transactions = "BIGINT  transactions with that time"
*/
with

-- Sorting millions of transactions tells nothing where one node has pushed them all.
entries as (
    select
        node,
        txid,
        window_key(entered_at, 86400) as day_key,
        min(entered_at) as entered_at
    from stg_mempool_txs
    where
        first_seen_kind = 'pushed'
        and (
            select count(distinct other.node)
            from stg_mempool_txs as other
            where other.first_seen_kind = 'pushed'
        ) > 1
    group by node, txid, window_key(entered_at, 86400)
),

followed as (
    select
        *,
        min(entered_at) over (partition by txid, day_key) as first_at
    from entries
),

compared as (
    select
        node,
        day_key,
        epoch_us(entered_at) - epoch_us(first_at) as lag_us,
        epoch_us(max(entered_at) over of_tx) - epoch_us(first_at) as spread_us,
        count(*) over of_tx as n_nodes
    from followed
    where seconds_between(first_at, entered_at) <= 3600
    window of_tx as (partition by txid, day_key)
),

measured as (
    select
        node,
        day_key,
        'lag' as measure,
        lag_us as value_us
    from compared
    where n_nodes > 1
    union all
    select
        node,
        day_key,
        'spread' as measure,
        spread_us as value_us
    from compared
    where n_nodes > 1
)

select
    node,
    day_key,
    measure,
    (value_us + 999) // 1000 as value_ms,
    count(*) as n_transactions
from measured
group by node, day_key, measure, (value_us + 999) // 1000
order by day_key, node, measure, value_ms
