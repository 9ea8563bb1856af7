/*
summary = "Pairs of pools whose rules both match one coinbase: which pool was named, by which method, how often and when."
method = """
Blocks of the active chain for which a rule of another pool also matches (block_pool.conflicts), counted by the pool
that was named and the other pool. The method of each pool is that of its strongest matching rule. To study a pair,
begin with the coinbase of last_height.
"""
grain = ["pool", "other", "method", "other_method"]
[columns]
pool = "VARCHAR  slug of the pool that was named"
other = "VARCHAR  slug of the other pool"
method = "VARCHAR  payout or tag: method of the rule that named the pool"
other_method = "VARCHAR  payout or tag: method of the other pool's strongest rule"
block_count = "BIGINT  number of blocks"
first_height = "INTEGER  height of the first of these blocks"
last_height = "INTEGER  height of the last of these blocks"
example_rule_id = "VARCHAR  id of the rule that decided the last of these blocks"
other_example_rule_id = "VARCHAR  id of the other pool's strongest rule in that block"
*/
with

strongest as (
    select
        block_hash,
        pool,
        min(rank) as rank,
        arg_min(method, rank) as method,
        arg_min(rule_id, rank) as rule_id
    from pool_candidates
    group by block_hash, pool
)

select
    winner.pool,
    loser.pool as other,
    winner.method,
    loser.method as other_method,
    count(*) as block_count,
    min(block_owner.height) as first_height,
    max(block_owner.height) as last_height,
    arg_max(winner.rule_id, block_owner.height) as example_rule_id,
    arg_max(loser.rule_id, block_owner.height) as other_example_rule_id
from strongest as winner
inner join strongest as loser
    on winner.block_hash = loser.block_hash and winner.rank = 1 and loser.rank > 1
inner join block_owner
    on winner.block_hash = block_owner.block_hash and block_owner.grouped_by = 'pool'
group by winner.pool, loser.pool, winner.method, loser.method
order by block_count desc, winner.pool, loser.pool
