/*
summary = "Transactions taken by a block that the node left again, and what became of each of them then."
method = """
A block that loses confirms no transaction. When the node leaves a block, its transactions return to the mempool as new
stays, unless a block of the other branch holds them; such a block takes them without any message. So stays of one
transaction at one node belong together where a block that was left mined it and the next stay began after that block. A
block was left if it is stale, or if the node connected it again later. The transaction ends at the first cut after its
entry of a block on the active chain (chain_blocks) that holds it: a block that was left and won in the end confirmed it
when it came for the first time, and the stay that its second coming ends is no wait of its own. Where there is no such
cut, it ends as the last of these stays does; where a stale block mined that stay too, the transaction is `undone`: it
was not seen after that stale block. Stays within 15 days of the block count (returned_stays), and blocks within 2,000
heights (stale_confirmations).
"""
grain = ["stay_no"]
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
first_stay_no = "BIGINT  stay_no of the first of the stays that belong together"
left_reason = "VARCHAR  how the last of these stays ended, mined or undone where a block took it; null while it waits"
left_position = "DECIMAL(38,0)  place in the node's stream of that end; null while it waits"
left_at = "TIMESTAMP WITH TIME ZONE  time of that end on our clock; null while it waits"
*/
with

numbered_cuts as (
    select
        mempool_cuts.node,
        mempool_cuts.cut_no,
        chain_blocks.is_active,
        row_number() over (
            partition by mempool_cuts.node, mempool_cuts.block_hash order by mempool_cuts.position desc
        ) as place_from_last
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
),

left_cuts as (
    select
        node,
        cut_no
    from numbered_cuts
    where place_from_last > 1 or not is_active
),

undone as (
    select distinct
        stay.node,
        stay.txid
    from returned_stays as stay
    inner join left_cuts
        on stay.node = left_cuts.node and stay.mined_cut_no = left_cuts.cut_no
),

stays as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        stay.position,
        stay.left_reason,
        stay.left_position,
        stay.left_at,
        left_cuts.cut_no is not null as is_undone
    from returned_stays as stay
    semi join undone
        on stay.node = undone.node and stay.txid = undone.txid
    left join left_cuts
        on stay.node = left_cuts.node and stay.mined_cut_no = left_cuts.cut_no
),

marked as (
    select
        *,
        coalesce(lag(is_undone) over in_order, false) as is_return
    from stays
    window in_order as (partition by node, txid order by position, stay_no)
),

numbered as (
    select
        *,
        count(case when not is_return then 1 end) over in_order as journey_no
    from marked
    window in_order as (partition by node, txid order by position, stay_no)
),

journeys as (
    select
        node,
        txid,
        journey_no,
        arg_min(stay_no, (position, stay_no)) as first_stay_no,
        min(position) as position,
        arg_max(
            struct_pack(
                left_reason := left_reason,
                left_position := left_position,
                left_at := left_at,
                is_undone := is_undone
            ),
            (position, stay_no)
        ) as last
    from numbered
    group by node, txid, journey_no
    having bool_or(is_undone)
),

confirmations as (
    select
        mempool_cuts.node,
        stale_confirmations.txid,
        mempool_cuts.position,
        mempool_cuts.connected_at
    from stale_confirmations
    inner join mempool_cuts
        on stale_confirmations.block_hash = mempool_cuts.block_hash
),

confirmed as (
    select
        journeys.first_stay_no,
        min(confirmations.position) as position,
        arg_min(confirmations.connected_at, confirmations.position) as connected_at
    from journeys
    inner join confirmations
        on
            journeys.node = confirmations.node
            and journeys.txid = confirmations.txid
            and journeys.position < confirmations.position
    where
        journeys.last.is_undone
        or journeys.last.left_position is null
        or confirmations.position <= journeys.last.left_position
    group by journeys.first_stay_no
)

select
    numbered.stay_no,
    journeys.first_stay_no,
    case
        when confirmed.position is not null then 'mined'
        when not journeys.last.is_undone then journeys.last.left_reason
        else 'undone'
    end as left_reason,
    coalesce(confirmed.position, journeys.last.left_position) as left_position,
    coalesce(confirmed.connected_at, journeys.last.left_at) as left_at
from numbered
inner join journeys
    on
        numbered.node = journeys.node
        and numbered.txid = journeys.txid
        and numbered.journey_no = journeys.journey_no
left join confirmed
    on journeys.first_stay_no = confirmed.first_stay_no
order by numbered.stay_no
