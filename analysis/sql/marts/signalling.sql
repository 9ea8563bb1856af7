/*
summary = "What each pool signals in its headers and coinbases: version bits, and coinbases as BIP 54 asks for them."
method = """
Blocks of the active chain. A header whose version begins with the bits 001 (BIP 9) may signal with bits 0 to 28. Bits 13
to 28 are free for miners to roll (BIP 320), so a set one of them says nothing, and only bits 0 to 12 are listed, each for
all pools and all blocks as soon as one block sets it. bip54_coinbase: the coinbase's lock time is the height minus one, and its sequence is not
final, as the consensus cleanup of BIP 54 demands of every coinbase once it is active; a block that lacks these columns
(files of version 0.1.0) is not counted. A signal is a statement of readiness or a default of the software; it does not
say what the pool would do.
"""
grain = ["pool", "signal"]
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
signal = "VARCHAR  bit_0 to bit_12, or bip54_coinbase"
n_blocks = "BIGINT  blocks of the pool that could have it"
n_signalling = "BIGINT  those of them that have it"
signalling_ratio = "DOUBLE  0..1, n_signalling / n_blocks"
signalling_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
signalling_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
first_height = "INTEGER  height of the first block that has it; null without one"
last_height = "INTEGER  height of the last block that has it; null without one"
*/
with

mined as (
    select
        block_pool.pool,
        block_pool.pool_name,
        block_pool.height,
        stg_blocks.version,
        stg_blocks.coinbase_locktime,
        stg_blocks.coinbase_sequence
    from stg_blocks
    inner join block_pool
        on stg_blocks.block_hash = block_pool.block_hash
    inner join chain_blocks
        on stg_blocks.block_hash = chain_blocks.block_hash
    where chain_blocks.is_active
),

bits as (
    select unnest(range(13)) as bit_no
),

signals as (
    select
        mined.pool,
        mined.pool_name,
        mined.height,
        concat('bit_', cast(bits.bit_no as varchar)) as signal,
        bits.bit_no,
        cast(floor(mined.version / power(2, bits.bit_no)) as bigint) % 2 = 1 as is_set
    from mined
    cross join bits
    where mined.version >= 536870912 and mined.version < 1073741824
    union all
    select
        pool,
        pool_name,
        height,
        'bip54_coinbase' as signal,
        13 as bit_no,
        coinbase_locktime = height - 1 and coinbase_sequence != 4294967295 as is_set
    from mined
    where coinbase_locktime is not null and coinbase_sequence is not null
),

used as (
    select signal
    from signals
    group by signal
    having bool_or(is_set) or signal = 'bip54_coinbase'
),

counts as (
    select
        signals.pool,
        signals.pool_name,
        signals.signal,
        signals.bit_no,
        count(*) as n_blocks,
        count(*) filter (where signals.is_set) as n_signalling,
        min(signals.height) filter (where signals.is_set) as first_height,
        max(signals.height) filter (where signals.is_set) as last_height
    from signals
    inner join used
        on signals.signal = used.signal
    group by signals.pool, signals.pool_name, signals.signal, signals.bit_no
),

bounded as (
    select
        *,
        wilson_interval(n_signalling, n_blocks) as bounds
    from counts
)

select
    pool,
    pool_name,
    signal,
    n_blocks,
    n_signalling,
    n_signalling / n_blocks as signalling_ratio,
    bounds.low as signalling_low_ratio,
    bounds.high as signalling_high_ratio,
    first_height,
    last_height
from bounded
order by pool, bit_no
