/*
summary = "Which pools may be one under two names: declared names with dates, and pools that were paid by the same script."
method = """
'declared': data/pools/entities.toml says that the pool had another name in these dates; heights are those of its blocks
on such days. 'payout': coinbases of two pools pay the same output script (outputs that carry no value are left out).
is_succession is true where the first pool has no block after the second one's first: a rename or a takeover. Otherwise
both were active at once and share an owner or a payer, or one coinbase borrows the other's tag. A pair is evidence to
look at, not a verdict. Blocks of the active chain.
"""
grain = ["pool", "other", "evidence"]
[columns]
pool = "VARCHAR  slug; of two pools, the one whose first block came first"
other = "VARCHAR  slug of the other pool, or the declared other name"
evidence = "VARCHAR  declared or payout"
n_scripts = "BIGINT  output scripts that both were paid by; null for declared"
n_blocks = "BIGINT  blocks of both that pay such a script; declared: blocks under that name"
first_height = "INTEGER  first of these blocks"
last_height = "INTEGER  last of these blocks"
is_succession = "BOOLEAN  the first pool ends before the other begins; null for declared"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

outputs as (
    select
        block_owner.owner as pool,
        block_owner.height,
        block_owner.told_by,
        unnest(block_facts.coinbase_outputs) as output
    from block_owner
    inner join block_facts
        on block_owner.block_hash = block_facts.block_hash
    where block_owner.grouped_by = 'pool' and not block_owner.is_unknown
),

payouts as (
    select distinct
        pool,
        height,
        told_by,
        output.script
    from outputs
    where output.value_sat > 0
),

payees as (
    select
        script,
        pool,
        count(*) as n_blocks,
        sources_of(list(told_by)) as told_by,
        min(height) as first_height,
        max(height) as last_height
    from payouts
    group by script, pool
),

shared as (
    select
        life.pool,
        other_life.pool as other,
        count(*) as n_scripts,
        cast(sum(payee.n_blocks + other_payee.n_blocks) as bigint) as n_blocks,
        sources_of(flatten(list(list_concat(payee.told_by, other_payee.told_by)))) as told_by,
        least(min(payee.first_height), min(other_payee.first_height)) as first_height,
        greatest(max(payee.last_height), max(other_payee.last_height)) as last_height,
        any_value(life.last_height < other_life.first_height) as is_succession
    from payees as payee
    inner join payees as other_payee
        on payee.script = other_payee.script and payee.pool != other_payee.pool
    inner join pool_life as life
        on payee.pool = life.pool
    inner join pool_life as other_life
        on other_payee.pool = other_life.pool and life.first_height < other_life.first_height
    group by life.pool, other_life.pool
),

declared as (
    select
        block_owner.owner as pool,
        entities.name as other,
        count(*) as n_blocks,
        sources_of(list(block_owner.told_by)) as told_by,
        min(block_owner.height) as first_height,
        max(block_owner.height) as last_height
    from block_owner
    inner join entities
        on
            block_owner.owner = entities.slug
            and block_owner.day between coalesce(entities.from_date, date '0001-01-01')
            and coalesce(entities.to_date, date '9999-12-31')
    where block_owner.grouped_by = 'pool' and entities.kind = 'name'
    group by block_owner.owner, entities.name
)

select
    pool,
    other,
    'payout' as evidence,
    n_scripts,
    n_blocks,
    first_height,
    last_height,
    is_succession,
    told_by
from shared
union all
select
    pool,
    other,
    'declared' as evidence,
    cast(null as bigint) as n_scripts,
    n_blocks,
    first_height,
    last_height,
    cast(null as boolean) as is_succession,
    told_by
from declared
order by pool, other, evidence
