/*
summary = "Races: of two pools that found a block at the same height, how often each one won."
method = """
A race is a branch that lost (stale_branches) against a rival that the dataset has; the pools are those of the lowest
stale block and of the active block beside it. Races that are still open, of a pool against itself, or with an unknown
pool are left out. Each pool goes on from its own block. If the other miners are split evenly, the first pool wins with
the chance (1 + a - b) / 2, where a and b are the two shares of the blocks of the race's difficulty epoch (owner_share);
shares of the whole dataset would be wrong for a pool that came, went or grew. expected_ratio is the mean over the
races. The p-value is that of a binomial count with this chance, two-sided: exact where the shares stay, a little too
large where they change. It is corrected over all pairs (Holm, as in empty_intervals). The nodes that tell of stale
blocks are near some pools and far from others, so a list of stale blocks need not hold all races.
"""
grain = ["pool", "rival_pool"]
[columns]
pool = "VARCHAR  slug; of the two the first by the alphabet"
pool_name = "VARCHAR  name of that pool"
rival_pool = "VARCHAR  slug of the other pool"
rival_pool_name = "VARCHAR  name of the other pool"
race_count = "BIGINT  races between the two"
won_count = "BIGINT  races that the first pool won"
won_ratio = "DOUBLE  0..1, won / races"
won_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval (Wilson)"
won_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval (Wilson)"
expected_ratio = "DOUBLE  0..1, mean of (1 + a - b) / 2 over the races"
p_value = "DOUBLE  0..1, chance of an outcome at least as uneven"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of pairs"
*/
with

races as (
    select
        block_owner.epoch,
        least(stale_branches.pools[1], stale_branches.rival_pool) as pool,
        greatest(stale_branches.pools[1], stale_branches.rival_pool) as rival_pool,
        stale_branches.rival_pool < stale_branches.pools[1] as has_won
    from stale_branches
    inner join block_owner
        on stale_branches.rival_hash = block_owner.block_hash
    where
        block_owner.grouped_by = 'pool'
        and not stale_branches.is_open
        and stale_branches.rival_pool != stale_branches.pools[1]
        and stale_branches.rival_pool != 'unknown' and stale_branches.pools[1] != 'unknown'
),

shares as (
    select
        period,
        owner,
        share_ratio
    from owner_share
    where grouped_by = 'pool' and period_kind = 'epoch'
),

chances as (
    select
        races.*,
        (1 + coalesce(first_share.share_ratio, 0) - coalesce(second_share.share_ratio, 0)) / 2 as chance
    from races
    left join shares as first_share
        on cast(races.epoch as varchar) = first_share.period and races.pool = first_share.owner
    left join shares as second_share
        on cast(races.epoch as varchar) = second_share.period and races.rival_pool = second_share.owner
),

expected as (
    select
        pool,
        rival_pool,
        count(*) as race_count,
        count(*) filter (where has_won) as won_count,
        ordered_sum(chance) / count(*) as expected_ratio
    from chances
    group by pool, rival_pool
),

tested as (
    select
        expected.*,
        coalesce(first_pool.name, expected.pool) as pool_name,
        coalesce(second_pool.name, expected.rival_pool) as rival_pool_name,
        wilson_interval(expected.won_count, expected.race_count) as bounds,
        rate_ratio(
            expected.won_count,
            expected.expected_ratio,
            expected.race_count - expected.won_count,
            1 - expected.expected_ratio
        ).p_value as p_value
    from expected
    left join pools as first_pool
        on expected.pool = first_pool.slug
    left join pools as second_pool
        on expected.rival_pool = second_pool.slug
),

corrected as (
    select
        *,
        row_number() over of_family as place,
        adjusted_p_values(list(p_value) over of_family) as adjusted
    from tested
    window of_family as (order by pool, rival_pool rows between unbounded preceding and unbounded following)
)

select
    pool,
    pool_name,
    rival_pool,
    rival_pool_name,
    race_count,
    won_count,
    won_count / race_count as won_ratio,
    bounds.low as won_low_ratio,
    bounds.high as won_high_ratio,
    expected_ratio,
    p_value,
    adjusted[place] as adjusted_p_value
from corrected
order by pool, rival_pool
