/*
summary = "Which pool mined each block, by which rule, and which other pools also match."
method = """
All rules are evaluated on the raw coinbase (analysis/attribution/match.py). A payout match beats a tag match; among
payouts the larger output wins, among tags the longest, then the earliest position. Every other pool with a
matching rule is a conflict and is listed. A block that no rule matches is 'unknown', which is not a pool.
"""
grain = ["block_hash"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  blocks between this one and genesis"
pool = "VARCHAR  slug in data/pools; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
is_unknown = "BOOLEAN  no rule matches"
method = "VARCHAR  payout or tag; null when unknown"
rule_id = "VARCHAR  the rule that decided; null when unknown"
n_candidates = "BIGINT  rules that match"
conflicts = "VARCHAR[]  slugs of the other pools that match, sorted"
coinbase_text = "VARCHAR  the coinbase script; bytes that are not printable ASCII as \\\\xNN"
rules_hash = "VARCHAR  SHA-256 of the rule set"
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
    stg_blocks.block_hash,
    stg_blocks.height,
    coalesce(candidates.pool, 'unknown') as pool,
    coalesce(pools.name, 'unknown') as pool_name,
    candidates.pool is null as is_unknown,
    candidates.method,
    candidates.rule_id,
    coalesce(candidates.n_candidates, 0) as n_candidates,
    coalesce(candidates.conflicts, []) as conflicts,
    cast(stg_blocks.coinbase_script as varchar) as coinbase_text,
    rule_set.rules_hash
from stg_blocks
cross join rule_set
left join candidates
    on stg_blocks.block_hash = candidates.block_hash
left join pools
    on candidates.pool = pools.slug
order by stg_blocks.height, stg_blocks.block_hash
