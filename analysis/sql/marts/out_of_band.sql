/*
summary = "How many of each pool's transactions look as if they were paid for outside the transaction fee."
method = """
Counts of out_of_band_candidates over blocks of the active chain that could be compared with a template. Where several
nodes can judge a block, a candidate must be one at each of them. The interval is a jackknife over blocks as in
feerate_strategy. Pools that are known to run stock software show what such counts are worth: their candidate_ratio is
the rate of false alarms.
"""
grain = ["pool"]
[parameters]
min_candidate_blocks = {value = 5, doc = "blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks compared with a template, not empty"
n_blocks_with = "BIGINT  compared blocks with candidates"
n_txs = "BIGINT  transactions of the compared blocks"
n_candidates = "BIGINT  candidates among these transactions"
n_unseen_candidates = "BIGINT  candidates that were never in our mempool"
candidate_ratio = "DOUBLE  0..1, n_candidates / n_txs"
candidate_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
candidate_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
median_discount_ratio = "DOUBLE  0..1, median of a candidate's feerate / margin; null without candidates"
*/
with

compared as (
    select
        block_hash,
        pool,
        max(n_block) as n_txs,
        count(distinct node) as n_nodes
    from template_audit_block
    where is_active and n_block > 0
    group by block_hash, pool
),

candidates as (
    select
        candidate.block_hash,
        candidate.txid,
        compared.pool,
        bool_and(candidate.kind = 'unseen') as is_unseen,
        ordered_sum(candidate.package_feerate_sat_vb / candidate.margin_sat_vb) / count(*) as discount_ratio
    from out_of_band_candidates as candidate
    inner join compared
        on candidate.block_hash = compared.block_hash
    group by candidate.block_hash, candidate.txid, compared.pool, compared.n_nodes
    having count(*) = compared.n_nodes
),

found as (
    select
        block_hash,
        count(*) as n_candidates,
        count(*) filter (where is_unseen) as n_unseen_candidates
    from candidates
    group by block_hash
),

labelled as (
    select
        compared.block_hash,
        compared.n_txs,
        coalesce(found.n_candidates, 0) as n_candidates,
        coalesce(found.n_unseen_candidates, 0) as n_unseen_candidates,
        unnest([compared.pool, 'all']) as label
    from compared
    left join found
        on compared.block_hash = found.block_hash
),

counts as (
    select
        label,
        count(*) as n_blocks,
        count(*) filter (where n_candidates > 0) as n_blocks_with,
        cast(sum(n_txs) as bigint) as n_txs,
        cast(sum(n_candidates) as bigint) as n_candidates,
        cast(sum(n_unseen_candidates) as bigint) as n_unseen_candidates,
        list(struct_pack(taken := n_candidates, offered := n_txs) order by block_hash) as blocks
    from labelled
    group by label
),

discounts as (
    select
        discount_ratio,
        unnest([pool, 'all']) as label
    from candidates
),

median_discounts as (
    select
        label,
        median(discount_ratio) as median_discount_ratio
    from discounts
    group by label
),

judged as (
    select
        *,
        block_ratio_interval(blocks, getvariable('min_candidate_blocks')) as candidate_interval
    from counts
)

select
    judged.label as pool,
    case when judged.label = 'all' then 'all blocks' else coalesce(pools.name, judged.label) end as pool_name,
    judged.n_blocks,
    judged.n_blocks_with,
    judged.n_txs,
    judged.n_candidates,
    judged.n_unseen_candidates,
    judged.n_candidates / judged.n_txs as candidate_ratio,
    judged.candidate_interval.low as candidate_low_ratio,
    judged.candidate_interval.high as candidate_high_ratio,
    median_discounts.median_discount_ratio
from judged
left join median_discounts
    on judged.label = median_discounts.label
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.n_blocks desc, judged.label
