/*
summary = "Hashrate of the network and of each pool or entity, per day, difficulty epoch and over all, by two methods."
method = """
Paper: H = D * 2^48 / ((2^16 - 1) * 600), where D is the mean difficulty of the period's blocks (arXiv:1902.07549). This
is what the network would need to find one block in 600 s; a pool has its share of it. Observed: the hashes that the
blocks found stand for, divided by the time they took, from the header time of the first block's parent to that of the
last block. Blocks whose parent is not in the dataset are not timed, and their hashes are not counted. Waiting times for
blocks are exponential, so the network's 95 % interval comes from Gamma(n) for n timed blocks; a pool's interval comes
from the number of its blocks in that time, Gamma(k) to Gamma(k + 1) (F. Garwood, 1936). Unknown has a row of its own:
any owner may have a part of it. Blocks of which nobody tells a coinbase or a label count in the grouping 'network'
alone: in the others, shares, time and difficulty are those of the other blocks. Header times are wrong by minutes,
which the interval of a day does not show.
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
timed_block_count = "BIGINT  blocks whose parent is in the dataset"
elapsed_s = "DOUBLE  s, time that the timed blocks of all owners of the grouping took"
difficulty_block_count = "BIGINT  blocks of all owners of the grouping whose difficulty is known, also those that are not timed"
mean_difficulty = "DOUBLE  mean over these blocks"
paper_hashes_per_s = "DOUBLE  hashes/s, from difficulty alone, times the share of blocks"
observed_hashes_per_s = "DOUBLE  hashes/s, from the blocks found; null without a timed block or without time"
observed_low_hashes_per_s = "DOUBLE  hashes/s, lower bound of the 95 % interval"
observed_high_hashes_per_s = "DOUBLE  hashes/s, upper bound of the 95 % interval"
told_by = "VARCHAR[]  sources of these blocks and their targets, each once: observed, backfilled, or names of imported sources"
*/
with

blocks as (
    select
        owner_periods.*,
        block_work.difficulty,
        block_work.header_interval_s,
        block_work.target_told_by,
        case when block_work.header_interval_s is not null then block_work.expected_hashes end as timed_hashes
    from owner_periods
    inner join block_work
        on owner_periods.block_hash = block_work.block_hash
),

totals as (
    select
        grouped_by,
        period_kind,
        period,
        min(height) as first_height,
        count(*) as total_block_count,
        ordered_sum(header_interval_s) as elapsed_s,
        count(difficulty) as difficulty_block_count,
        ordered_sum(difficulty) / nullif(count(difficulty), 0) as mean_difficulty
    from blocks
    group by grouped_by, period_kind, period
),

counts as (
    select
        grouped_by,
        period_kind,
        period,
        owner,
        owner_name,
        is_unknown,
        sources_of(list_concat(list(told_by), list(target_told_by))) as told_by,
        count(*) as block_count,
        count(header_interval_s) as timed_block_count,
        ordered_sum(timed_hashes) as timed_hashes
    from blocks
    group by grouped_by, period_kind, period, owner, owner_name, is_unknown
),

rates as (
    select
        counts.*,
        totals.first_height,
        totals.total_block_count,
        totals.difficulty_block_count,
        totals.mean_difficulty,
        coalesce(totals.elapsed_s, 0) as elapsed_s,
        case when totals.elapsed_s > 0 then counts.timed_hashes / totals.elapsed_s end as observed_hashes_per_s,
        -- One block of the owner in this time stands for so many hashes per second.
        case
            when totals.elapsed_s > 0 then counts.timed_hashes / counts.timed_block_count / totals.elapsed_s
        end as unit_hashes_per_s,
        gamma_interval(
            cast(counts.timed_block_count as double),
            cast(counts.timed_block_count + cast(counts.grouped_by != 'network' as integer) as double)
        ) as bounds
    from counts
    inner join totals
        on
            counts.grouped_by = totals.grouped_by
            and counts.period_kind = totals.period_kind
            and counts.period = totals.period
)

select
    grouped_by,
    period_kind,
    period,
    first_height,
    owner,
    owner_name,
    is_unknown,
    block_count,
    timed_block_count,
    elapsed_s,
    difficulty_block_count,
    mean_difficulty,
    mean_difficulty * 281474976710656.0 / (65535.0 * 600) * block_count / total_block_count as paper_hashes_per_s,
    observed_hashes_per_s,
    bounds.low * unit_hashes_per_s as observed_low_hashes_per_s,
    bounds.high * unit_hashes_per_s as observed_high_hashes_per_s,
    told_by
from rates
order by grouped_by, period_kind, first_height, is_unknown, block_count desc, owner
