/*
summary = "How many stays of each day of entry began and ended their wait at each block."
method = """
Stays of mempool_residence that waited at a block, counted by UTC day of entry and by the cuts between which they waited.
The counts of all days together give how many waited at a block (block_mempool).
"""
grain = ["entry_day", "node", "cut_no"]
[ranges]
by = "mempool_days"
[ranges.reads]
mempool_residence = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
[columns]
entry_day = "BIGINT  UTC day of entry since 1970, our clock"
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  cut of mempool_cuts; 9,000,000,000,000,000,000 for the end of what still waits"
n_begun = "BIGINT  stays for which it is the first cut"
n_begun_unrated = "BIGINT  those of them whose fee or size was never learnt"
n_ended = "BIGINT  stays for which it is the last cut"
n_ended_unrated = "BIGINT  those of them whose fee or size was never learnt"
n_own = "BIGINT  stays that its block ended by taking the transaction"
*/
with

waited as (
    select
        stay_no // 1000000000 as entry_day,
        node,
        first_cut_no,
        last_cut_no,
        mined_cut_no,
        cast(fee_sat is null or vsize_vb is null as integer) as is_unrated
    from mempool_residence
    where first_cut_no <= last_cut_no
),

turned as (
    select
        entry_day,
        node,
        first_cut_no as cut_no,
        count(*) as n_begun,
        sum(is_unrated) as n_begun_unrated,
        0 as n_ended,
        0 as n_ended_unrated,
        0 as n_own
    from waited
    group by entry_day, node, first_cut_no
    union all
    select
        entry_day,
        node,
        last_cut_no as cut_no,
        0 as n_begun,
        0 as n_begun_unrated,
        count(*) as n_ended,
        sum(is_unrated) as n_ended_unrated,
        0 as n_own
    from waited
    group by entry_day, node, last_cut_no
    union all
    select
        entry_day,
        node,
        mined_cut_no as cut_no,
        0 as n_begun,
        0 as n_begun_unrated,
        0 as n_ended,
        0 as n_ended_unrated,
        count(*) as n_own
    from waited
    where mined_cut_no is not null
    group by entry_day, node, mined_cut_no
)

select
    entry_day,
    node,
    cut_no,
    cast(sum(n_begun) as bigint) as n_begun,
    cast(sum(n_begun_unrated) as bigint) as n_begun_unrated,
    cast(sum(n_ended) as bigint) as n_ended,
    cast(sum(n_ended_unrated) as bigint) as n_ended_unrated,
    cast(sum(n_own) as bigint) as n_own
from turned
group by entry_day, node, cut_no
order by entry_day, node, cut_no
