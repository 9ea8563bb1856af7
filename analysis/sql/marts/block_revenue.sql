/*
summary = "What each block of the active chain earned: subsidy, fees, and their value in USD on that day."
method = """
Revenue is the subsidy of the height plus the fees of the transactions. What a coinbase left unclaimed is not
subtracted; claimed_sat is what it took. Where the sum of the fees is not known, as after a backfill without undo data,
the fees are what the coinbase claimed above the subsidy (are_fees_claimed). Nearly every coinbase claims all; one that
claims less makes these fees too low. Without this, only empty blocks would have fees there, all of them 0. Where the
claim is not known or below the subsidy, fees and revenue are null. USD values use the close of the UTC day of the
header time (price_day) and are null without a price of that day.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
day = "DATE  UTC day of the header time"
subsidy_sat = "BIGINT  new coins this height allows"
fees_sat = "BIGINT  sum of the fees, or what the coinbase claimed above the subsidy; null while both are unknown"
are_fees_claimed = "BOOLEAN  the fees are those that the coinbase claimed; false: the sum of the fees, or unknown"
revenue_sat = "BIGINT  subsidy and fees; null where fees_sat is"
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
        chain_blocks.fees_sat as known_fees_sat,
        case
            when block_facts.coinbase_value_sat >= chain_blocks.subsidy_sat
                then block_facts.coinbase_value_sat - chain_blocks.subsidy_sat
        end as claimed_fees_sat,
        coalesce(chain_blocks.fees_told_by, chain_blocks.told_by) as told_by,
        block_facts.coinbase_value_sat as claimed_sat,
        block_work.expected_hashes
    from chain_blocks
    inner join block_facts
        on chain_blocks.block_hash = block_facts.block_hash
    inner join block_work
        on chain_blocks.block_hash = block_work.block_hash
    where chain_blocks.is_active
),

paid as (
    select
        *,
        coalesce(known_fees_sat, claimed_fees_sat) as fees_sat,
        known_fees_sat is null and claimed_fees_sat is not null as are_fees_claimed,
        subsidy_sat + coalesce(known_fees_sat, claimed_fees_sat) as revenue_sat
    from blocks
)

select
    paid.block_hash,
    paid.height,
    paid.day,
    paid.subsidy_sat,
    paid.fees_sat,
    paid.are_fees_claimed,
    paid.revenue_sat,
    paid.claimed_sat,
    price_day.price_usd,
    paid.revenue_sat / 1e8 * price_day.price_usd as revenue_usd,
    paid.expected_hashes,
    paid.told_by
from paid
left join price_day
    on paid.day = price_day.day
order by paid.height
