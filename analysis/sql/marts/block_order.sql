/*
summary = "By what each block orders its transactions: feerate, first come, or something else."
method = """
Two orders are fitted to the block's own. The first is falling feerate, by the effective feerate within the block
(stg_transactions), so that a parent for which a child pays is no exception. The second is rising time of entry into our
mempool, the earliest of all nodes; only entries that a node announced have a time. The fit is the longest chain of
transactions that agree with the order (analysis/stats/block_order.py), as a part of the different feerates, or times. Transactions that a pool puts elsewhere shorten the chain by their own number alone.
An order explains a block if the chain has at least min_ordered_ratio of at least min_ordered_values values, and more than
2 sqrt(n), which a random order rarely exceeds. A pool can also choose by something else and then sort what it chose.
Where templates of ours are known (template_audit_block), a block in feerate order must hold at least min_template_ratio
of what the one that fits it best promised, else its order is `other`. `both` orders fit where few values or many places
sold by arrival make them alike. own_margin_sat_vb is a low quantile of the feerates in the chain: what the pool's own
order asked for near its end. It needs no mempool, and neither transactions that a pool refuses nor an old template
change it.
"""
cost = """
The chain of each block is found twice by a search for every transaction, and its feerates are sorted: from the scan to
the fit there are two sorts and a walk through each block in Python.
"""
grain = ["block_hash"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = "block_hash in (select block_hash from chain_blocks)"
mempool_residence = "mined_cut_no in (select cut_no from mempool_cuts)"
template_audit_block = "block_hash in (select block_hash from chain_blocks)"
block_pool = "block_hash in (select block_hash from chain_blocks)"
[parameters]
min_ordered_ratio = {value = 0.5, doc = "part of the different values that a chain must have"}
min_ordered_values = {value = 8, doc = "different values; with fewer no order is claimed"}
min_template_ratio = {value = 0.5, doc = "part of a template that a choice by feerate must hold"}
own_margin_quantile = {value = 0.2, doc = "quantile of the feerates in the chain"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
n_txs = "BIGINT  transactions with a known feerate"
n_feerates = "BIGINT  different feerates among them"
n_feerate_ordered = "BIGINT  length of the longest chain of falling feerate"
feerate_ordered_ratio = "DOUBLE  0..1, n_feerate_ordered / n_feerates; null without fees"
n_entries = "BIGINT  different times of entry among them; 0 without a mempool"
n_first_come_ordered = "BIGINT  length of the longest chain of rising time of entry"
first_come_ordered_ratio = "DOUBLE  0..1, n_first_come_ordered / n_entries; null without times"
position_error_ratio = "DOUBLE  0..1, position prediction error (arXiv:2110.11740): mean distance from the place by feerate / n_txs"
template_ratio = "DOUBLE  0..1, highest score_ratio of template_audit_block; null without templates"
own_margin_sat_vb = "DOUBLE  sat/vB, feerate at the end of the block's own order"
ordering = "VARCHAR  feerate, first_come, both, other, or unclear: too few values"
*/
with

entered as (
    select
        mempool_cuts.block_hash,
        mempool_residence.txid,
        min(mempool_residence.entered_at) as entered_at
    from mempool_cuts
    inner join mempool_residence
        on mempool_cuts.node = mempool_residence.node and mempool_cuts.cut_no = mempool_residence.mined_cut_no
    where mempool_residence.first_seen_kind = 'pushed'
    group by mempool_cuts.block_hash, mempool_residence.txid
),

chains as (
    select
        stg_transactions.block_hash,
        chain_blocks.height,
        falling_order(
            list(
                feerate_in_block(
                    stg_transactions.effective_feerate_sat_vb, stg_transactions.fee_sat, stg_transactions.vsize_vb
                )
                order by stg_transactions.tx_index
            ),
            getvariable('own_margin_quantile')
        ) as by_feerate,
        falling_order(
            list(-cast(epoch_us(entered.entered_at) as double) order by stg_transactions.tx_index),
            getvariable('own_margin_quantile')
        ) as by_entry,
        count(*) filter (
            where coalesce(stg_transactions.effective_feerate_sat_vb, stg_transactions.fee_sat) is not null
        ) as n_txs
    from stg_transactions
    inner join chain_blocks
        on stg_transactions.block_hash = chain_blocks.block_hash
    left join entered
        on stg_transactions.block_hash = entered.block_hash and stg_transactions.txid = entered.txid
    where not stg_transactions.is_coinbase and chain_blocks.is_active
    group by stg_transactions.block_hash, chain_blocks.height
),

fits as (
    select
        *,
        by_feerate.n_values >= getvariable('min_ordered_values')
        and by_feerate.n_in_order >= getvariable('min_ordered_ratio') * by_feerate.n_values
        and by_feerate.n_in_order > 2 * sqrt(by_feerate.n_values) as is_by_feerate,
        by_entry.n_values >= getvariable('min_ordered_values')
        and by_entry.n_in_order >= getvariable('min_ordered_ratio') * by_entry.n_values
        and by_entry.n_in_order > 2 * sqrt(by_entry.n_values) as is_first_come
    from chains
),

templates as (
    select
        block_hash,
        max(score_ratio) as template_ratio
    from template_audit_block
    group by block_hash
)

select
    fits.block_hash,
    fits.height,
    block_pool.pool,
    fits.n_txs,
    fits.by_feerate.n_values as n_feerates,
    fits.by_feerate.n_in_order as n_feerate_ordered,
    fits.by_feerate.n_in_order / nullif(fits.by_feerate.n_values, 0) as feerate_ordered_ratio,
    fits.by_entry.n_values as n_entries,
    fits.by_entry.n_in_order as n_first_come_ordered,
    fits.by_entry.n_in_order / nullif(fits.by_entry.n_values, 0) as first_come_ordered_ratio,
    fits.by_feerate.place_error as position_error_ratio,
    templates.template_ratio,
    fits.by_feerate.low_value as own_margin_sat_vb,
    case
        when fits.by_feerate.n_values < getvariable('min_ordered_values') then 'unclear'
        when fits.is_by_feerate and templates.template_ratio < getvariable('min_template_ratio') then 'other'
        when fits.is_by_feerate and fits.is_first_come then 'both'
        when fits.is_by_feerate then 'feerate'
        when fits.is_first_come then 'first_come'
        else 'other'
    end as ordering
from fits
inner join block_pool
    on fits.block_hash = block_pool.block_hash
left join templates
    on fits.block_hash = templates.block_hash
order by fits.height, fits.block_hash
