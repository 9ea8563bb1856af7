/*
summary = "How far our attribution agrees with each third-party label set."
method = """
Sums of label_agreement. agree_ratio is over the blocks that both name and whose label is one of our names, with
Wilson's 95 % interval. Cohen's kappa subtracts the agreement that two parties with these shares would reach by chance:
1 is full agreement, 0 is chance. It counts unknown as a name of its own and leaves out unmapped labels.
"""
grain = ["source", "kind"]
[columns]
source = "VARCHAR  name of the source, as in stg_external_sources"
kind = "VARCHAR  labels: compared by height; blocks: compared by block hash"
block_count = "BIGINT  blocks of the active chain that the source has, and whose coinbase is known"
agree_count = "BIGINT  both name the same pool"
disagree_count = "BIGINT  both name a pool, and not the same"
only_here_count = "BIGINT  only our rules name a pool"
only_there_count = "BIGINT  only the source names a pool"
neither_count = "BIGINT  unknown to both"
unmapped_count = "BIGINT  both name a pool, but the label is none of our names"
agree_ratio = "DOUBLE  0..1, agree / (agree + disagree)"
agree_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
agree_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
cohens_kappa = "DOUBLE  -1..1; null where both call every block by the same one name"
*/
with

counts as (
    select
        source,
        kind,
        cast(sum(block_count) as bigint) as block_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'agree'), 0) as bigint) as agree_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'disagree'), 0) as bigint) as disagree_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'only_here'), 0) as bigint) as only_here_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'only_there'), 0) as bigint) as only_there_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'neither'), 0) as bigint) as neither_count,
        cast(coalesce(sum(block_count) filter (where verdict = 'unmapped'), 0) as bigint) as unmapped_count
    from label_agreement
    group by source, kind
),

rated as (
    select
        source,
        kind,
        sum(block_count) as n_blocks,
        coalesce(sum(block_count) filter (where label_pool = pool), 0) as n_same
    from label_agreement
    where label_pool is not null
    group by source, kind
),

theirs as (
    select
        source,
        kind,
        label_pool as pool,
        sum(block_count) as n_blocks
    from label_agreement
    where label_pool is not null
    group by source, kind, label_pool
),

ours as (
    select
        source,
        kind,
        pool,
        sum(block_count) as n_blocks
    from label_agreement
    where label_pool is not null
    group by source, kind, pool
),

chances as (
    select
        theirs.source,
        theirs.kind,
        sum(theirs.n_blocks * ours.n_blocks) as n_pairs
    from theirs
    inner join ours
        on theirs.source = ours.source and theirs.kind = ours.kind and theirs.pool = ours.pool
    group by theirs.source, theirs.kind
),

kappas as (
    select
        rated.source,
        rated.kind,
        rated.n_same / rated.n_blocks as same_ratio,
        coalesce(chances.n_pairs, 0) / (rated.n_blocks * rated.n_blocks) as chance_ratio
    from rated
    left join chances
        on rated.source = chances.source and rated.kind = chances.kind
),

judged as (
    select
        *,
        wilson_interval(agree_count, agree_count + disagree_count) as bounds
    from counts
)

select
    judged.source,
    judged.kind,
    judged.block_count,
    judged.agree_count,
    judged.disagree_count,
    judged.only_here_count,
    judged.only_there_count,
    judged.neither_count,
    judged.unmapped_count,
    judged.agree_count / nullif(judged.agree_count + judged.disagree_count, 0) as agree_ratio,
    judged.bounds.low as agree_low_ratio,
    judged.bounds.high as agree_high_ratio,
    (kappas.same_ratio - kappas.chance_ratio) / nullif(1 - kappas.chance_ratio, 0) as cohens_kappa
from judged
left join kappas
    on judged.source = kappas.source and judged.kind = kappas.kind
order by judged.source, judged.kind
