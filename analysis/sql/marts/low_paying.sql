/*
summary = "Transactions that pay far less than transactions the block left out, in any block in feerate order."
method = """
The transactions from which out_of_band_candidates takes those of pools that order by feerate; its method says what the
yardsticks and kinds are. More of the block must be in feerate order than chance explains, 2 sqrt(n) of n feerates, or
2.5 sqrt(n) where it fits first come (block_order). Where a pool chooses by something else, a low feerate means nothing.
After a reorganisation, a transaction may have left our mempool with a block that the node left (returned_stays), and
this block holds it again: it was in our mempool. What left it otherwise before the block is `unseen`.
"""
grain = ["block_hash", "node", "txid"]
determined = ["height"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
needs = "template_audit_block"
[ranges.reads]
template_audit_block = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_order = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_pool = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_template_txs = "taken_at in (select taken_at from template_audit_block)"
mempool_cuts = "block_hash in (select block_hash from block_order)"
returned_stays = "mined_cut_no is not null and txid in (select txid from stg_transactions)"
mempool_residence = """mined_cut_no in (select cut_no from mempool_cuts)
or mined_cut_no in (select mined_cut_no from returned_stays)"""
mempool_packages = """
first_cut_no <= (select max(cut_no) from mempool_cuts) and last_cut_no >= (select min(cut_no) from mempool_cuts)
"""
[parameters]
margin_quantile = {value = 0.1, doc = "quantile of the promised transactions' feerates"}
low_factor = {value = 0.7, doc = "part of the margin below which a transaction is listed"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
txid = "BLOB  transaction id, internal byte order"
kind = "VARCHAR  prioritised: was in our mempool until this block, or one that was left, took it; unseen: was not"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
fee_sat = "BIGINT  fee of the transaction"
vsize_vb = "BIGINT  virtual size of the transaction"
package_feerate_sat_vb = "DOUBLE  sat/vB, feerate together with the descendants that pay for it"
margin_sat_vb = "DOUBLE  sat/vB, feerate that a stock node, or the block's own order, would have required; the lower"
waited_s = "DOUBLE  s in our mempool before the block, or the one that was left; null when its entry was not pushed"
*/
with

newest as (
    select
        audit.block_hash,
        audit.height,
        audit.node,
        audit.taken_at,
        audit.n_missing,
        audit.n_missing_conflicting,
        block_order.own_margin_sat_vb
    from template_audit_block as audit
    inner join block_order
        on audit.block_hash = block_order.block_hash
    where
        audit.is_active
        and audit.n_block > 0
        and is_by_feerate(
            'feerate', block_order.ordering, block_order.n_feerate_ordered, block_order.n_feerates
        )
    qualify row_number() over (partition by audit.block_hash, audit.node order by audit.from_age_s) = 1
),

contents as (
    select
        block_hash,
        sum(weight_wu) as weight_wu
    from stg_transactions
    where not is_coinbase
    group by block_hash
),

-- The blocks are active, so a height is a block, and sorts faster than a hash.
template_rows as (
    select
        newest.block_hash,
        newest.node,
        newest.own_margin_sat_vb,
        contents.weight_wu as limit_wu,
        4 * stg_template_txs.fee_sat / stg_template_txs.weight_wu as feerate_sat_vb,
        sum(stg_template_txs.weight_wu) over (
            partition by newest.height, newest.node
            order by stg_template_txs.tx_index
        ) as weight_up_to_here_wu
    from newest
    inner join contents
        on newest.block_hash = contents.block_hash
    inner join stg_template_txs
        on newest.node = stg_template_txs.node and newest.taken_at = stg_template_txs.taken_at
    where newest.n_missing > newest.n_missing_conflicting
),

margins as (
    select
        block_hash,
        node,
        least(
            quantile_cont(feerate_sat_vb, getvariable('margin_quantile')) filter (
                where weight_up_to_here_wu <= limit_wu
            ),
            min(own_margin_sat_vb)
        ) as margin_sat_vb
    from template_rows
    group by block_hash, node
    having max(weight_up_to_here_wu) >= min(limit_wu)
),

mined as (
    select
        margins.*,
        mempool_residence.txid,
        'prioritised' as kind,
        mempool_residence.fee_sat,
        mempool_residence.vsize_vb,
        case
            when mempool_residence.first_seen_kind = 'pushed'
                then seconds_between(mempool_residence.entered_at, mempool_cuts.connected_at)
        end as waited_s,
        greatest(
            coalesce(
                mempool_packages.package_feerate_sat_vb,
                mempool_residence.fee_sat / nullif(mempool_residence.vsize_vb, 0)
            ),
            stg_transactions.effective_feerate_sat_vb
        ) as package_feerate_sat_vb
    from margins
    inner join mempool_cuts
        on margins.block_hash = mempool_cuts.block_hash and margins.node = mempool_cuts.node
    inner join mempool_residence
        on mempool_cuts.node = mempool_residence.node and mempool_cuts.cut_no = mempool_residence.mined_cut_no
    left join mempool_packages
        on
            mempool_residence.stay_no = mempool_packages.stay_no
            and mempool_cuts.cut_no between mempool_packages.first_cut_no and mempool_packages.last_cut_no
    left join stg_transactions
        on margins.block_hash = stg_transactions.block_hash and mempool_residence.txid = stg_transactions.txid
    where mempool_cuts.is_measured
),

returned as (
    select
        margins.*,
        stg_transactions.txid,
        'prioritised' as kind,
        stg_transactions.fee_sat,
        stg_transactions.vsize_vb,
        case
            when mempool_residence.first_seen_kind = 'pushed'
                then seconds_between(mempool_residence.entered_at, mempool_residence.left_at)
        end as waited_s,
        feerate_in_block(
            stg_transactions.effective_feerate_sat_vb, stg_transactions.fee_sat, stg_transactions.vsize_vb
        ) as package_feerate_sat_vb
    from margins
    inner join mempool_cuts
        on margins.block_hash = mempool_cuts.block_hash and margins.node = mempool_cuts.node
    inner join stg_transactions
        on margins.block_hash = stg_transactions.block_hash
    inner join returned_stays
        on
            mempool_cuts.node = returned_stays.node
            and stg_transactions.txid = returned_stays.txid
            and mempool_cuts.position > returned_stays.left_position
    inner join mempool_residence
        on returned_stays.stay_no = mempool_residence.stay_no
    anti join mined
        on
            margins.block_hash = mined.block_hash
            and margins.node = mined.node
            and stg_transactions.txid = mined.txid
    where mempool_cuts.is_measured and returned_stays.mined_cut_no is not null
    qualify row_number() over (
        partition by margins.block_hash, margins.node, stg_transactions.txid
        order by returned_stays.left_position desc, returned_stays.stay_no desc
    ) = 1
),

seen as (
    select * from mined
    union all by name
    select * from returned
),

unseen as (
    select
        margins.*,
        stg_transactions.txid,
        'unseen' as kind,
        stg_transactions.fee_sat,
        stg_transactions.vsize_vb,
        cast(null as double) as waited_s,
        feerate_in_block(
            stg_transactions.effective_feerate_sat_vb, stg_transactions.fee_sat, stg_transactions.vsize_vb
        ) as package_feerate_sat_vb
    from margins
    inner join stg_transactions
        on margins.block_hash = stg_transactions.block_hash
    anti join seen
        on
            margins.block_hash = seen.block_hash
            and margins.node = seen.node
            and stg_transactions.txid = seen.txid
    where not stg_transactions.is_coinbase
),

judged as (
    select * from seen
    union all by name
    select * from unseen
)

select
    judged.block_hash,
    judged.node,
    judged.txid,
    judged.kind,
    block_pool.height,
    block_pool.pool,
    judged.fee_sat,
    judged.vsize_vb,
    judged.package_feerate_sat_vb,
    judged.margin_sat_vb,
    judged.waited_s
from judged
inner join block_pool
    on judged.block_hash = block_pool.block_hash
where judged.package_feerate_sat_vb < getvariable('low_factor') * judged.margin_sat_vb
order by block_pool.height, judged.block_hash, judged.node, judged.package_feerate_sat_vb, judged.txid
