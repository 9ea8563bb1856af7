/*
summary = "Every block that a node connected: the moments (cuts) at which the marts look at its mempool."
method = """
A node announces a connected block with C in its `sequence` stream. The node knew everything that stands before that C
in the stream before the block, and learnt everything behind it later; rawblock and rawtx use other topics and may be a
few milliseconds early or late. cut_no numbers the C of a node in the order of the stream. It begins anew with each
UTC day, so another day changes none. A block connected while the stream was interrupted has no C of its own.
block_arrivals knows when we learnt of it, so it still takes its transactions out of the mempool, but the mempool is not
measured there. It is not measured either where coverage of topic `mempool` is missing, or when a block is connected for
a second time after a reorganisation.
"""
grain = ["node", "cut_no"]
[columns]
node = "VARCHAR  name of the watched node"
cut_no = "BIGINT  UTC day since 1970 times 1,000,000,000, plus 1, 2, ... in the order in which the node connected blocks"
session = "VARCHAR  the session's key in stg_nodes"
block_hash = "BLOB  header hash, internal byte order"
connected_at = "TIMESTAMP WITH TIME ZONE  time on our clock when we learnt that the node had connected the block"
position = "DECIMAL(38,0)  place in the node's stream (macro stream_position)"
height = "INTEGER  height of the block; null while no source gives the block"
is_measured = "BOOLEAN  the mempool just before this block is known"
*/
with

announced as (
    select
        node,
        session,
        block_hash,
        received_at as connected_at,
        stream_position(received_at, sequence) as position,
        true as is_announced
    from block_messages
    where event = 'C'
),

inferred as (
    select
        node,
        session,
        block_hash,
        event_at as connected_at,
        stream_position(event_at, 0) as position,
        false as is_announced
    from stg_block_arrivals
    where event = 'connected'
),

cuts as (
    select * from announced
    union all
    select inferred.*
    from inferred
    anti join announced
        on
            inferred.node = announced.node
            and inferred.session = announced.session
            and inferred.block_hash = announced.block_hash
),

numbered as (
    select
        *,
        window_key(connected_at, 86400) + row_number() over (
            partition by node, window_key(connected_at, 86400) order by position, block_hash
        ) as cut_no,
        row_number() over (partition by node, block_hash order by position) = 1 as is_first
    from cuts
),

in_step as (
    select * from coverage_intervals
    where topic = 'mempool'
)

select
    numbered.node,
    numbered.cut_no,
    numbered.session,
    numbered.block_hash,
    numbered.connected_at,
    numbered.position,
    chain_blocks.height,
    numbered.is_announced
    and numbered.is_first
    and exists (
        select 1
        from in_step
        where
            in_step.node = numbered.node
            and in_step.session = numbered.session
            and numbered.connected_at between in_step.from_at and in_step.to_at
    ) as is_measured
from numbered
left join chain_blocks
    on numbered.block_hash = chain_blocks.block_hash
order by numbered.node, numbered.cut_no
