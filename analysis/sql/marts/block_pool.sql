/*
summary = "Which pool mined each block, by which rule, and which other pools also match."
method = """
All rules are evaluated on the raw coinbase (analysis/attribution/match.py). A payout match beats a tag match. Among
payouts the larger output wins; among tags the longest wins, then the earliest position. Every other pool with a
matching rule is listed as a conflict. A block that no rule matches is 'unknown', which is not a pool. Where no source gives the
coinbase, the pool is the one whose name or alias in data/pools is the label that others give the block, and method is 'label'.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug in data/pools; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
is_unknown = "BOOLEAN  true: no rule matches"
is_attributable = "BOOLEAN  there is a coinbase or a label from which to find the pool; false: the block counts in no share"
method = "VARCHAR  payout, tag or label; null when unknown"
rule_id = "VARCHAR  id of the rule that decided; null when unknown, and for a label"
n_candidates = "BIGINT  rules that match"
conflicts = "VARCHAR[]  slugs of the other pools that match, sorted"
coinbase_text = "VARCHAR  the coinbase script; bytes that are not printable ASCII as \\\\xNN"
rules_hash = "VARCHAR  SHA-256 of the rule set"
told_by = "VARCHAR  source of the coinbase or the label, or of the block where there is neither: observed, backfilled, or the name of an imported source"
*/
with

verdicts as (
    select * from pool_candidates
    where rank = 1
),

candidates as (
    select
        verdicts.block_hash,
        verdicts.pool,
        verdicts.method,
        verdicts.rule_id,
        count(*) as n_candidates,
        list(distinct candidate.pool order by candidate.pool) filter (
            where candidate.pool != verdicts.pool
        ) as conflicts
    from verdicts
    inner join pool_candidates as candidate
        on verdicts.block_hash = candidate.block_hash
    group by verdicts.block_hash, verdicts.pool, verdicts.method, verdicts.rule_id
),

rule_set as (
    select value as rules_hash
    from build_facts
    where key = 'rules_hash'
)

select
    block_facts.block_hash,
    block_facts.height,
    coalesce(candidates.pool, pool_names.slug, 'unknown') as pool,
    coalesce(pools.name, 'unknown') as pool_name,
    coalesce(candidates.pool, pool_names.slug) is null as is_unknown,
    block_facts.coinbase_script is not null or block_facts.label is not null as is_attributable,
    coalesce(candidates.method, case when pool_names.slug is not null then 'label' end) as method,
    candidates.rule_id,
    coalesce(candidates.n_candidates, 0) as n_candidates,
    coalesce(candidates.conflicts, []) as conflicts,
    printable(block_facts.coinbase_script) as coinbase_text,
    rule_set.rules_hash,
    coalesce(block_facts.pool_told_by, block_facts.told_by) as told_by
from block_facts
cross join rule_set
left join candidates
    on block_facts.block_hash = candidates.block_hash
left join pool_names
    on lower(block_facts.label) = pool_names.name
left join pools
    on coalesce(candidates.pool, pool_names.slug) = pools.slug
order by block_facts.height, block_facts.block_hash
