/*
summary = "What mining earned: subsidy, fees, USD and hashprice, network and per pool or entity, per day, epoch and over all."
method = """
Sums of block_revenue over blocks whose fees are known, in full or by the claim of the coinbase (claimed_block_count).
They count everything in the dataset and estimate nothing, so they have no interval; what a pool would have earned with
other luck is in the interval of its share. Hashprice is the revenue divided by the hashes that these blocks take on
average, for 1 PH/s during a day (8.64e19 hashes): it depends on difficulty, subsidy, fees and price, not on luck. USD
columns cover only blocks on days with a price (priced_block_count) and are null without one. share_ratio is the owner's
part of the period's revenue. Where the dataset has only a part of a period, or some fees or prices are unknown, the
sums are too small to be compared with other periods. The *_per_day rates can be compared: earnings of a block whose
fees (and subsidy and price) are known, times the owner's blocks per 86,400 s (hashrate: timed blocks / elapsed time).
Blocks with neither a coinbase nor a label, from which to find the pool, count in the grouping 'network' alone.
"""
grain = ["grouped_by", "period_kind", "period", "owner"]
[columns]
grouped_by = "VARCHAR  network, or pool, owner, proxy as in block_owner"
period_kind = "VARCHAR  day, epoch or all"
period = "VARCHAR  UTC day of the header time, number of the difficulty epoch, or all"
first_height = "INTEGER  first of the blocks that count in the period"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches; 'all' for the network"
owner_name = "VARCHAR  name of the owner"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not an owner"
block_count = "BIGINT  blocks on the active chain"
fee_block_count = "BIGINT  blocks whose fees are known"
claimed_block_count = "BIGINT  those of them whose fees only the claim of the coinbase tells, as in block_revenue"
priced_block_count = "BIGINT  blocks whose fees are known, on a day with a price"
subsidy_sat = "BIGINT  new coins of the blocks whose fees are known"
fees_sat = "BIGINT  fees of these blocks"
revenue_sat = "BIGINT  subsidy and fees of these blocks, where the subsidy is known, too"
fee_ratio = "DOUBLE  0..1, fees / revenue of the blocks whose revenue is known"
share_ratio = "DOUBLE  0..1, part of the revenue of all owners in the period"
revenue_usd = "DOUBLE  USD; null without a priced block"
fees_sat_per_day = "DOUBLE  sat per day; null without a timed block"
revenue_sat_per_day = "DOUBLE  sat per day; null without a timed block"
revenue_usd_per_day = "DOUBLE  USD per day; null without a timed block or a priced one"
hashprice_sat_per_ph_day = "DOUBLE  sat for 1 PH/s during a day; null without difficulty"
hashprice_usd_per_ph_day = "DOUBLE  USD for 1 PH/s during a day; null without difficulty or price"
told_by = "VARCHAR[]  sources of the fees of these blocks, and of blocks of unknown fees, each once: observed, backfilled, or names of imported sources"
*/
with

blocks as (
    select
        owner_periods.*,
        case when block_revenue.fees_sat is not null then block_revenue.subsidy_sat end as subsidy_sat,
        block_revenue.told_by as fees_told_by,
        block_revenue.fees_sat,
        block_revenue.are_fees_claimed,
        block_revenue.revenue_sat,
        block_revenue.revenue_usd,
        -- Fees are a part of the revenue of the same blocks; hashprice compares revenue and hashes of the same blocks.
        case when block_revenue.revenue_sat is not null then block_revenue.fees_sat end as earned_fees_sat,
        case when block_revenue.expected_hashes is not null then block_revenue.revenue_sat end as hashed_sat,
        case when block_revenue.expected_hashes is not null then block_revenue.revenue_usd end as hashed_usd,
        case when block_revenue.revenue_sat is not null then block_revenue.expected_hashes end as paid_hashes,
        case when block_revenue.revenue_usd is not null then block_revenue.expected_hashes end as priced_hashes
    from owner_periods
    inner join block_revenue
        on owner_periods.block_hash = block_revenue.block_hash
),

sums as (
    select
        grouped_by,
        period_kind,
        period,
        owner,
        owner_name,
        is_unknown,
        min(height) as owner_first_height,
        sources_of(list(fees_told_by)) as told_by,
        count(*) as block_count,
        count(fees_sat) as fee_block_count,
        count(*) filter (where are_fees_claimed) as claimed_block_count,
        count(revenue_usd) as priced_block_count,
        cast(sum(subsidy_sat) as bigint) as subsidy_sat,
        cast(sum(fees_sat) as bigint) as fees_sat,
        cast(sum(revenue_sat) as bigint) as revenue_sat,
        count(revenue_sat) as revenue_block_count,
        cast(sum(earned_fees_sat) as bigint) as earned_fees_sat,
        ordered_sum(revenue_usd) as revenue_usd,
        cast(sum(hashed_sat) as bigint) as hashed_sat,
        ordered_sum(hashed_usd) as hashed_usd,
        ordered_sum(paid_hashes) as paid_hashes,
        ordered_sum(priced_hashes) as priced_hashes
    from blocks
    group by grouped_by, period_kind, period, owner, owner_name, is_unknown
),

timed as (
    select
        sums.*,
        case
            when hashrate.elapsed_s > 0 then hashrate.timed_block_count * 86400 / hashrate.elapsed_s
        end as blocks_per_day
    from sums
    inner join hashrate
        on
            sums.grouped_by = hashrate.grouped_by
            and sums.period_kind = hashrate.period_kind
            and sums.period = hashrate.period
            and sums.owner = hashrate.owner
)

select
    grouped_by,
    period_kind,
    period,
    min(owner_first_height) over (partition by period_kind, period) as first_height,
    owner,
    owner_name,
    is_unknown,
    block_count,
    fee_block_count,
    claimed_block_count,
    priced_block_count,
    subsidy_sat,
    fees_sat,
    revenue_sat,
    earned_fees_sat / nullif(revenue_sat, 0) as fee_ratio,
    revenue_sat / nullif(sum(revenue_sat) over (partition by grouped_by, period_kind, period), 0) as share_ratio,
    revenue_usd,
    fees_sat / nullif(fee_block_count, 0) * blocks_per_day as fees_sat_per_day,
    revenue_sat / nullif(revenue_block_count, 0) * blocks_per_day as revenue_sat_per_day,
    revenue_usd / nullif(priced_block_count, 0) * blocks_per_day as revenue_usd_per_day,
    hashed_sat * 8.64e19 / nullif(paid_hashes, 0) as hashprice_sat_per_ph_day,
    hashed_usd * 8.64e19 / nullif(priced_hashes, 0) as hashprice_usd_per_ph_day,
    told_by
from timed
order by grouped_by, period_kind, first_height, is_unknown, block_count desc, owner
