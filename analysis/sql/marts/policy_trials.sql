/*
summary = "How often blocks took the transactions of each kind that were promised or paid enough, and ordinary ones like them."
method = """
For each block, the newest template of a node on the block's parent (template_audit_block) says what an unmodified node
would have mined in a block as heavy. Each promised transaction that entered at least policy_fresh_s before the block,
or before the block's parent, and did not leave our mempool between template and block, is a trial: the block took it,
or passed it over. Where several nodes have a template, that of the node that connected the block first counts. Where no
template promises a kind, because there is none or because our node refuses to mine the kind, what was paid tells. Then
a trial is each transaction of the same ages that waited at the block's cut, at the node that connected the block first,
and whose package feerate (mempool_packages) times policy_factor was above own_margin_sat_vb of block_order. That margin
is the block's own, so a full block asks for more. Only a block in which more is in feerate order than chance explains
(low_paying) has one. Where relatives change the package feerate, no relative may have entered or left since the block's
parent: a pool cannot know of a child that has just come. Packages are told day by day, so at the first block of a UTC
day what waits beside a relative is no trial. What left in conflict with the block is none. A row counts the trials of
one feature in one group: the same block, the same class of fee and the same class of age. Beside them stand those of
the group, by the same rule, that have no feature. Features are those that our mempools showed when the transaction
entered (mempool_features), and full_rbf for 15 days after the replacement: what a block alone shows is known of nothing
that was passed over. A block has trials of a feature by one kind of evidence alone, so each transaction counts once.
pool_policy sums the rows of each pool.
"""
grain = ["block_hash", "feature", "fee_class", "age_class"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
needs = "mempool_cuts"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = """
block_hash in (select block_hash from chain_blocks) or block_hash in (select prev_hash from chain_blocks)
"""
block_pool = "height >= getvariable('range_from') and height < getvariable('range_to')"
block_order = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
template_audit_block = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_template_txs = "taken_at in (select taken_at from template_audit_block)"
mempool_residence = """
first_cut_no <= (select max(cut_no) from mempool_cuts)
and last_cut_no >= (select min(cut_no) from mempool_cuts) - 2000000000
"""
mempool_features = """day_key >= (select min(stay_no) from mempool_residence) - 1000000000
and day_key <= (select max(stay_no) from mempool_residence)"""
full_rbf = """day_key >= (select min(stay_no) from mempool_residence) - 16000000000
and day_key <= (select max(stay_no) from mempool_residence)"""
mempool_packages = """
first_cut_no <= (select max(cut_no) from mempool_cuts) and last_cut_no >= (select min(cut_no) from mempool_cuts)
"""
stg_mempool_events = """
received_at >= (select min(taken_at) from template_audit_block)
and received_at <= (select max(connected_at) from mempool_cuts)
"""
[ranges.clips.mempool_residence]
last_cut_no = "least(last_cut_no, (select max(cut_no) from mempool_cuts))"
left_reason = "if(last_cut_no <= (select max(cut_no) from mempool_cuts), left_reason, null)"
[parameters]
policy_fresh_s = {value = 30, doc = "s before the block; a transaction that is younger, and than the block's parent, is no trial"}
policy_factor = {value = 0.7, doc = "part of what a transaction pays that must be above the block's margin"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
feature = "VARCHAR  a feature of transaction_feature that a mempool showed"
evidence = "VARCHAR  promised: by our template; paid: above the block's margin, where no template promised the feature"
fee_class = "BIGINT  promised: 0 is the first fifth of the promised weight, 4 the last; paid: 4 pays up to 2 times the least for a trial, 3 to 4, 2 to 8, 1 to 16, 0 more"
age_class = "BIGINT  0: entered less than 10 min before the block; 1: less than 1 h; 2: longer"
n_taken = "BIGINT  trials with the feature that the block took"
n_passed_over = "BIGINT  those that it passed over"
n_ordinary_taken = "BIGINT  trials of the group without any feature that the block took"
n_ordinary_passed_over = "BIGINT  those of them that it passed over"
*/
with

-- A replacement enters on the UTC day of the removal or on the next one. It may enter, or be listed, again later.
features as (
    select
        txid,
        feature,
        day_key as from_key,
        day_key as to_key
    from mempool_features
    union all
    select
        txid,
        'full_rbf' as feature,
        day_key as from_key,
        day_key + 15000000000 as to_key
    from full_rbf
),

newest as (
    select
        audit.block_hash,
        audit.height,
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

-- The blocks are active, so a height is a block, and sorts faster than a hash.
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
            partition by newest.height
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

promised as (
    select
        template_rows.block_hash,
        template_rows.txid,
        template_rows.connected_at,
        entered.entered_at,
        window_key(entered.entered_at, 86400) as day_key,
        'promised' as evidence,
        cast(least(floor(5 * template_rows.weight_up_to_here_wu / template_rows.limit_wu), 4) as bigint) as fee_class
    from template_rows
    inner join entered
        on template_rows.block_hash = entered.block_hash and template_rows.txid = entered.txid
    anti join gone
        on template_rows.block_hash = gone.block_hash and template_rows.txid = gone.txid
    where
        template_rows.weight_up_to_here_wu <= template_rows.limit_wu
        and (
            seconds_between(entered.entered_at, template_rows.connected_at) >= getvariable('policy_fresh_s')
            or entered.entered_at < template_rows.parent_connected_at
        )
),

told as (
    select distinct
        promised.block_hash,
        features.feature
    from promised
    inner join features
        on promised.txid = features.txid and promised.day_key between features.from_key and features.to_key
),

priced as (
    select
        block_order.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.cut_no // 1000000000 as day_no,
        mempool_cuts.connected_at,
        parent_cuts.connected_at as parent_connected_at,
        block_order.own_margin_sat_vb / getvariable('policy_factor') as least_sat_vb
    from block_order
    inner join chain_blocks
        on block_order.block_hash = chain_blocks.block_hash
    inner join mempool_cuts
        on block_order.block_hash = mempool_cuts.block_hash
    left join mempool_cuts as parent_cuts
        on chain_blocks.prev_hash = parent_cuts.block_hash and mempool_cuts.node = parent_cuts.node
    where
        mempool_cuts.is_measured
        and is_by_feerate(
            'feerate', block_order.ordering, block_order.n_feerate_ordered, block_order.n_feerates
        )
    qualify row_number() over (
        partition by block_order.block_hash
        order by mempool_cuts.connected_at, mempool_cuts.node, parent_cuts.cut_no
    ) = 1
),

stay_days as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        stay.entered_at,
        stay.stay_no // 1000000000 * 1000000000 as day_key,
        stay.left_reason,
        stay.last_cut_no as left_cut_no,
        stay.fee_sat / nullif(stay.vsize_vb, 0) as feerate_sat_vb,
        stay.first_cut_no,
        stay.last_cut_no,
        unnest(
            range(
                stay.first_cut_no // 1000000000,
                least(stay.last_cut_no, (select max(mempool_cuts.cut_no) from mempool_cuts)) // 1000000000 + 1
            )
        ) as day_no
    from mempool_residence as stay
    where
        stay.first_cut_no <= stay.last_cut_no
        and stay.fee_sat / nullif(stay.vsize_vb, 0) > (select min(priced.least_sat_vb) from priced)
),

related_days as (
    select distinct
        stay_no,
        first_cut_no // 1000000000 as day_no
    from mempool_packages
),

-- On the days on which no relative waits beside it.
lone as (
    select stay_days.*
    from stay_days
    anti join related_days
        on stay_days.stay_no = related_days.stay_no and stay_days.day_no = related_days.day_no
),

-- From the second cut of a run on, all relatives were there before the block's parent.
related as (
    select
        stay.stay_no,
        stay.node,
        stay.txid,
        stay.entered_at,
        stay.stay_no // 1000000000 * 1000000000 as day_key,
        stay.left_reason,
        stay.last_cut_no as left_cut_no,
        run.package_feerate_sat_vb as feerate_sat_vb,
        run.first_cut_no + 1 as first_cut_no,
        run.last_cut_no,
        run.first_cut_no // 1000000000 as day_no
    from mempool_packages as run
    inner join mempool_residence as stay
        on run.stay_no = stay.stay_no
    where
        run.first_cut_no < run.last_cut_no
        and run.package_feerate_sat_vb > (select min(priced.least_sat_vb) from priced)
),

waiting as (
    select * from lone
    union all
    select * from related
),

-- Ordinary transactions are looked for only at blocks of which a kind has nothing promised.
untold as (
    select distinct priced.block_hash
    from waiting
    inner join features
        on waiting.txid = features.txid and waiting.day_key between features.from_key and features.to_key
    inner join priced
        on
            waiting.node = priced.node
            and waiting.day_no = priced.day_no
            and waiting.first_cut_no <= priced.cut_no
            and waiting.last_cut_no >= priced.cut_no
            and waiting.feerate_sat_vb > priced.least_sat_vb
    anti join told
        on priced.block_hash = told.block_hash and features.feature = told.feature
),

paid as (
    select
        priced.block_hash,
        waiting.txid,
        priced.connected_at,
        waiting.entered_at,
        waiting.day_key,
        'paid' as evidence,
        case
            when waiting.feerate_sat_vb > 16 * priced.least_sat_vb then 0
            when waiting.feerate_sat_vb > 8 * priced.least_sat_vb then 1
            when waiting.feerate_sat_vb > 4 * priced.least_sat_vb then 2
            when waiting.feerate_sat_vb > 2 * priced.least_sat_vb then 3
            else 4
        end as fee_class
    from priced
    inner join untold
        on priced.block_hash = untold.block_hash
    inner join waiting
        on
            priced.node = waiting.node
            and priced.day_no = waiting.day_no
            and priced.cut_no >= waiting.first_cut_no
            and priced.cut_no <= waiting.last_cut_no
            and priced.least_sat_vb < waiting.feerate_sat_vb
    where
        (coalesce(waiting.left_reason, '') != 'conflict' or priced.cut_no < waiting.left_cut_no)
        and (
            seconds_between(waiting.entered_at, priced.connected_at) >= getvariable('policy_fresh_s')
            or waiting.entered_at < priced.parent_connected_at
        )
    qualify row_number() over (partition by priced.block_hash, waiting.txid order by waiting.entered_at desc) = 1
),

offered as (
    select * from promised
    union all
    select * from paid
),

trials as (
    select
        offered.block_hash,
        offered.txid,
        offered.day_key,
        offered.evidence,
        offered.fee_class,
        case
            when seconds_between(offered.entered_at, offered.connected_at) < 600 then 0
            when seconds_between(offered.entered_at, offered.connected_at) < 3600 then 1
            else 2
        end as age_class,
        stg_transactions.txid is not null as is_taken
    from offered
    left join stg_transactions
        on offered.block_hash = stg_transactions.block_hash and offered.txid = stg_transactions.txid
),

ordinary as (
    select
        trials.block_hash,
        trials.evidence,
        trials.fee_class,
        trials.age_class,
        count(*) filter (where trials.is_taken) as n_taken,
        count(*) filter (where not trials.is_taken) as n_passed_over
    from trials
    anti join features
        on trials.txid = features.txid and trials.day_key between features.from_key and features.to_key
    group by trials.block_hash, trials.evidence, trials.fee_class, trials.age_class
),

-- Once for each feature, however often a mempool showed it.
marked as (
    select distinct
        features.feature,
        trials.block_hash,
        trials.txid,
        trials.evidence,
        trials.fee_class,
        trials.age_class,
        trials.is_taken
    from trials
    inner join features
        on trials.txid = features.txid and trials.day_key between features.from_key and features.to_key
),

featured as (
    select
        feature,
        block_hash,
        evidence,
        fee_class,
        age_class,
        count(*) filter (where is_taken) as n_taken,
        count(*) filter (where not is_taken) as n_passed_over
    from marked
    group by feature, block_hash, evidence, fee_class, age_class
),

special as (
    select * from featured
    qualify rank() over (partition by block_hash, feature order by evidence = 'paid') = 1
)

select
    special.block_hash,
    block_pool.height,
    block_pool.pool,
    special.feature,
    special.evidence,
    cast(special.fee_class as bigint) as fee_class,
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
        and special.evidence = ordinary.evidence
        and special.fee_class = ordinary.fee_class
        and special.age_class = ordinary.age_class
order by block_pool.height, special.block_hash, special.feature, special.fee_class, special.age_class
