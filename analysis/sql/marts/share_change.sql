/*
summary = "Has the distribution of blocks over owners changed from one period to the next? Test, effect size, who moved most."
method = """
Each day and each difficulty epoch is compared with the one before it in the dataset, by Pearson's chi-square test of
homogeneity on blocks per owner, with unknown as a group of its own. Owners with fewer than 5 blocks expected are
merged, with the smallest other owner where even together they are so few (analysis/stats/concentration.py). With
hundreds of periods some p-values are small by chance: adjusted_p_value is corrected over all periods of one kind (Holm,
as in empty_intervals; neighbouring tests share a period). Cramer's V is the size of the change: 0 the same shares, 1
completely different owners. Of several owners whose shares changed by as much, the first by name is given. The first
period has no earlier one and no row.
"""
grain = ["grouped_by", "period_kind", "period"]
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
period_kind = "VARCHAR  day or epoch"
period = "VARCHAR  UTC day of the header time, or number of the difficulty epoch"
previous_period = "VARCHAR  the period before it in the dataset"
first_height = "INTEGER  first of the blocks that count in the period"
block_count = "BIGINT  blocks of the period"
previous_block_count = "BIGINT  blocks of the previous period"
chi_square = "DOUBLE  Pearson's statistic; null where the blocks are too few for two groups"
degrees_of_freedom = "DOUBLE  groups minus one"
p_value = "DOUBLE  0..1, small: the shares have changed"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of periods"
cramers_v = "DOUBLE  0..1, size of the change"
most_gained_owner = "VARCHAR  owner whose share rose most; may be unknown"
most_gained_share = "DOUBLE  -1..1, change of that owner's share"
most_lost_owner = "VARCHAR  owner whose share fell most; may be unknown"
most_lost_share = "DOUBLE  -1..1, change of that owner's share"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

periods as (
    select
        grouped_by,
        period_kind,
        period,
        first_height,
        total_block_count,
        sources_of(flatten(list(told_by))) as period_told_by,
        lag(period) over in_order as previous_period,
        lag(total_block_count) over in_order as previous_total_block_count,
        lag(sources_of(flatten(list(told_by)))) over in_order as previous_told_by
    from owner_share
    where period_kind != 'all'
    group by grouped_by, period_kind, period, first_height, total_block_count
    -- Days by the calendar: header times may fall behind those of lower blocks, so heights would mix days up.
    window in_order as (
        partition by grouped_by, period_kind
        order by case when period_kind = 'day' then period end, first_height
    )
),

-- Every owner of either period, with its blocks in both.
owners as (
    select
        periods.grouped_by,
        periods.period_kind,
        periods.period,
        owner_share.owner,
        owner_share.block_count,
        0 as previous_block_count
    from periods
    inner join owner_share
        on
            periods.grouped_by = owner_share.grouped_by
            and periods.period_kind = owner_share.period_kind
            and periods.period = owner_share.period
    where periods.previous_period is not null
    union all
    select
        periods.grouped_by,
        periods.period_kind,
        periods.period,
        owner_share.owner,
        0 as block_count,
        owner_share.block_count as previous_block_count
    from periods
    inner join owner_share
        on
            periods.grouped_by = owner_share.grouped_by
            and periods.period_kind = owner_share.period_kind
            and periods.previous_period = owner_share.period
),

changes as (
    select
        owners.grouped_by,
        owners.period_kind,
        owners.period,
        owners.owner,
        cast(sum(owners.block_count) as bigint) as block_count,
        cast(sum(owners.previous_block_count) as bigint) as previous_block_count,
        -- Change of the share times both totals: a whole number, so that equal changes are equal.
        cast(
            sum(owners.block_count) * any_value(periods.previous_total_block_count)
            - sum(owners.previous_block_count) * any_value(periods.total_block_count) as bigint
        ) as gained,
        any_value(periods.previous_total_block_count) * any_value(periods.total_block_count) as both_totals
    from owners
    inner join periods
        on
            owners.grouped_by = periods.grouped_by
            and owners.period_kind = periods.period_kind
            and owners.period = periods.period
    group by owners.grouped_by, owners.period_kind, owners.period, owners.owner
),

tested as (
    select
        grouped_by,
        period_kind,
        period,
        homogeneity_test(list(block_count order by owner), list(previous_block_count order by owner)) as test,
        arg_min(owner, (-gained, owner)) filter (where gained > 0) as most_gained_owner,
        max(gained / both_totals) filter (where gained > 0) as most_gained_share,
        arg_min(owner, (gained, owner)) filter (where gained < 0) as most_lost_owner,
        min(gained / both_totals) filter (where gained < 0) as most_lost_share
    from changes
    group by grouped_by, period_kind, period
),

numbered as (
    select
        tested.*,
        periods.previous_period,
        periods.first_height,
        periods.total_block_count,
        periods.previous_total_block_count,
        sources_of(list_concat(periods.period_told_by, periods.previous_told_by)) as told_by,
        row_number() over (
            partition by tested.grouped_by, tested.period_kind order by periods.first_height
        ) as number
    from tested
    inner join periods
        on
            tested.grouped_by = periods.grouped_by
            and tested.period_kind = periods.period_kind
            and tested.period = periods.period
),

adjusted as (
    select
        grouped_by,
        period_kind,
        adjusted_p_values(list(test.p_value order by number)) as p_values
    from numbered
    group by grouped_by, period_kind
)

select
    numbered.grouped_by,
    numbered.period_kind,
    numbered.period,
    numbered.previous_period,
    numbered.first_height,
    numbered.total_block_count as block_count,
    numbered.previous_total_block_count as previous_block_count,
    numbered.test.chi_square,
    numbered.test.degrees_of_freedom,
    numbered.test.p_value,
    adjusted.p_values[numbered.number] as adjusted_p_value,
    numbered.test.cramers_v,
    numbered.most_gained_owner,
    numbered.most_gained_share,
    numbered.most_lost_owner,
    numbered.most_lost_share,
    numbered.told_by
from numbered
inner join adjusted
    on numbered.grouped_by = adjusted.grouped_by and numbered.period_kind = adjusted.period_kind
order by numbered.grouped_by, numbered.period_kind, numbered.first_height
