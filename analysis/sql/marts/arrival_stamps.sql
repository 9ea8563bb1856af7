/*
summary = "When each clock saw each block: our own, and each imported list of arrivals."
method = """
A clock is 'own' (the first `seen` that a node pushed to us, as in chain_blocks) or an imported source of arrivals. Two
clocks must never be mixed in one difference. Nodes that were off fetch many blocks at once, and their stamps do not say
when the blocks were found: is_catch_up marks blocks that are among catch_up_blocks within 60 s at one clock, which
chance does once in ten million blocks.
"""
grain = ["clock", "block_hash"]
[parameters]
catch_up_blocks = {value = 6, doc = "blocks within 60 s, from which on they count as fetched after a pause"}
[columns]
clock = "VARCHAR  own, or the name of an imported source"
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
arrived_at = "TIMESTAMP WITH TIME ZONE  when this clock saw the block"
is_only = "BOOLEAN  the clock has no other block at this height"
is_catch_up = "BOOLEAN  fetched after a pause, with others"
*/
with

stamps as (
    select
        source as clock,
        block_hash,
        height,
        arrived_at
    from stg_external_arrivals
    union all
    select
        'own' as clock,
        block_hash,
        height,
        arrived_at
    from chain_blocks
    where arrived_at is not null
),

runs as (
    select
        *,
        epoch_us(arrived_at) as arrived_us,
        count(*) over (
            partition by clock
            order by epoch_us(arrived_at)
            range between current row and 60000000 following
        ) >= getvariable('catch_up_blocks') as begins_run
    from stamps
)

select
    clock,
    block_hash,
    height,
    arrived_at,
    count(*) over (partition by clock, height) = 1 as is_only,
    bool_or(begins_run) over (
        partition by clock
        order by arrived_us
        range between 60000000 preceding and current row
    ) as is_catch_up
from runs
order by clock, height, block_hash
