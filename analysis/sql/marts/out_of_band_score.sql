/*
summary = "How right the candidates for payments out of band are, by imported lists of accelerated transactions."
method = """
Each list (accelerated_transactions) is compared with out_of_band_candidates over the blocks of the active chain that a
template could be compared with (template_audit_block). As in out_of_band, a candidate must be one at each node that had
a template. precision_ratio is the part of the candidates that the list has, recall_ratio the part of the listed
transactions that are candidates. Listed transactions of pools that do not order by feerate count as missed, because
nothing is claimed of those pools. A list seldom has every sale, so precision is a lower bound. Nor is every listed
transaction cheap: one that pays enough by itself cannot be seen, so recall is one too. The pool is that which mined the
block; the list may name another seller. Intervals are Wilson's, as if transactions were independent.
"""
grain = ["source", "pool"]
[columns]
source = "VARCHAR  name of the list, as in stg_external_sources"
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_listed = "BIGINT  listed transactions in blocks compared with a template"
n_candidates = "BIGINT  candidates in these blocks"
n_both = "BIGINT  candidates that are listed"
precision_ratio = "DOUBLE  0..1, n_both / n_candidates; null without candidates"
precision_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
precision_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
recall_ratio = "DOUBLE  0..1, n_both / n_listed; null when nothing is listed"
recall_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
recall_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
*/
with

lists as (
    select distinct source
    from stg_external_accelerated
),

compared as (
    select
        block_hash,
        pool,
        count(distinct node) as n_nodes
    from template_audit_block
    where is_active and n_block > 0
    group by block_hash, pool
),

candidates as (
    select
        compared.block_hash,
        compared.pool,
        candidate.txid
    from compared
    inner join out_of_band_candidates as candidate
        on compared.block_hash = candidate.block_hash
    group by compared.block_hash, compared.pool, candidate.txid, compared.n_nodes
    having count(*) = compared.n_nodes
),

listed as (
    select
        accelerated.source,
        accelerated.block_hash,
        compared.pool,
        accelerated.txid
    from accelerated_transactions as accelerated
    inner join compared
        on accelerated.block_hash = compared.block_hash
),

told as (
    select
        lists.source,
        candidates.block_hash,
        candidates.pool,
        candidates.txid,
        true as is_candidate,
        false as is_listed
    from lists
    cross join candidates
    union all
    select
        source,
        block_hash,
        pool,
        txid,
        false as is_candidate,
        true as is_listed
    from listed
),

judged as (
    select
        source,
        txid,
        unnest([pool, 'all']) as pool,
        bool_or(is_candidate) as is_candidate,
        bool_or(is_listed) as is_listed
    from told
    group by source, block_hash, pool, txid
),

counts as (
    select
        source,
        pool,
        count(*) filter (where is_listed) as n_listed,
        count(*) filter (where is_candidate) as n_candidates,
        count(*) filter (where is_listed and is_candidate) as n_both
    from judged
    group by source, pool
),

bounded as (
    select
        *,
        wilson_interval(n_both, n_candidates) as precision_bounds,
        wilson_interval(n_both, n_listed) as recall_bounds
    from counts
)

select
    bounded.source,
    bounded.pool,
    case when bounded.pool = 'all' then 'all blocks' else coalesce(pools.name, bounded.pool) end as pool_name,
    bounded.n_listed,
    bounded.n_candidates,
    bounded.n_both,
    bounded.n_both / nullif(bounded.n_candidates, 0) as precision_ratio,
    bounded.precision_bounds.low as precision_low_ratio,
    bounded.precision_bounds.high as precision_high_ratio,
    bounded.n_both / nullif(bounded.n_listed, 0) as recall_ratio,
    bounded.recall_bounds.low as recall_low_ratio,
    bounded.recall_bounds.high as recall_high_ratio
from bounded
left join pools
    on bounded.pool = pools.slug
order by bounded.source, bounded.pool != 'all', bounded.n_listed desc, bounded.pool
