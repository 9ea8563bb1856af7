/*
summary = "Who replaced whom in a node's mempool, over every hop, with the fees of both."
method = """
One row per stay (mempool_residence) that ended by a replacement, as the R of mempool_events says with replaced_by. The
replacement's own stay is the next one of that transaction at the node that begins on the UTC day of the R or on the day
after it (replacement_stays). Where it was replaced too, the chain goes on; a
transaction that comes back and is replaced again makes a new hop, so a chain never goes in a circle. One transaction
can replace several: then several rows name it. hop counts from the longest of the ways that lead to the row. Chains end
where the replacement was never seen to enter; by_stay_no is then null.
"""
grain = ["stay_no"]
[columns]
stay_no = "BIGINT  number of the replaced transaction's stay in mempool_residence"
node = "VARCHAR  name of the watched node"
txid = "BLOB  the replaced transaction"
replaced_by = "BLOB  txid of what replaced it"
by_stay_no = "BIGINT  stay of the replacement; null when its entry was not seen"
replaced_at = "TIMESTAMP WITH TIME ZONE  time on our clock of the R"
waited_s = "DOUBLE  s from its entry to the R"
hop = "BIGINT  1 where it had replaced nothing, else one more than the largest hop of what it replaced"
n_hops_left = "BIGINT  replacements from here to the last of the chain, this one included"
fee_sat = "BIGINT  its fee; null when never learnt"
vsize_vb = "BIGINT  its virtual size; null when never learnt"
by_fee_sat = "BIGINT  fee of the replacement; null when not known"
by_vsize_vb = "BIGINT  virtual size of the replacement; null when not known"
last_txid = "BLOB  txid of the last transaction of the chain, which nothing replaced"
last_fee_sat = "BIGINT  its fee; null when not known"
last_left_reason = "VARCHAR  how its stay ended, as in mempool_residence; null while it waits or when it was not seen"
*/
with recursive

removals as (
    select
        node,
        txid,
        replaced_by,
        replaced_at,
        stream_position(replaced_at, sequence) as position
    from replacements
),

replaced as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        removals.replaced_by,
        removals.replaced_at,
        removals.position,
        seconds_between(stay.entered_at, removals.replaced_at) as waited_s,
        stay.fee_sat,
        stay.vsize_vb
    from removals
    inner join replacement_stays as stay
        on
            removals.node = stay.node
            and removals.txid = stay.txid
            and removals.position = stay.left_position
),

next_stays as (
    select
        replaced.stay_no,
        arg_min(stay.stay_no, stay.position) as by_stay_no
    from replaced
    inner join replacement_stays as stay
        on
            replaced.node = stay.node
            and replaced.replaced_by = stay.txid
            and replaced.position < stay.position
            and stay.stay_no // 1000000000 - epoch_us(replaced.replaced_at) // 86400000000 <= 1
    group by replaced.stay_no
),

-- Most chains have one hop; what follows is about the few whose replacement was replaced too.
links as (
    select
        next_stays.stay_no,
        next_stays.by_stay_no
    from next_stays
    inner join replaced as later
        on next_stays.by_stay_no = later.stay_no
),

-- Every way along a chain: from each replaced stay to each of those after it.
ways (first_stay_no, stay_no, n_hops) as (
    select
        stay_no as first_stay_no,
        by_stay_no as stay_no,
        cast(2 as bigint) as n_hops
    from links
    union all
    select
        ways.first_stay_no,
        links.by_stay_no as stay_no,
        ways.n_hops + 1 as n_hops
    from ways
    inner join links
        on ways.stay_no = links.stay_no
),

hops as (
    select
        stay_no,
        max(n_hops) as hop
    from ways
    group by stay_no
),

ends as (
    select
        first_stay_no as stay_no,
        max(n_hops) as n_hops_left,
        arg_max(stay_no, n_hops) as end_stay_no
    from ways
    group by first_stay_no
),

lasts as (
    select
        ends.stay_no,
        ends.n_hops_left,
        last_replaced.replaced_by as last_txid,
        last_stay.fee_sat as last_fee_sat,
        last_stay.left_reason as last_left_reason
    from ends
    inner join replaced as last_replaced
        on ends.end_stay_no = last_replaced.stay_no
    left join next_stays as last_next
        on ends.end_stay_no = last_next.stay_no
    left join replacement_stays as last_stay
        on last_next.by_stay_no = last_stay.stay_no
)

select
    replaced.stay_no,
    replaced.node,
    replaced.txid,
    replaced.replaced_by,
    next_stays.by_stay_no,
    replaced.replaced_at,
    replaced.waited_s,
    coalesce(hops.hop, 1) as hop,
    coalesce(lasts.n_hops_left, 1) as n_hops_left,
    replaced.fee_sat,
    replaced.vsize_vb,
    replacement.fee_sat as by_fee_sat,
    replacement.vsize_vb as by_vsize_vb,
    if(lasts.stay_no is null, replaced.replaced_by, lasts.last_txid) as last_txid,
    if(lasts.stay_no is null, replacement.fee_sat, lasts.last_fee_sat) as last_fee_sat,
    if(lasts.stay_no is null, replacement.left_reason, lasts.last_left_reason) as last_left_reason
from replaced
left join hops
    on replaced.stay_no = hops.stay_no
left join lasts
    on replaced.stay_no = lasts.stay_no
left join next_stays
    on replaced.stay_no = next_stays.stay_no
left join replacement_stays as replacement
    on next_stays.by_stay_no = replacement.stay_no
order by replaced.stay_no
