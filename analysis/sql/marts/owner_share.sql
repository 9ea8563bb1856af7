/*
summary = "Share of blocks per pool or entity, and of the n largest together, per day, difficulty epoch and over all."
method = """
Share = blocks of the owner / all blocks of the period, including unknown ones, but not those with neither a coinbase
nor a label, from which to find the pool (block_owner); with Wilson's 95 % interval (E. B. Wilson, 1927). Owners are
ordered by blocks, then by slug. Cumulative columns are about this owner and all before it, so position n gives the
share of the top n. Among nearly equal owners the luckiest come first, which makes the sum of the top n too large; its
interval is Wilson's with the lower bound moved down by twice the bias that 299 seeded bootstrap draws show
(analysis/stats/concentration.py). The draws take about 1 ms per period and grouping, most of this mart's time.
share_if_theirs_ratio and cumulative_if_largest_ratio are upper bounds: what the owner, or the top n, would have if
every unknown block were theirs. A period without blocks has no row.
"""
grain = ["grouped_by", "period_kind", "period", "owner"]
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
period_kind = "VARCHAR  day, epoch or all"
period = "VARCHAR  UTC day of the header time, number of the difficulty epoch, or all"
first_height = "INTEGER  first of the blocks that count in the period"
owner = "VARCHAR  slug of the pool or entity; 'unknown' when no rule matches"
owner_name = "VARCHAR  name of the owner"
is_unknown = "BOOLEAN  true for blocks whose pool is unknown; not an owner"
position = "BIGINT  1 is the largest owner; equal owners are in the order of their slugs; null for unknown"
block_count = "BIGINT  blocks on the active chain"
total_block_count = "BIGINT  blocks of the period, all owners and unknown"
share_ratio = "DOUBLE  0..1"
share_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
share_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
share_if_theirs_ratio = "DOUBLE  0..1, share if all unknown blocks were its own; null for unknown"
cumulative_block_count = "BIGINT  blocks of this owner and of all before it; null for unknown"
cumulative_ratio = "DOUBLE  0..1, share of the top n; null for unknown"
cumulative_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
cumulative_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
cumulative_if_largest_ratio = "DOUBLE  0..1, share of the top n if all unknown blocks were theirs"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

counts as (
    select
        grouped_by,
        period_kind,
        period,
        owner,
        owner_name,
        is_unknown,
        min(height) as owner_first_height,
        sources_of(list(told_by)) as told_by,
        count(*) as block_count
    from owner_periods
    where grouped_by != 'network'
    group by grouped_by, period_kind, period, owner, owner_name, is_unknown
),

ordered as (
    select
        *,
        min(owner_first_height) over period_blocks as first_height,
        cast(sum(block_count) over period_blocks as bigint) as total_block_count,
        coalesce(sum(block_count) filter (where is_unknown) over period_blocks, 0) as unknown_block_count,
        case when not is_unknown then row_number() over by_size end as position,
        case when not is_unknown then cast(sum(block_count) over by_size as bigint) end as cumulative_block_count
    from counts
    window
        period_blocks as (partition by grouped_by, period_kind, period),
        by_size as (
            partition by grouped_by, period_kind, period, is_unknown
            order by block_count desc, owner
            rows between unbounded preceding and current row
        )
),

tops as (
    select
        grouped_by,
        period_kind,
        period,
        top_intervals(
            list(block_count order by position) filter (where not is_unknown), any_value(total_block_count)
        ) as intervals
    from ordered
    group by grouped_by, period_kind, period
),

shares as (
    select
        ordered.*,
        wilson_interval(ordered.block_count, ordered.total_block_count) as share_interval,
        tops.intervals[ordered.position] as cumulative_interval
    from ordered
    inner join tops
        on
            ordered.grouped_by = tops.grouped_by
            and ordered.period_kind = tops.period_kind
            and ordered.period = tops.period
)

select
    grouped_by,
    period_kind,
    period,
    first_height,
    owner,
    owner_name,
    is_unknown,
    position,
    block_count,
    total_block_count,
    block_count / total_block_count as share_ratio,
    share_interval.low as share_low_ratio,
    share_interval.high as share_high_ratio,
    case when not is_unknown then (block_count + unknown_block_count) / total_block_count end as share_if_theirs_ratio,
    cumulative_block_count,
    cumulative_block_count / total_block_count as cumulative_ratio,
    cumulative_interval.low as cumulative_low_ratio,
    cumulative_interval.high as cumulative_high_ratio,
    (cumulative_block_count + unknown_block_count) / total_block_count as cumulative_if_largest_ratio,
    told_by
from shares
order by grouped_by, period_kind, first_height, is_unknown, position
