/*
summary = "How many of each pool's transactions look as if they were paid for outside the transaction fee."
method = """
Counts of out_of_band_candidates over blocks of the active chain that could be compared with a template. Only blocks
of pools whose verdict in pool_ordering is feerate are judged, if they are in that order beyond chance; for any other
pool there are no counts, and `ordering` says why. A block in which everybody found room counts as judged, with no
candidates. Where several nodes have a template, a candidate must be one at each of them: where everybody found room,
nobody lost it. The interval is a jackknife over blocks (part_interval of analysis/stats/intervals.py). Where one block
in 10 to 50 has a few candidates it holds the true ratio in 98 to 99 % of simulated samples, so it is wider than asked.
Pools that are known to run stock software show what such counts are worth: their candidate_ratio is the rate of false
alarms. A high ratio is a suspicion against nobody: it does not tell payments elsewhere from a pool's own transactions.
"""
grain = ["pool"]
[parameters]
min_candidate_blocks = {value = 5, doc = "blocks; fewer give no interval"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches; 'all' for every block"
pool_name = "VARCHAR  name of the pool"
n_blocks = "BIGINT  blocks compared with a template, not empty"
n_blocks_with = "BIGINT  judged blocks with candidates"
n_txs = "BIGINT  transactions of the judged blocks"
n_candidates = "BIGINT  candidates among these transactions"
n_unseen_candidates = "BIGINT  candidates that were never in our mempool"
candidate_ratio = "DOUBLE  0..1, n_candidates / n_txs; null when no block is judged"
candidate_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
candidate_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
median_discount_ratio = "DOUBLE  0..1, median of a candidate's feerate / margin; null without candidates"
ordering = "VARCHAR  the pool's verdict in pool_ordering: feerate, first_come, other or unclear; 'mixed' for all blocks"
n_judged = "BIGINT  compared blocks that were judged"
*/
with

compared as (
    select
        audit.block_hash,
        audit.pool,
        coalesce(pool_ordering.verdict, 'unclear') as ordering,
        coalesce(
            is_by_feerate(
                pool_ordering.verdict, block_order.ordering, block_order.n_feerate_ordered, block_order.n_feerates
            ),
            false
        ) as is_judged,
        max(audit.n_block) as n_txs,
        count(distinct audit.node) as n_nodes
    from template_audit_block as audit
    left join block_order
        on audit.block_hash = block_order.block_hash
    left join pool_ordering
        on audit.pool = pool_ordering.pool
    where audit.is_active and audit.n_block > 0
    group by
        audit.block_hash,
        audit.pool,
        pool_ordering.verdict,
        block_order.ordering,
        block_order.n_feerate_ordered,
        block_order.n_feerates
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
        compared.ordering,
        compared.is_judged,
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
        count(*) filter (where is_judged) as n_judged,
        if(label = 'all', 'mixed', min(ordering)) as ordering,
        count(*) filter (where n_candidates > 0) as n_blocks_with,
        coalesce(cast(sum(n_txs) filter (where is_judged) as bigint), 0) as n_txs,
        cast(sum(n_candidates) as bigint) as n_candidates,
        cast(sum(n_unseen_candidates) as bigint) as n_unseen_candidates,
        list(struct_pack(taken := n_candidates, offered := n_txs) order by block_hash) filter (
            where is_judged
        ) as blocks
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
    judged.n_candidates / nullif(judged.n_txs, 0) as candidate_ratio,
    judged.candidate_interval.low as candidate_low_ratio,
    judged.candidate_interval.high as candidate_high_ratio,
    median_discounts.median_discount_ratio,
    judged.ordering,
    judged.n_judged
from judged
left join median_discounts
    on judged.label = median_discounts.label
left join pools
    on judged.label = pools.slug
order by judged.label != 'all', judged.n_blocks desc, judged.label
