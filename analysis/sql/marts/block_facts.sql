/*
summary = "Every block that any source has, with each fact from the best source."
method = """
Sources stand in a fixed order. First comes our own dataset: blocks that a node sent us ('observed'), then blocks
from a node's block files ('backfilled'). Then come the block tables of others, then lists of pool labels, then lists
of arrivals, each kind by the name of the source. A kind further down adds a block only at a height where none above
it has a block. Where several sources of a kind name different blocks for a height, the block that most of them name
counts, then the source whose name comes first. Where a list of labels has no time, the time is that of the next list
that has one. A block of ours whose fees are unknown takes them from a block table that has the same hash; fees_told_by
then names that table. Where the table of a block lacks a fact, it comes from the first other table that has the same hash and
tells it, then from a list that tells it for the height.

Imported headers come last, as no header tells who mined a block, but their word on hash, parent, time and target is
proved by work and goes before that of lists; header_told_by names who told the time. A header adds a block only where a
neighbour of it is imported too. Sizes that others give by height fill a block without any, and add none. A block
that a list calls stale is never taken from a table or a list.

Other sources of others do not name the parent: it is the block that this table has one height below. A list of labels
does not give the hash; a header with that height, the parent that the header above it names, or a list of arrivals does. Where none
does, block_hash is a key made of the height (label_block_key), which no real hash can equal. Pages, API, CSV and
`pool-analysis show` give null for it.

A coinbase names the pool by our rules. A label counts only where there is no coinbase: that of a block table first, then that of
a list; one that is 'unknown' counts only where nobody gives another; pool_told_by names whose coinbase or label it is.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order; a key made of the height where no source gives the hash"
height = "INTEGER  height of the block; 0 is the genesis block"
prev_hash = "BLOB  hash of the parent, internal byte order; null where it is not known"
header_time = "TIMESTAMP WITH TIME ZONE  time that the miner wrote into the header; null where no source gives it"
bits = "BIGINT  compact target; null where no source gives it"
n_tx = "INTEGER  transactions, coinbase included; null where no source gives it"
size_bytes = "BIGINT  serialised size; null where no source gives it"
weight_wu = "BIGINT  BIP141 weight; null where no source gives it"
fees_sat = "BIGINT  sum of the fees; null where no source gives it"
subsidy_sat = "BIGINT  new coins this height allows; null where no source gives it"
coinbase_value_sat = "BIGINT  value of the coinbase's outputs; null where no source gives it"
coinbase_script = "BLOB  the coinbase's scriptSig, raw; null where no source gives it"
coinbase_outputs = "STRUCT(value_sat BIGINT, script BLOB)[]  the coinbase's outputs; null where no source gives them"
label = "VARCHAR  name of the pool as others write it; only for a block without a coinbase"
verdict = "VARCHAR  result of our verification; 'not verified' for a block from an imported source"
told_by = "VARCHAR  source of the block: observed, backfilled, or the name of an imported source"
hash_told_by = "VARCHAR  source of block_hash: observed, backfilled, or the name of an imported source; null where it is a key"
header_told_by = "VARCHAR  source of header_time and bits: observed, backfilled, or the name of an imported source; null where header_time is"
sizes_told_by = "VARCHAR  source of n_tx, size_bytes and weight_wu: observed, backfilled, or the name of an imported source; null while all are unknown"
pool_told_by = "VARCHAR  source of the coinbase or the label: observed, backfilled, or the name of an imported source; null where there is neither"
fees_told_by = "VARCHAR  source of the fees: observed, backfilled, or the name of an imported source; null while they are unknown"
*/
with

own as (
    select
        *,
        case when source = 'blkfile' then 'backfilled' else 'observed' end as told_by
    from stg_blocks
),

table_votes as (
    select
        height,
        block_hash,
        count(*) as n_sources,
        min(source) as first_source
    from stg_external_blocks
    where
        height not in (
            select own.height from own
            where own.verdict = 'valid'
        )
        and block_hash not in (select listed_stale.block_hash from stg_external_stale_blocks as listed_stale)
    group by height, block_hash
),

table_choices as (
    select
        height,
        block_hash,
        first_source
    from table_votes
    qualify row_number() over (partition by height order by n_sources desc, first_source, block_hash) = 1
),

-- Of each block, each fact from the first table that tells it.
table_facts as (
    select
        block_hash,
        arg_min(struct_pack(source := source, header_time := header_time, bits := bits), source) filter (
            where header_time is not null
        ) as header,
        arg_min(
            struct_pack(source := source, n_tx := n_tx, size_bytes := size_bytes, weight_wu := weight_wu),
            (n_tx is null, source)
        ) filter (
            where coalesce(n_tx, size_bytes, weight_wu) is not null
        ) as sized,
        arg_min(struct_pack(source := source, fees_sat := fees_sat), source) filter (
            where fees_sat is not null
        ) as paid,
        arg_min(subsidy_sat, source) as subsidy_sat,
        arg_min(struct_pack(source := source, coinbase_script := coinbase_script), source) filter (
            where coinbase_script is not null
        ) as coinbase,
        arg_min(
            struct_pack(source := source, label := pool_label), (is_no_pool(pool_label), source)
        ) filter (
            where pool_label is not null
        ) as named
    from stg_external_blocks
    group by block_hash
),

-- The first source that names the pool, and the first that gives a time: the lists of some have no times.
labels as (
    select
        height,
        arg_min(struct_pack(source := source, label := label), (is_no_pool(label), source)) as named,
        arg_min(struct_pack(source := source, header_time := header_time), source) filter (
            where header_time is not null
        ) as timed
    from stg_external_pool_labels
    group by height
),

table_blocks as (
    select
        table_choices.height,
        table_choices.first_source,
        table_facts.*,
        case
            when is_no_pool(table_facts.named.label) and not is_no_pool(labels.named.label) then labels.named
            else coalesce(table_facts.named, labels.named)
        end as best_named
    from table_choices
    inner join table_facts
        on table_choices.block_hash = table_facts.block_hash
    left join labels
        on table_choices.height = labels.height
),

held_heights as (
    select height from own
    where verdict = 'valid'
    union
    select height from table_blocks
),

arrivals as (
    select
        height,
        block_hash,
        min(source) as source
    from stg_external_arrivals
    where
        height not in (select held_heights.height from held_heights)
        and block_hash not in (select listed_stale.block_hash from stg_external_stale_blocks as listed_stale)
    group by height, block_hash
    qualify row_number() over (partition by height order by count(*) desc, min(source), block_hash) = 1
),

headers as (
    select
        height,
        block_hash,
        min(prev_hash) as prev_hash,
        min(header_time) as header_time,
        min(bits) as bits,
        min(source) as source
    from stg_external_headers
    group by height, block_hash
    qualify row_number() over (partition by height order by count(*) desc, min(source), block_hash) = 1
),

chained_headers as (
    select headers.height
    from headers
    where
        headers.height not in (select held_heights.height from held_heights)
        and (
            headers.prev_hash in (select parent.block_hash from headers as parent)
            or headers.block_hash in (select child.prev_hash from headers as child)
        )
),

-- The block below a header, by the header's word.
header_parents as (
    select
        height - 1 as height,
        prev_hash as block_hash,
        source
    from headers
),

sizes as (
    select
        height,
        arg_min(n_tx, source) as n_tx,
        arg_min(size_bytes, source) as size_bytes,
        min(source) as source
    from stg_external_block_sizes
    group by height
),

listed_heights as (
    select height from labels
    where height not in (select held_heights.height from held_heights)
    union
    select height from arrivals
    union
    select height from chained_headers
),

listed_blocks as (
    select
        coalesce(
            headers.block_hash,
            header_parents.block_hash,
            arrivals.block_hash,
            label_block_key(listed_heights.height)
        ) as block_hash,
        listed_heights.height,
        headers.prev_hash,
        coalesce(headers.header_time, labels.timed.header_time) as header_time,
        headers.bits,
        sizes.n_tx,
        sizes.size_bytes,
        sizes.source as size_source,
        labels.named.label,
        labels.named.source as label_source,
        coalesce(labels.named.source, arrivals.source, headers.source) as source,
        coalesce(headers.source, header_parents.source, arrivals.source) as hash_source,
        case
            when headers.header_time is not null then headers.source
            else labels.timed.source
        end as header_source
    from listed_heights
    left join labels
        on listed_heights.height = labels.height
    left join arrivals
        on listed_heights.height = arrivals.height
    left join headers
        on listed_heights.height = headers.height
    left join header_parents
        on listed_heights.height = header_parents.height
    left join sizes
        on listed_heights.height = sizes.height
),

-- The one block of each height, for those below which a source that names no parents goes on.
single_blocks as (
    select
        height,
        min(block_hash) as block_hash
    from (
        select
            height,
            block_hash
        from own
        where verdict = 'valid'
        union all
        select
            height,
            block_hash
        from table_blocks
        union all
        select
            height,
            block_hash
        from listed_blocks
    ) as all_blocks
    group by height
    having count(*) = 1
),

told as (
    select
        table_blocks.block_hash,
        table_blocks.height,
        headers.prev_hash,
        coalesce(table_blocks.header.header_time, headers.header_time, labels.timed.header_time) as header_time,
        coalesce(table_blocks.header.bits, headers.bits) as bits,
        case when table_blocks.sized is null then sizes.n_tx else table_blocks.sized.n_tx end as n_tx,
        case
            when table_blocks.sized is null then sizes.size_bytes
            else table_blocks.sized.size_bytes
        end as size_bytes,
        table_blocks.sized.weight_wu,
        table_blocks.paid.fees_sat,
        table_blocks.subsidy_sat,
        table_blocks.coinbase.coinbase_script,
        case when table_blocks.coinbase is null then table_blocks.best_named.label end as label,
        table_blocks.first_source as told_by,
        table_blocks.first_source as hash_told_by,
        case
            when table_blocks.header is not null then table_blocks.header.source
            when headers.header_time is not null then headers.source
            else labels.timed.source
        end as header_told_by,
        coalesce(table_blocks.sized.source, sizes.source) as sizes_told_by,
        coalesce(table_blocks.coinbase.source, table_blocks.best_named.source) as pool_told_by,
        table_blocks.paid.source as fees_told_by
    from table_blocks
    left join headers
        on table_blocks.block_hash = headers.block_hash
    left join labels
        on table_blocks.height = labels.height
    left join sizes
        on table_blocks.height = sizes.height
    union all
    select
        listed_blocks.block_hash,
        listed_blocks.height,
        listed_blocks.prev_hash,
        listed_blocks.header_time,
        listed_blocks.bits,
        listed_blocks.n_tx,
        listed_blocks.size_bytes,
        null as weight_wu,
        null as fees_sat,
        null as subsidy_sat,
        null as coinbase_script,
        listed_blocks.label,
        listed_blocks.source as told_by,
        listed_blocks.hash_source as hash_told_by,
        listed_blocks.header_source as header_told_by,
        listed_blocks.size_source as sizes_told_by,
        listed_blocks.label_source as pool_told_by,
        null as fees_told_by
    from listed_blocks
)

select
    own.block_hash,
    own.height,
    own.prev_hash,
    own.header_time,
    own.bits,
    own.n_tx,
    own.size_bytes,
    own.weight_wu,
    coalesce(own.fees_sat, table_facts.paid.fees_sat) as fees_sat,
    own.subsidy_sat,
    own.coinbase_value_sat,
    own.coinbase_script,
    own.coinbase_outputs,
    cast(null as varchar) as label,
    own.verdict,
    own.told_by,
    own.told_by as hash_told_by,
    own.told_by as header_told_by,
    own.told_by as sizes_told_by,
    own.told_by as pool_told_by,
    case when own.fees_sat is not null then own.told_by else table_facts.paid.source end as fees_told_by
from own
left join table_facts
    on own.block_hash = table_facts.block_hash
union all
select
    told.block_hash,
    told.height,
    coalesce(told.prev_hash, single_blocks.block_hash) as prev_hash,
    told.header_time,
    told.bits,
    told.n_tx,
    told.size_bytes,
    told.weight_wu,
    told.fees_sat,
    told.subsidy_sat,
    cast(null as bigint) as coinbase_value_sat,
    told.coinbase_script,
    null as coinbase_outputs,
    told.label,
    'not verified' as verdict,
    told.told_by,
    told.hash_told_by,
    told.header_told_by,
    told.sizes_told_by,
    told.pool_told_by,
    told.fees_told_by
from told
left join single_blocks
    on told.height - 1 = single_blocks.height
order by height, block_hash
