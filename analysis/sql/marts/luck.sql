/*
summary = "Luck: blocks that an owner found in a difficulty epoch, against those that its share of the epochs beside it expects."
method = """
Difficulty is constant within an epoch, so each hash has the same chance there, and an owner with a constant part of the
hashes finds that part of the blocks, give or take chance. Expected are share times blocks of the epoch, where the share
is that of the epoch before and the epoch after together, or of the one that the dataset has; the epoch itself is left
out, or else luck would be measured by itself. luck_multiple is found / expected. Its interval and p-value take both
numbers of blocks as Poisson counts: given their sum, the blocks of the epoch are binomial (J. Przyborowski and H.
Wilenski, 1940; Clopper and Pearson's bounds). Shares are binomial rather than Poisson, so the interval is a little too
wide. p-values are corrected over all epochs and owners of a grouping (Holm, as in empty_intervals). Luck and a change
of the owner's hashrate for two weeks look the same here: a small p-value says that one of them happened, not which.
Epochs in which fewer than min_expected blocks are expected are left out, and so is unknown.
"""
grain = ["grouped_by", "epoch", "owner"]
[parameters]
min_expected = {value = 5, doc = "expected blocks; an epoch with fewer says too little"}
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
epoch = "BIGINT  number of the difficulty epoch, height / 2,016"
owner = "VARCHAR  slug of the pool or entity"
owner_name = "VARCHAR  name of the owner"
block_count = "BIGINT  blocks that it found in the epoch"
total_block_count = "BIGINT  blocks of all owners in the epoch"
beside_block_count = "BIGINT  blocks that it found in the epochs before and after"
beside_total_block_count = "BIGINT  blocks of all owners in those epochs"
expected_count = "DOUBLE  blocks expected by its share of those epochs"
luck_multiple = "DOUBLE  found / expected; above 1: more than expected"
luck_low_multiple = "DOUBLE  lower bound of the 95 % interval"
luck_high_multiple = "DOUBLE  upper bound of the 95 % interval"
p_value = "DOUBLE  0..1, chance of a number at least as far from the expected one, at an unchanged share"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of epochs and owners"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

counts as (
    select
        grouped_by,
        cast(period as bigint) as epoch,
        owner,
        owner_name,
        block_count,
        told_by
    from owner_share
    where period_kind = 'epoch' and not is_unknown and block_count > 0
),

epochs as (
    select distinct
        grouped_by,
        cast(period as bigint) as epoch,
        total_block_count
    from owner_share
    where period_kind = 'epoch'
),

beside_epochs as (
    select
        epochs.grouped_by,
        epochs.epoch,
        epochs.total_block_count,
        sum(beside.total_block_count) as beside_total_block_count
    from epochs
    inner join epochs as beside
        on epochs.grouped_by = beside.grouped_by and abs(epochs.epoch - beside.epoch) = 1
    group by epochs.grouped_by, epochs.epoch, epochs.total_block_count
),

beside_counts as (
    select
        beside_epochs.grouped_by,
        beside_epochs.epoch,
        beside_epochs.total_block_count,
        cast(beside_epochs.beside_total_block_count as bigint) as beside_total_block_count,
        counts.owner,
        counts.owner_name,
        cast(sum(counts.block_count) as bigint) as beside_block_count,
        flatten(list(counts.told_by)) as told_by
    from beside_epochs
    inner join counts
        on beside_epochs.grouped_by = counts.grouped_by and abs(beside_epochs.epoch - counts.epoch) = 1
    group by all
),

compared as (
    select
        beside_counts.*,
        coalesce(counts.block_count, 0) as block_count,
        beside_counts.beside_block_count * beside_counts.total_block_count
        / beside_counts.beside_total_block_count as expected_count,
        rate_ratio(
            coalesce(counts.block_count, 0),
            cast(beside_counts.total_block_count as double),
            beside_counts.beside_block_count,
            cast(beside_counts.beside_total_block_count as double)
        ) as test,
        sources_of(list_concat(beside_counts.told_by, coalesce(counts.told_by, []))) as all_told_by
    from beside_counts
    left join counts
        on
            beside_counts.grouped_by = counts.grouped_by
            and beside_counts.epoch = counts.epoch
            and beside_counts.owner = counts.owner
),

corrected as (
    select
        *,
        row_number() over of_family as place,
        adjusted_p_values(list(test.p_value) over of_family) as adjusted
    from compared
    where expected_count >= getvariable('min_expected')
    window of_family as (
        partition by grouped_by
        order by epoch, owner rows between unbounded preceding and unbounded following
    )
)

select
    grouped_by,
    epoch,
    owner,
    owner_name,
    block_count,
    total_block_count,
    beside_block_count,
    beside_total_block_count,
    expected_count,
    test.ratio as luck_multiple,
    test.low as luck_low_multiple,
    test.high as luck_high_multiple,
    test.p_value,
    adjusted[place] as adjusted_p_value,
    all_told_by as told_by
from corrected
order by grouped_by, epoch, owner
