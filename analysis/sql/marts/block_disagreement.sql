/*
summary = "Facts about a block on which two sources disagree."
method = """
For each block that our dataset or a block table has, each fact is compared with the same fact in every block table,
by block hash; time and target also with imported headers. A height at which a block table, a header or a list of
arrivals names a block that block_facts does not have is
the fact 'block_hash'. A block that a list calls stale and our active chain holds is the fact 'is_active'. Sizes that others
give by height are compared with those of the block of the active chain. Where no source gives a coinbase, labels that stand for different pools are the fact
'pool'. A label of a block whose coinbase is known is in label_agreement.
"""
grain = ["height", "fact", "source", "value"]
[columns]
height = "INTEGER  height of the block"
fact = "VARCHAR  block_hash, is_active, header_time, bits, n_tx, size_bytes, weight_wu, fees_sat, subsidy_sat or pool"
told_by = "VARCHAR  source of the fact that block_facts uses: observed, backfilled, or the name of an imported source"
told_value = "VARCHAR  value of that source"
source = "VARCHAR  imported source that disagrees"
value = "VARCHAR  value of the imported source"
*/
with

theirs as (
    select
        source,
        block_hash,
        unnest(['header_time', 'bits', 'n_tx', 'size_bytes', 'weight_wu', 'fees_sat', 'subsidy_sat']) as fact,
        unnest([
            cast(epoch(header_time) as bigint), bits, n_tx, size_bytes, weight_wu, fees_sat, subsidy_sat
        ]) as amount
    from stg_external_blocks
    union all
    select
        source,
        block_hash,
        unnest(['header_time', 'bits']) as fact,
        unnest([cast(epoch(header_time) as bigint), bits]) as amount
    from stg_external_headers
),

ours as (
    select
        block_hash,
        height,
        unnest(['header_time', 'bits', 'n_tx', 'size_bytes', 'weight_wu', 'fees_sat', 'subsidy_sat']) as fact,
        unnest([
            header_told_by, header_told_by, sizes_told_by, sizes_told_by, sizes_told_by, fees_told_by, told_by
        ]) as told_by,
        unnest([
            cast(epoch(header_time) as bigint), bits, n_tx, size_bytes, weight_wu, fees_sat, subsidy_sat
        ]) as amount
    from block_facts
),

named as (
    select
        source,
        height,
        block_hash
    from stg_external_blocks
    union
    select
        source,
        height,
        block_hash
    from stg_external_arrivals
    where block_hash not in (select listed_stale.block_hash from stg_external_stale_blocks as listed_stale)
    union
    select
        source,
        height,
        block_hash
    from stg_external_headers
),

labels as (
    select
        source,
        height,
        label
    from stg_external_pool_labels
    union
    select
        source,
        height,
        label
    from stg_external_block_sizes
),

-- What others tell of a height, not of a hash. A label of ours without a pool of that name contradicts nobody.
of_heights as (
    select
        chain_blocks.height,
        chain_blocks.sizes_told_by as told_by,
        sizes.source,
        unnest(['n_tx', 'size_bytes']) as fact,
        unnest([cast(chain_blocks.n_tx as varchar), cast(chain_blocks.size_bytes as varchar)]) as told_value,
        unnest([cast(sizes.n_tx as varchar), cast(sizes.size_bytes as varchar)]) as value
    from chain_blocks
    inner join stg_external_block_sizes as sizes
        on chain_blocks.height = sizes.height
    where chain_blocks.is_active
    union all
    select
        block_facts.height,
        block_facts.pool_told_by as told_by,
        labels.source,
        'pool' as fact,
        told_names.slug as told_value,
        names.slug as value
    from block_facts
    inner join pool_names as told_names
        on lower(block_facts.label) = told_names.name
    inner join labels
        on block_facts.height = labels.height
    inner join pool_names as names
        on lower(labels.label) = names.name
),

-- Heights at which the dataset has a block, but not this one. A stale block of ours at the height is no disagreement.
strangers as (
    select
        named.height,
        any_value(block_facts.told_by) as told_by,
        min(block_facts.block_hash) as told_hash,
        named.source,
        named.block_hash
    from named
    inner join block_facts
        on named.height = block_facts.height
    group by named.height, named.source, named.block_hash
    having not bool_or(named.block_hash = block_facts.block_hash)
)

select
    ours.height,
    ours.fact,
    ours.told_by,
    cast(ours.amount as varchar) as told_value,
    theirs.source,
    cast(theirs.amount as varchar) as value
from ours
inner join theirs
    on ours.block_hash = theirs.block_hash and ours.fact = theirs.fact
where ours.amount != theirs.amount
union all
select
    height,
    fact,
    told_by,
    told_value,
    source,
    value
from of_heights
where told_value != value
union all
select
    height,
    'block_hash' as fact,
    told_by,
    hash_hex(told_hash) as told_value,
    source,
    hash_hex(block_hash) as value
from strangers
union all
select
    chain_blocks.height,
    'is_active' as fact,
    block_facts.told_by,
    'true' as told_value,
    stg_external_stale_blocks.source,
    'false' as value
from stg_external_stale_blocks
inner join chain_blocks
    on stg_external_stale_blocks.block_hash = chain_blocks.block_hash and chain_blocks.is_active
inner join block_facts
    on chain_blocks.block_hash = block_facts.block_hash
order by height, fact, source, value
