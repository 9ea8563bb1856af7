/*
summary = "Which of the transactions that left a mempool without a block or a conflict expired, and which were evicted."
method = """
One row per R of mempool_events with the reason expired_or_evicted, which is what remains when no event explains a
removal. A node expires a transaction that is too old, with its descendants; it evicts those that pay least when its
mempool is full, and then asks for more than they paid. `expired`: its age, by the node's own time of entry, is at least
mempool_expiry_s, or it is above an hour, which is the least that a node can be told, and the mempool had room. `evicted`:
it was younger, the mempool was full at one of the two polls around the removal (mempool_stats), and it paid less than
the lowest feerate that the mempool accepted at the later one. A child that left within a second of its parent, on the
same UTC day, has the cause of the parent. A poll more than 12 h away tells nothing, and neither does an entry more than
15 days before. `untold` is the rest: the polls are missing, or neither fits. The node does not say when it lets
transactions expire; where it is told to do so sooner than after 14 days, one that expires while the mempool is full and
that pays little counts as evicted.
"""
grain = ["node", "session", "sequence"]
[ranges]
by = "message_days"
[ranges.reads]
stg_mempool_events = """received_at >= getvariable('range_from_at') and received_at < getvariable('range_to_at')
and event = 'R' and removal_reason = 'expired_or_evicted'"""
stg_mempool_txs = """entered_at >= getvariable('range_from_at') - interval 15 days
and entered_at < getvariable('range_to_at') and txid in (select hash from stg_mempool_events)"""
stg_mempool_stats = """taken_at >= getvariable('range_from_at') - interval 1 day
and taken_at < getvariable('range_to_at') + interval 1 day"""
[parameters]
mempool_expiry_s = {value = 1209600, doc = "s; 14 days, the default of Bitcoin Core's -mempoolexpiry"}
full_ratio = {value = 0.9, doc = "part of the allowed memory from which on a mempool counts as full"}
[columns]
node = "VARCHAR  name of the watched node"
session = "VARCHAR  the session's key in stg_nodes"
sequence = "BIGINT  counter of the R, as in mempool_events"
txid = "BLOB  transaction id, internal byte order"
removed_at = "TIMESTAMP WITH TIME ZONE  time on our clock of the R"
age_s = "DOUBLE  s since the node's own time of entry, or else ours; null when neither is known"
feerate_sat_vb = "DOUBLE  sat/vB that it paid itself; null when never learnt"
usage_ratio = "DOUBLE  0..1, part of the allowed memory in use, the larger of the polls before and after; null without polls"
min_feerate_sat_vb = "DOUBLE  sat/vB, lowest feerate that the mempool accepted at the poll after it; null without one"
cause = "VARCHAR  expired, evicted or untold"
*/
with recursive

losses as (
    select
        node,
        session,
        sequence,
        hash as txid,
        received_at as removed_at
    from stg_mempool_events
    where event = 'R' and removal_reason = 'expired_or_evicted'
),

entries as (
    select
        losses.node,
        losses.session,
        losses.sequence,
        stg_mempool_txs.parents,
        stg_mempool_txs.fee_sat / nullif(stg_mempool_txs.vsize_vb, 0) as feerate_sat_vb,
        coalesce(
            stg_mempool_txs.node_entered_at,
            case when stg_mempool_txs.first_seen_kind = 'pushed' then stg_mempool_txs.entered_at end
        ) as entered_at
    from losses
    inner join stg_mempool_txs
        on
            losses.node = stg_mempool_txs.node
            and losses.session = stg_mempool_txs.session
            and losses.txid = stg_mempool_txs.txid
    where
        stg_mempool_txs.entered_at <= losses.removed_at
        and stg_mempool_txs.entered_at >= losses.removed_at - interval 15 days
    qualify row_number() over (
        partition by losses.node, losses.session, losses.sequence order by stg_mempool_txs.entered_at desc
    ) = 1
),

polls as (
    select
        node,
        session,
        taken_at,
        usage_bytes / nullif(max_usage_bytes, 0) as usage_ratio,
        lead(taken_at) over in_order <= taken_at + interval 12 hours as has_next,
        lead(usage_bytes / nullif(max_usage_bytes, 0)) over in_order as next_usage_ratio,
        lead(min_feerate_sat_vb) over in_order as next_min_feerate_sat_vb
    from stg_mempool_stats
    window in_order as (partition by node, session order by taken_at)
),

polled as (
    select
        losses.node,
        losses.session,
        losses.sequence,
        case when polls.has_next then polls.next_min_feerate_sat_vb end as min_feerate_sat_vb,
        greatest(
            polls.usage_ratio,
            coalesce(case when polls.has_next then polls.next_usage_ratio end, polls.usage_ratio)
        ) as usage_ratio
    from losses
    asof inner join polls
        on losses.node = polls.node and losses.session = polls.session and losses.removed_at >= polls.taken_at
    where polls.taken_at >= losses.removed_at - interval 12 hours
),

measured as (
    select
        losses.*,
        entries.parents,
        entries.feerate_sat_vb,
        polled.usage_ratio,
        polled.min_feerate_sat_vb,
        seconds_between(entries.entered_at, losses.removed_at) as age_s
    from losses
    left join entries
        on
            losses.node = entries.node
            and losses.session = entries.session
            and losses.sequence = entries.sequence
    left join polled
        on
            losses.node = polled.node
            and losses.session = polled.session
            and losses.sequence = polled.sequence
),

judged as (
    select
        *,
        case
            when age_s >= getvariable('mempool_expiry_s') then 'expired'
            when age_s >= 3600 and usage_ratio < getvariable('full_ratio') then 'expired'
            when usage_ratio >= getvariable('full_ratio') and feerate_sat_vb < min_feerate_sat_vb then 'evicted'
        end as own_cause
    from measured
),

children as (
    select
        node,
        session,
        sequence,
        txid,
        removed_at,
        unnest(parents) as parent_txid
    from judged
    where own_cause is null
),

-- From parent to child, as far as no cause of its own is known.
causes (node, session, sequence, txid, removed_at, cause) as (
    select
        node,
        session,
        sequence,
        txid,
        removed_at,
        own_cause as cause
    from judged
    where own_cause is not null
    union
    select
        children.node,
        children.session,
        children.sequence,
        children.txid,
        children.removed_at,
        causes.cause
    from causes
    inner join children
        on
            causes.node = children.node
            and causes.session = children.session
            and causes.txid = children.parent_txid
    where
        abs(seconds_between(causes.removed_at, children.removed_at)) <= 1
        and cast(causes.removed_at as date) = cast(children.removed_at as date)
),

told as (
    select
        node,
        session,
        sequence,
        min(cause) as cause
    from causes
    group by node, session, sequence
)

select
    judged.node,
    judged.session,
    judged.sequence,
    judged.txid,
    judged.removed_at,
    judged.age_s,
    judged.feerate_sat_vb,
    judged.usage_ratio,
    judged.min_feerate_sat_vb,
    coalesce(told.cause, 'untold') as cause
from judged
left join told
    on
        judged.node = told.node
        and judged.session = told.session
        and judged.sequence = told.sequence
order by judged.removed_at, judged.node, judged.session, judged.sequence
