/*
summary = "Which kinds of transactions each pool mines, and which it passes over although they paid enough."
method = """
For each block, the newest template of a node on the block's parent (template_audit_block) says what an unmodified node
would have mined in a block as heavy. Each promised transaction that entered at least policy_fresh_s before the block,
or before the block's parent, and did not leave our mempool between template and block, is a trial: the block took it,
or passed it over. (A pool refreshes its template now and then, and always when a block comes.) Of a kind that no
template promised for the block, a trial is what waited as long and paid clearly more than the margin of the block's own
order (policy_trials); such trials count only for a pool that orders by feerate (pool_ordering). Without any template, a
pool that chooses by something else and then sorts its choice by feerate passes for one, and its trials are not
independent: `disfavours` or `favours` may then be chance. So no trial was too cheap for the block. A pool whose own
template was old lacks ordinary transactions as well. So a kind is compared only with ordinary transactions, in which
our mempools showed no feature, that are trials of the same block by the same rule, in the same class of fee (a fifth of
the promised weight, or how many times the margin was paid) and the same class of age (to 10 min, to 1 h, longer): odds
ratio of Mantel and Haenszel over these groups. Transactions of one block share its template and often a sender, so they
are no independent trials. Interval and p-value therefore go by block (block_stratified_test of
analysis/stats/count_tests.py; simulated: 0 to 10 % of p-values below 0.05 where a block takes or misses a sender's
transactions together), and the p-values of all pools and features are corrected together (Holm). A difference counts
only where at least min_policy_blocks blocks tell kinds apart. Where several nodes have a template, that of the node
that connected the block first counts. `refuses`: fewer than by chance after Holm (adjusted p below 0.05), and none of
at least min_policy_trials taken. `disfavours` and `favours`: fewer or more than by chance. `mines`: at least one was
mined and no difference is shown. `unseen`: none was mined, and too few were passed over, or by too few blocks, to say
more. Only transactions that our own nodes accept into their mempool can be trials: of the others a pool shows that it
mines them, never that it refuses them. Nor is a pool found that mines nothing below a feerate of its own choice: its
margin is never lower. A pool may pass over a transaction because it never received it. That is likely where the nodes
that relay to the pool refuse such a transaction; it is the policy of that path, and not shown to be the pool's own
wish.
"""
grain = ["pool", "feature"]
[parameters]
min_policy_trials = {value = 5, doc = "trials; with fewer nothing is said to be refused"}
min_policy_blocks = {value = 5, doc = "telling blocks; with fewer no difference is said"}
policy_alpha = {value = 0.05, doc = "adjusted p-value below which a difference counts"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
feature = "VARCHAR  as in transaction_feature"
n_mined = "BIGINT  such transactions in the pool's blocks on the active chain (block_features)"
n_blocks = "BIGINT  blocks that hold one"
first_height = "INTEGER  height of the first of them; null without one"
last_height = "INTEGER  height of the last of them; null without one"
n_trials = "BIGINT  transactions with the feature that were promised or paid enough, once for each block"
n_taken = "BIGINT  those of them that the block took"
n_passed_over = "BIGINT  the others"
n_passed_over_promised = "BIGINT  those of them that our template promised"
n_passed_over_paid = "BIGINT  those that no template promised, but that paid more than the block's margin"
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
        pool,
        feature,
        cast(sum(n_mined) as bigint) as n_mined,
        count(*) as n_blocks,
        min(height) as first_height,
        max(height) as last_height
    from block_features
    group by pool, feature
),

counted as (
    select
        policy_trials.*,
        dense_rank() over (order by policy_trials.block_hash) as block_no
    from policy_trials
    left join pool_ordering
        on policy_trials.pool = pool_ordering.pool
    where policy_trials.evidence = 'promised' or pool_ordering.verdict = 'feerate'
),

tried as (
    select
        pool,
        feature,
        cast(sum(n_taken) as bigint) as n_taken,
        cast(sum(n_passed_over) as bigint) as n_passed_over,
        cast(sum(n_passed_over) filter (where evidence = 'paid') as bigint) as n_passed_over_paid,
        cast(sum(n_ordinary_taken) as bigint) as n_ordinary_taken,
        cast(sum(n_ordinary_passed_over) as bigint) as n_ordinary_passed_over,
        count(distinct block_hash) filter (
            where
            n_ordinary_taken + n_ordinary_passed_over > 0
            and n_taken + n_ordinary_taken > 0
            and n_passed_over + n_ordinary_passed_over > 0
        ) as n_telling_blocks,
        block_stratified_test(
            list(block_no order by block_hash, fee_class, age_class),
            list(n_taken order by block_hash, fee_class, age_class),
            list(n_passed_over order by block_hash, fee_class, age_class),
            list(n_ordinary_taken order by block_hash, fee_class, age_class),
            list(n_ordinary_passed_over order by block_hash, fee_class, age_class)
        ) as test
    from counted
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
        coalesce(tried.n_passed_over_paid, 0) as n_passed_over_paid,
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
        coalesce(numbered.test.odds < 1, false) as is_fewer
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
    judged.n_passed_over - judged.n_passed_over_paid as n_passed_over_promised,
    judged.n_passed_over_paid,
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
