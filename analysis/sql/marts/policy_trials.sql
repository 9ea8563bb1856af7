/*
summary = "How often blocks took the promised transactions of each kind, and ordinary ones of the same place and age."
method = """
For each block, the newest template of a node on the block's parent (template_audit_block) says what an unmodified
node would have mined in a block as heavy. Each promised transaction that entered at least policy_fresh_s before the
block, or before the block's parent, and did not leave our mempool between template and block, is a trial: the block
took it, or passed it over. A row counts the trials of one feature of transaction_feature in one group: the same block,
the same fifth of the promised weight and the same class of age. Beside them stand those of the group that have no
feature. Where several nodes have a template, that of the node that connected the block first counts. pool_policy sums
the rows of each pool.
"""
grain = ["block_hash", "feature", "fifth", "age_class"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_pool = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
template_audit_block = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_template_txs = "taken_at in (select taken_at from template_audit_block)"
transaction_feature = "txid in (select txid from stg_template_txs)"
mempool_cuts = """
block_hash in (select block_hash from chain_blocks) or block_hash in (select prev_hash from chain_blocks)
"""
mempool_residence = """
first_cut_no <= (select max(cut_no) from mempool_cuts)
and last_cut_no >= (select min(cut_no) from mempool_cuts) - 2000000000
"""
stg_mempool_events = """
received_at >= (select min(taken_at) from template_audit_block)
and received_at <= (select max(connected_at) from mempool_cuts)
"""
[ranges.clips.mempool_residence]
last_cut_no = "least(last_cut_no, (select max(cut_no) from mempool_cuts))"
[parameters]
policy_fresh_s = {value = 30, doc = "s before the block; a transaction that is younger, and than the block's parent, is no trial"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
feature = "VARCHAR  as in transaction_feature"
fifth = "BIGINT  0 is the first fifth of the promised weight, 4 the last"
age_class = "BIGINT  0: entered less than 10 min before the block; 1: less than 1 h; 2: longer"
n_taken = "BIGINT  promised transactions with the feature that the block took"
n_passed_over = "BIGINT  those that it passed over"
n_ordinary_taken = "BIGINT  promised transactions of the group without any feature that the block took"
n_ordinary_passed_over = "BIGINT  those of them that it passed over"
*/
with

newest as (
    select
        audit.block_hash,
        audit.node,
        audit.taken_at,
        mempool_cuts.cut_no,
        mempool_cuts.connected_at,
        parent_cuts.connected_at as parent_connected_at
    from template_audit_block as audit
    inner join mempool_cuts
        on audit.block_hash = mempool_cuts.block_hash and audit.node = mempool_cuts.node
    inner join chain_blocks
        on audit.block_hash = chain_blocks.block_hash
    left join mempool_cuts as parent_cuts
        on chain_blocks.prev_hash = parent_cuts.block_hash and audit.node = parent_cuts.node
    where audit.is_active and audit.n_block > 0 and mempool_cuts.is_measured
    qualify row_number() over (
        partition by audit.block_hash
        order by mempool_cuts.connected_at, audit.node, audit.from_age_s, parent_cuts.cut_no
    ) = 1
),

contents as (
    select
        block_hash,
        sum(weight_wu) as weight_wu
    from stg_transactions
    where not is_coinbase
    group by block_hash
),

template_rows as (
    select
        newest.block_hash,
        newest.node,
        newest.taken_at,
        newest.cut_no,
        newest.connected_at,
        newest.parent_connected_at,
        stg_template_txs.txid,
        contents.weight_wu as limit_wu,
        sum(stg_template_txs.weight_wu) over (
            partition by newest.block_hash
            order by stg_template_txs.tx_index
        ) as weight_up_to_here_wu
    from newest
    inner join contents
        on newest.block_hash = contents.block_hash
    inner join stg_template_txs
        on newest.node = stg_template_txs.node and newest.taken_at = stg_template_txs.taken_at
),

-- What left before the day before the block's is in no template for it.
entered as (
    select
        template_rows.block_hash,
        template_rows.txid,
        max(stay.entered_at) as entered_at
    from template_rows
    inner join mempool_residence as stay
        on
            template_rows.node = stay.node
            and template_rows.txid = stay.txid
            and template_rows.cut_no >= stay.first_cut_no
            and template_rows.cut_no // 1000000000 - 1 <= stay.last_cut_no // 1000000000
    group by template_rows.block_hash, template_rows.txid
),

gone as (
    select distinct
        template_rows.block_hash,
        template_rows.txid
    from template_rows
    inner join stg_mempool_events
        on template_rows.node = stg_mempool_events.node and template_rows.txid = stg_mempool_events.hash
    where
        stg_mempool_events.event = 'R'
        and stg_mempool_events.received_at >= template_rows.taken_at
        and stg_mempool_events.received_at <= template_rows.connected_at
),

trials as (
    select
        template_rows.block_hash,
        template_rows.txid,
        cast(least(floor(5 * template_rows.weight_up_to_here_wu / template_rows.limit_wu), 4) as bigint) as fifth,
        case
            when seconds_between(entered.entered_at, template_rows.connected_at) < 600 then 0
            when seconds_between(entered.entered_at, template_rows.connected_at) < 3600 then 1
            else 2
        end as age_class,
        stg_transactions.txid is not null as is_taken
    from template_rows
    inner join entered
        on template_rows.block_hash = entered.block_hash and template_rows.txid = entered.txid
    left join stg_transactions
        on template_rows.block_hash = stg_transactions.block_hash and template_rows.txid = stg_transactions.txid
    anti join gone
        on template_rows.block_hash = gone.block_hash and template_rows.txid = gone.txid
    where
        template_rows.weight_up_to_here_wu <= template_rows.limit_wu
        and (
            seconds_between(entered.entered_at, template_rows.connected_at) >= getvariable('policy_fresh_s')
            or entered.entered_at < template_rows.parent_connected_at
        )
),

ordinary as (
    select
        trials.block_hash,
        trials.fifth,
        trials.age_class,
        count(*) filter (where trials.is_taken) as n_taken,
        count(*) filter (where not trials.is_taken) as n_passed_over
    from trials
    anti join transaction_feature
        on trials.txid = transaction_feature.txid
    group by trials.block_hash, trials.fifth, trials.age_class
),

special as (
    select
        transaction_feature.feature,
        trials.block_hash,
        trials.fifth,
        trials.age_class,
        count(*) filter (where trials.is_taken) as n_taken,
        count(*) filter (where not trials.is_taken) as n_passed_over
    from trials
    inner join transaction_feature
        on trials.txid = transaction_feature.txid
    group by transaction_feature.feature, trials.block_hash, trials.fifth, trials.age_class
)

select
    special.block_hash,
    block_pool.height,
    block_pool.pool,
    special.feature,
    special.fifth,
    cast(special.age_class as bigint) as age_class,
    special.n_taken,
    special.n_passed_over,
    coalesce(ordinary.n_taken, 0) as n_ordinary_taken,
    coalesce(ordinary.n_passed_over, 0) as n_ordinary_passed_over
from special
inner join block_pool
    on special.block_hash = block_pool.block_hash
left join ordinary
    on
        special.block_hash = ordinary.block_hash
        and special.fifth = ordinary.fifth
        and special.age_class = ordinary.age_class
order by block_pool.height, special.block_hash, special.feature, special.fifth, special.age_class
