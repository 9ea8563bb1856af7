/*
summary = "The pool that third parties name for each block, beside the pool that our rules name."
method = """
Imported labels (pool-collector import): label sets by height, block tables of other providers by block hash. A label is
read through the names and aliases of data/pools, in any capitals; 'unknown' or an empty label is unknown. verdict is
agree, disagree, only_here (only our rules name a pool), only_there (only they name one), neither, or unmapped (their
label is none of our names). Label sets share public tag lists with each other and with us, so agreement is no proof;
disagreement is worth a look. Counted are blocks of the active chain whose coinbase is known: the pool of one without
it may come from these very labels.
"""
grain = ["source", "kind", "label", "pool"]
[columns]
source = "VARCHAR  name of the source, as in stg_external_sources"
kind = "VARCHAR  labels: compared by height; blocks: compared by block hash"
label = "VARCHAR  the source's name of the pool, as it writes it"
label_pool = "VARCHAR  slug of the pool that the label means; null when the label is none of our names"
pool = "VARCHAR  slug by our rules; 'unknown' when no rule matches"
verdict = "VARCHAR  agree, disagree, only_here, only_there, neither or unmapped"
block_count = "BIGINT  number of blocks"
first_height = "INTEGER  height of the first of these blocks"
last_height = "INTEGER  height of the last of these blocks"
*/
with

ours as (
    select
        block_owner.block_hash,
        block_owner.height,
        block_owner.owner as pool
    from block_owner
    inner join block_facts
        on block_owner.block_hash = block_facts.block_hash
    -- A block that only a list of labels has would agree with itself.
    where block_owner.grouped_by = 'pool' and block_facts.coinbase_script is not null
),

labels as (
    select
        stg_external_pool_labels.source,
        'labels' as kind,
        stg_external_pool_labels.label,
        ours.pool,
        ours.height
    from stg_external_pool_labels
    inner join ours
        on stg_external_pool_labels.height = ours.height
    union all
    select
        stg_external_blocks.source,
        'blocks' as kind,
        stg_external_blocks.pool_label as label,
        ours.pool,
        ours.height
    from stg_external_blocks
    inner join ours
        on stg_external_blocks.block_hash = ours.block_hash
),

counts as (
    select
        source,
        kind,
        coalesce(label, '') as label,
        pool,
        count(*) as block_count,
        min(height) as first_height,
        max(height) as last_height
    from labels
    group by source, kind, coalesce(label, ''), pool
),

mapped as (
    select
        counts.*,
        case when is_no_pool(counts.label) then 'unknown' else pool_names.slug end as label_pool
    from counts
    left join pool_names
        on lower(counts.label) = pool_names.name
)

select
    source,
    kind,
    label,
    label_pool,
    pool,
    case
        when label_pool = 'unknown' and pool = 'unknown' then 'neither'
        when label_pool = 'unknown' then 'only_here'
        when pool = 'unknown' then 'only_there'
        when label_pool is null then 'unmapped'
        when label_pool = pool then 'agree'
        else 'disagree'
    end as verdict,
    block_count,
    first_height,
    last_height
from mapped
order by source, kind, block_count desc, label, pool
