/*
summary = "Empty blocks after a block of the same pool, compared with those after a block of another pool."
method = """
A pool knows its own block before anybody else and need not wait to download and validate it. So if empty blocks come
from mining before validation, they should be rarer after the pool's own blocks. Blocks of the active chain whose
parent is in the dataset. Left out are blocks of unknown pools and blocks after one, because two unknown blocks need
not be of one miner, and blocks at which nothing was waiting. The two rates have Wilson's intervals and are compared by
Fisher's exact test (analysis/stats/count_tests.py); odds below 1 mean that empty blocks are rarer after the pool's own.
adjusted_p_value is corrected for the number of owners of the grouping, as in empty_intervals. Large pools follow
themselves more often, so 'all' mixes how often a pool does that with how often its blocks are empty. Its stratified_*
columns therefore compare within each owner (N. Mantel and W. Haenszel, 1959). With pools grouped, "same" means the
same owner, or the same source of templates.
"""
grain = ["grouped_by", "owner"]
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
owner = "VARCHAR  slug of the pool or entity; 'all' for every block"
owner_name = "VARCHAR  name of the owner"
n_after_same = "BIGINT  blocks after one of the same owner"
n_empty_after_same = "BIGINT  those of them that are empty"
same_ratio = "DOUBLE  0..1, n_empty_after_same / n_after_same"
same_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
same_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
n_after_other = "BIGINT  blocks after one of another owner"
n_empty_after_other = "BIGINT  those of them that are empty"
other_ratio = "DOUBLE  0..1, n_empty_after_other / n_after_other"
other_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
other_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
odds = "DOUBLE  odds of an empty block after the same owner / after another; null where not defined"
odds_low = "DOUBLE  lower bound of the 95 % interval"
odds_high = "DOUBLE  upper bound of the 95 % interval; null when unbounded"
p_value = "DOUBLE  0..1, two-sided; null where a row or a column of the table is empty"
adjusted_p_value = "DOUBLE  0..1, corrected for the number of owners; that of 'all' is p_value"
stratified_odds = "DOUBLE  'all' only: the same odds within owners; null where no owner has both kinds of either"
stratified_odds_low = "DOUBLE  lower bound of the 95 % interval; null when odds are 0"
stratified_odds_high = "DOUBLE  upper bound of the 95 % interval; null when odds are 0"
stratified_p_value = "DOUBLE  0..1, two-sided, with correction for continuity"
told_by = "VARCHAR[]  sources of these blocks and their sizes, each once: observed, backfilled, or names of imported sources"
*/
with

counts as (
    select
        grouped_by,
        owner,
        owner_name,
        count(*) filter (where is_after_same) as n_after_same,
        count(*) filter (where is_after_same and is_empty) as n_empty_after_same,
        count(*) filter (where not is_after_same) as n_after_other,
        count(*) filter (where not is_after_same and is_empty) as n_empty_after_other,
        sources_of(flatten(list(block_told_by))) as told_by
    from owner_intervals
    where is_after_same is not null and not is_nothing_waiting
    group by grouped_by, owner, owner_name
),

strata as (
    select
        grouped_by,
        stratified_test(
            list(n_empty_after_same order by owner),
            list(n_after_same - n_empty_after_same order by owner),
            list(n_empty_after_other order by owner),
            list(n_after_other - n_empty_after_other order by owner)
        ) as test
    from counts
    where owner != 'all'
    group by grouped_by
),

judged as (
    select
        counts.*,
        case when counts.owner = 'all' then strata.test end as stratified,
        wilson_interval(counts.n_empty_after_same, counts.n_after_same) as same_interval,
        wilson_interval(counts.n_empty_after_other, counts.n_after_other) as other_interval,
        fisher_test(
            counts.n_empty_after_same,
            counts.n_after_same - counts.n_empty_after_same,
            counts.n_empty_after_other,
            counts.n_after_other - counts.n_empty_after_other
        ) as test
    from counts
    left join strata
        on counts.grouped_by = strata.grouped_by
)

select
    grouped_by,
    owner,
    owner_name,
    n_after_same,
    n_empty_after_same,
    n_empty_after_same / nullif(n_after_same, 0) as same_ratio,
    same_interval.low as same_low_ratio,
    same_interval.high as same_high_ratio,
    n_after_other,
    n_empty_after_other,
    n_empty_after_other / nullif(n_after_other, 0) as other_ratio,
    other_interval.low as other_low_ratio,
    other_interval.high as other_high_ratio,
    test.odds,
    test.odds_low,
    test.odds_high,
    test.p_value,
    adjusted_p_values(list(test.p_value) over of_family)[row_number() over of_family] as adjusted_p_value,
    stratified.odds as stratified_odds,
    stratified.odds_low as stratified_odds_low,
    stratified.odds_high as stratified_odds_high,
    stratified.p_value as stratified_p_value,
    told_by
from judged
window
    of_family as (
        partition by grouped_by, owner = 'all'
        order by owner
        rows between unbounded preceding and unbounded following
    )
order by grouped_by, owner != 'all', n_after_same + n_after_other desc, owner
