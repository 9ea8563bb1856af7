/*
summary = "What each block of the active chain earned: subsidy, fees, and their value in USD on that day."
method = """
Revenue is the subsidy of the height plus the fees of the transactions. Where the fees are not known, both are null.
What a coinbase left unclaimed is not subtracted; claimed_sat is what it took. USD values use the close of the UTC day
of the header time (price_day) and are null without a price of that day.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
day = "DATE  UTC day of the header time"
subsidy_sat = "BIGINT  new coins this height allows"
fees_sat = "BIGINT  sum of the fees; null while unknown"
revenue_sat = "BIGINT  subsidy and fees; null while the fees are unknown"
claimed_sat = "BIGINT  value of the coinbase's outputs; null where no source gives it"
price_usd = "DOUBLE  USD per bitcoin on that day; null without one"
revenue_usd = "DOUBLE  USD, revenue at that price"
expected_hashes = "DOUBLE  hashes that a block of this difficulty takes on average"
told_by = "VARCHAR  source of the fees: observed, backfilled, or the name of an imported source; source of the block while the fees are unknown"
*/
with

blocks as (
    select
        chain_blocks.block_hash,
        chain_blocks.height,
        cast(chain_blocks.header_time as date) as day,
        chain_blocks.subsidy_sat,
        chain_blocks.fees_sat,
        coalesce(chain_blocks.fees_told_by, chain_blocks.told_by) as told_by,
        chain_blocks.subsidy_sat + chain_blocks.fees_sat as revenue_sat,
        block_facts.coinbase_value_sat as claimed_sat,
        block_work.expected_hashes
    from chain_blocks
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    inner join block_work
        on chain_blocks.block_hash = block_work.block_hash
    where chain_blocks.is_active
)

select
    blocks.block_hash,
    blocks.height,
    blocks.day,
    blocks.subsidy_sat,
    blocks.fees_sat,
    blocks.revenue_sat,
    blocks.claimed_sat,
    price_day.price_usd,
    blocks.revenue_sat / 1e8 * price_day.price_usd as revenue_usd,
    blocks.expected_hashes,
    blocks.told_by
from blocks
left join price_day
    on blocks.day = price_day.day
order by blocks.height
