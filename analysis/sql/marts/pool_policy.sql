/*
summary = "Which kinds of transactions each pool mines, and which it passes over although they paid enough."
method = """
For each block, the newest template of a node on the block's parent (template_audit_block) says what an unmodified
node would have mined in a block as heavy. Each promised transaction that entered at least policy_fresh_s before the
block, or before the block's parent, and did not leave our mempool between template and block, is a trial: the block
took it, or passed it over. (A pool refreshes its template now and then, and always when a block comes.) Trials are
promised by feerate, so none was too cheap for the block. A pool whose own template was old lacks ordinary
transactions as well. So a kind is compared only with ordinary transactions, which have no feature of
transaction_feature, of the same block, the same fifth of the promised weight and the same class of age (to 10 min, to
1 h, longer): odds ratio of Mantel and Haenszel over these groups, interval of Robins, Breslow and Greenland
(stratified_test), and p-values of all pools and features together after Holm. Transactions of one block share its
template, so they are no independent trials: a difference counts only where at least min_policy_blocks blocks tell
kinds apart. Where several nodes have a template, that of the node that connected the block first counts. `refuses`:
fewer than by chance after Holm (adjusted p below 0.05), and none of at least min_policy_trials taken. `disfavours`
and `favours`: fewer or more than by chance. `mines`: at least one was mined and no difference is shown. `unseen`:
none was mined, and too few were passed over, or by too few blocks, to say more. Only transactions that our own nodes
accept can be promised: of the others a pool shows that it mines them, never that it refuses them. A pool may pass
over a transaction because it never received it. That is likely where the nodes that relay to the pool refuse such a
transaction; it is the policy of that path, and not shown to be the pool's own wish.
"""
grain = ["pool", "feature"]
[parameters]
policy_fresh_s = {value = 30, doc = "s before the block; a transaction that is younger, and than the block's parent, is no trial"}
min_policy_trials = {value = 5, doc = "trials; with fewer nothing is said to be refused"}
min_policy_blocks = {value = 5, doc = "telling blocks; with fewer no difference is said"}
policy_alpha = {value = 0.05, doc = "adjusted p-value below which a difference counts"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
feature = "VARCHAR  as in transaction_feature"
n_mined = "BIGINT  such transactions in the pool's blocks on the active chain"
n_blocks = "BIGINT  blocks that hold one"
first_height = "INTEGER  height of the first of them; null without one"
last_height = "INTEGER  height of the last of them; null without one"
n_trials = "BIGINT  promised transactions with the feature"
n_taken = "BIGINT  those of them that the block took"
n_passed_over = "BIGINT  the others"
n_telling_blocks = "BIGINT  blocks that took some and passed over some of a group that has the feature and ordinary ones"
n_ordinary = "BIGINT  ordinary transactions in the groups they are compared with"
n_ordinary_taken = "BIGINT  those of them that the block took"
odds = "DOUBLE  odds of being taken, against ordinary transactions; null without a difference in any group"
odds_low = "DOUBLE  lower bound of the 95 % interval"
odds_high = "DOUBLE  upper bound of the 95 % interval"
p_value = "DOUBLE  0..1, for equal odds"
adjusted_p_value = "DOUBLE  0..1, after Holm over all pools and features"
verdict = "VARCHAR  refuses, disfavours, favours, mines or unseen"
*/
with

mined as (
    select
        block_pool.pool,
        transaction_feature.feature,
        count(*) as n_mined,
        count(distinct block_pool.block_hash) as n_blocks,
        min(block_pool.height) as first_height,
        max(block_pool.height) as last_height
    from stg_transactions
    inner join transaction_feature
        on stg_transactions.txid = transaction_feature.txid
    inner join block_pool
        on stg_transactions.block_hash = block_pool.block_hash
    inner join chain_blocks
        on stg_transactions.block_hash = chain_blocks.block_hash
    where chain_blocks.is_active and not stg_transactions.is_coinbase
    group by block_pool.pool, transaction_feature.feature
),

newest as (
    select
        audit.block_hash,
        audit.node,
        audit.pool,
        audit.taken_at,
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
        newest.pool,
        newest.taken_at,
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

entered as (
    select
        template_rows.block_hash,
        template_rows.txid,
        max(stg_mempool_txs.entered_at) as entered_at
    from template_rows
    inner join stg_mempool_txs
        on template_rows.node = stg_mempool_txs.node and template_rows.txid = stg_mempool_txs.txid
    where stg_mempool_txs.entered_at <= template_rows.connected_at
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
        template_rows.pool,
        template_rows.txid,
        least(floor(5 * template_rows.weight_up_to_here_wu / template_rows.limit_wu), 4) as fifth,
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
        trials.pool,
        transaction_feature.feature,
        trials.block_hash,
        trials.fifth,
        trials.age_class,
        count(*) filter (where trials.is_taken) as n_taken,
        count(*) filter (where not trials.is_taken) as n_passed_over
    from trials
    inner join transaction_feature
        on trials.txid = transaction_feature.txid
    group by trials.pool, transaction_feature.feature, trials.block_hash, trials.fifth, trials.age_class
),

strata as (
    select
        special.pool,
        special.feature,
        special.block_hash,
        special.fifth,
        special.age_class,
        special.n_taken,
        special.n_passed_over,
        coalesce(ordinary.n_taken, 0) as n_ordinary_taken,
        coalesce(ordinary.n_passed_over, 0) as n_ordinary_passed_over
    from special
    left join ordinary
        on
            special.block_hash = ordinary.block_hash
            and special.fifth = ordinary.fifth
            and special.age_class = ordinary.age_class
),

tried as (
    select
        pool,
        feature,
        cast(sum(n_taken) as bigint) as n_taken,
        cast(sum(n_passed_over) as bigint) as n_passed_over,
        cast(sum(n_ordinary_taken) as bigint) as n_ordinary_taken,
        cast(sum(n_ordinary_passed_over) as bigint) as n_ordinary_passed_over,
        count(distinct block_hash) filter (
            where
            n_ordinary_taken + n_ordinary_passed_over > 0
            and n_taken + n_ordinary_taken > 0
            and n_passed_over + n_ordinary_passed_over > 0
        ) as n_telling_blocks,
        stratified_test(
            list(n_taken order by block_hash, fifth, age_class),
            list(n_passed_over order by block_hash, fifth, age_class),
            list(n_ordinary_taken order by block_hash, fifth, age_class),
            list(n_ordinary_passed_over order by block_hash, fifth, age_class)
        ) as test
    from strata
    group by pool, feature
),

joined as (
    select
        coalesce(mined.pool, tried.pool) as pool,
        coalesce(mined.feature, tried.feature) as feature,
        coalesce(mined.n_mined, 0) as n_mined,
        coalesce(mined.n_blocks, 0) as n_blocks,
        mined.first_height,
        mined.last_height,
        coalesce(tried.n_taken, 0) as n_taken,
        coalesce(tried.n_passed_over, 0) as n_passed_over,
        coalesce(tried.n_telling_blocks, 0) as n_telling_blocks,
        coalesce(tried.n_ordinary_taken, 0) as n_ordinary_taken,
        coalesce(tried.n_ordinary_passed_over, 0) as n_ordinary_passed_over,
        tried.test
    from mined
    full outer join tried
        on mined.pool = tried.pool and mined.feature = tried.feature
),

numbered as (
    select
        *,
        row_number() over (order by pool, feature) as number
    from joined
),

adjusted as (
    select adjusted_p_values(list(test.p_value order by number)) as p_values
    from numbered
),

judged as (
    select
        numbered.*,
        adjusted.p_values[numbered.number] as adjusted_p_value,
        numbered.n_taken + numbered.n_passed_over as n_trials,
        coalesce(adjusted.p_values[numbered.number] < getvariable('policy_alpha'), false)
        and numbered.n_telling_blocks >= getvariable('min_policy_blocks') as is_different,
        numbered.n_taken * (numbered.n_ordinary_taken + numbered.n_ordinary_passed_over)
        < numbered.n_ordinary_taken * (numbered.n_taken + numbered.n_passed_over) as is_fewer
    from numbered
    cross join adjusted
)

select
    judged.pool,
    coalesce(pools.name, judged.pool) as pool_name,
    judged.feature,
    judged.n_mined,
    judged.n_blocks,
    judged.first_height,
    judged.last_height,
    judged.n_trials,
    judged.n_taken,
    judged.n_passed_over,
    judged.n_telling_blocks,
    judged.n_ordinary_taken + judged.n_ordinary_passed_over as n_ordinary,
    judged.n_ordinary_taken,
    judged.test.odds,
    judged.test.odds_low,
    judged.test.odds_high,
    judged.test.p_value,
    judged.adjusted_p_value,
    case
        when
            judged.is_different
            and judged.is_fewer
            and judged.n_taken = 0
            and judged.n_trials >= getvariable('min_policy_trials')
            then 'refuses'
        when judged.is_different and judged.is_fewer then 'disfavours'
        when judged.is_different then 'favours'
        when judged.n_mined > 0 then 'mines'
        else 'unseen'
    end as verdict
from judged
left join pools
    on judged.pool = pools.slug
order by judged.pool, judged.feature
