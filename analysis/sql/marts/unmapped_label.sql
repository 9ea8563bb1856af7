/*
summary = "The names by which third parties call pools and that are none of our names."
method = """
Imported labels of blocks of the active chain: label sets by height, block tables of other providers by block hash. A
label is read through the names and aliases of data/pools, in any capitals; 'unknown' or an empty label is no name. To
map a label, write it into `aliases` of its pool in data/pools/SLUG.toml, or into a new file there, and build again.
"""
grain = ["source", "kind", "label"]
[columns]
source = "VARCHAR  name of the source, as in stg_external_sources"
kind = "VARCHAR  labels: looked up by height; blocks: looked up by block hash"
label = "VARCHAR  the source's name of the pool, as it writes it"
block_count = "BIGINT  blocks that the source calls so"
unknown_count = "BIGINT  of these, blocks whose pool stays unknown: no rule and no other label names it"
first_height = "INTEGER  height of the first of these blocks"
last_height = "INTEGER  height of the last of these blocks"
*/
with

blocks as (
    select
        block_hash,
        height,
        is_unknown
    from block_owner
    where grouped_by = 'pool'
),

labels as (
    select
        stg_external_pool_labels.source,
        'labels' as kind,
        stg_external_pool_labels.label,
        blocks.height,
        blocks.is_unknown
    from stg_external_pool_labels
    inner join blocks
        on stg_external_pool_labels.height = blocks.height
    union all
    select
        stg_external_blocks.source,
        'blocks' as kind,
        stg_external_blocks.pool_label as label,
        blocks.height,
        blocks.is_unknown
    from stg_external_blocks
    inner join blocks
        on stg_external_blocks.block_hash = blocks.block_hash
)

select
    source,
    kind,
    label,
    count(*) as block_count,
    count(*) filter (where is_unknown) as unknown_count,
    min(height) as first_height,
    max(height) as last_height
from labels
where
    not is_no_pool(label)
    and lower(label) not in (select pool_names.name from pool_names)
group by source, kind, label
order by source, kind, block_count desc, label
