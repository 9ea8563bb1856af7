/*
summary = "What each rule did: blocks it matches, blocks it decided, and blocks where another rule was stronger."
method = """
Every candidate of every block of the active chain (pool_candidates), counted by rule. overruled_count is the number of
matches that a rule of another pool beat; in the remaining matches another rule of the same pool was stronger. A rule
that matches nothing in this dataset has no row.
"""
grain = ["rule_id"]
[columns]
rule_id = "VARCHAR  id of the rule"
pool = "VARCHAR  slug of the pool that it names"
method = "VARCHAR  payout or tag"
match_count = "BIGINT  blocks that it matches"
decided_count = "BIGINT  blocks that it decided"
overruled_count = "BIGINT  blocks that it matches and that a rule of another pool decided"
first_height = "INTEGER  height of the first block that it matches"
last_height = "INTEGER  height of the last block that it matches"
*/
select
    pool_candidates.rule_id,
    pool_candidates.pool,
    pool_candidates.method,
    count(*) as match_count,
    count(*) filter (where pool_candidates.rank = 1) as decided_count,
    count(*) filter (where pool_candidates.pool != block_owner.owner) as overruled_count,
    min(block_owner.height) as first_height,
    max(block_owner.height) as last_height
from pool_candidates
inner join block_owner
    on pool_candidates.block_hash = block_owner.block_hash and block_owner.grouped_by = 'pool'
group by pool_candidates.rule_id, pool_candidates.pool, pool_candidates.method
order by pool_candidates.pool, match_count desc, pool_candidates.rule_id
