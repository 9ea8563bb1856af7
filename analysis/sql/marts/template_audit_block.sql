/*
summary = "Each block compared with our node's templates of its height, for each age: missing, extra, conflicting."
method = """
The node's templates on the block's parent, taken before the block came, are sorted into bins of age at `audit_edges_s`;
the newest of each bin is compared. All ages are kept, since the best match would flatter the pool. What the template
promises is its beginning, as heavy as the block's transactions, since a pool may choose smaller blocks. A promised
transaction that the block lacks has the first matching class. `conflicting`: it left our mempool as replaced before the
block, or in conflict with what the block mined. `tail`: it is in the last tail_ratio of the promised weight, where
small differences of order decide. `fresh`: it entered less than fresh_s before the block, and pools do not refresh
their work at once (what was there when we began is never fresh). Else it is `unexplained`. Transactions that pay the
same per virtual byte as the last promised one share what is left of the places. A missing one is `tied` as far as an
extra one stands in its place, and an extra one where no class before fits; n_tied counts them all. A transaction of the
block that was not promised is `unseen` when it was not in our mempool; `fresh` when it, or a descendant in the block
that pays more than it and all between them, entered after the template was made; `tail` when the template has it no
more than tail_ratio behind the promised part; else `prioritised`. Bitcoin Core answers with a template of less than
cache_s ago, if it has one on the same parent (src/rpc/mining.cpp): it may be that much older than age_s. The rules
follow github.com/mempool/mempool and github.com/0xB10C/miningpool-observer. Only blocks at which the mempool is known.
"""
grain = ["block_hash", "node", "from_age_s"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "days"
[ranges.reads]
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_residence = """first_cut_no < getvariable('range_to')
and (first_cut_no >= getvariable('range_from') - 1000000000 or last_cut_no >= getvariable('range_from') - 1000000000)"""
mempool_links = "child_no in (select stay_no from mempool_residence)"
chain_blocks = "block_hash in (select block_hash from mempool_cuts)"
block_pool = "block_hash in (select block_hash from mempool_cuts)"
stg_transactions = "height in (select height from chain_blocks) and block_hash in (select block_hash from mempool_cuts)"
stg_templates = "height in (select height from chain_blocks) and prev_hash in (select prev_hash from chain_blocks)"
stg_template_txs = "taken_at in (select taken_at from stg_templates)"
[ranges.clips.mempool_residence]
last_cut_no = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], getvariable('range_to'), last_cut_no)"""
mined_cut_no = "if(mined_cut_no < getvariable('range_to'), mined_cut_no, null)"
left_reason = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], null, left_reason)"""
[parameters]
audit_edges_s = {value = "0 2 5 15 30 60 120", doc = "where a bin of template age begins, s; the last is open"}
cache_s = {value = 6, doc = "s for which the node may give an older template again, with whole seconds on its clock"}
fresh_s = {value = 30, doc = "s before the block; about how often pools refresh their work"}
tail_ratio = {value = 0.02, doc = "part of the promised weight that is its tail"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
from_age_s = "DOUBLE  s, where the bin of age begins"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
taken_at = "TIMESTAMP WITH TIME ZONE  time of the template on our clock; with node it identifies the template"
age_s = "DOUBLE  s from the template to the block"
n_block = "BIGINT  transactions of the block"
n_template = "BIGINT  transactions of the template"
n_promised = "BIGINT  first transactions of the template that together weigh no more than the block's"
n_matched = "BIGINT  promised and in the block"
n_missing = "BIGINT  promised and not in the block"
n_missing_conflicting = "BIGINT  missing because they could no longer be mined"
n_missing_tail = "BIGINT  missing, at the end of what was promised"
n_missing_fresh = "BIGINT  missing, entered just before the block"
n_missing_tied = "BIGINT  missing, and in its place the block has one that pays the same"
n_missing_unexplained = "BIGINT  missing for none of these reasons"
n_extra = "BIGINT  in the block and not promised"
n_extra_unseen = "BIGINT  extra, not in our mempool"
n_extra_fresh = "BIGINT  extra, may have entered after the template was made, or a descendant that pays more did"
n_extra_tail = "BIGINT  extra, in the template just behind what was promised"
n_extra_tied = "BIGINT  extra, pays the same as the last promised one"
n_extra_prioritised = "BIGINT  extra, was waiting and paid less than what was promised"
n_tied = "BIGINT  transactions of the template, or waiting and in the block, that pay the same per virtual byte as the last promised one, that one included"
score_ratio = "DOUBLE  0..1, n_matched / (n_matched + n_missing_unexplained); null when both are 0"
*/
with recursive

bins as (
    select
        edges.from_age_s,
        lead(edges.from_age_s, 1, 1e18) over (order by edges.from_age_s) as to_age_s
    from (select unnest(cast(string_split(getvariable('audit_edges_s'), ' ') as double[])) as from_age_s) as edges
),

contents as (
    select
        block_hash,
        count(*) filter (where not is_coinbase) as n_block,
        coalesce(sum(weight_wu) filter (where not is_coinbase), 0) as weight_wu
    from stg_transactions
    group by block_hash
),

measured as (
    select
        mempool_cuts.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.connected_at,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.is_active,
        contents.n_block,
        contents.weight_wu
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    inner join contents
        on mempool_cuts.block_hash = contents.block_hash
    where mempool_cuts.is_measured
),

aged as (
    select
        measured.*,
        stg_templates.taken_at,
        stg_templates.taken_at - to_microseconds(coalesce(stg_templates.request_us, 0)) as asked_at,
        stg_templates.n_tx as n_template,
        seconds_between(stg_templates.taken_at, measured.connected_at) as age_s
    from measured
    inner join stg_templates
        on
            measured.node = stg_templates.node
            and measured.prev_hash = stg_templates.prev_hash
            and measured.connected_at >= stg_templates.taken_at
),

-- One number stands for node, cut and age in what has a row per transaction.
chosen as (
    select
        aged.*,
        bins.from_age_s,
        row_number() over (order by aged.node, aged.cut_no, bins.from_age_s, aged.taken_at) as choice_no
    from aged
    inner join bins
        on aged.age_s >= bins.from_age_s and aged.age_s < bins.to_age_s
    qualify row_number() over (partition by aged.node, aged.cut_no, bins.from_age_s order by aged.taken_at desc) = 1
),

template_rows as (
    select
        chosen.choice_no,
        stg_template_txs.txid,
        stg_template_txs.tx_index,
        stg_template_txs.fee_sat,
        (stg_template_txs.weight_wu + 3) // 4 as vsize_vb,
        sum(stg_template_txs.weight_wu) over (
            partition by chosen.choice_no
            order by stg_template_txs.tx_index
        ) as weight_up_to_here_wu
    from chosen
    inner join stg_template_txs
        on chosen.node = stg_template_txs.node and chosen.taken_at = stg_template_txs.taken_at
),

-- What the last promised transaction pays: a fee for so many virtual bytes.
last_promised as (
    select
        template_rows.choice_no,
        arg_max(template_rows.fee_sat, template_rows.tx_index) as fee_sat,
        arg_max(template_rows.vsize_vb, template_rows.tx_index) as vsize_vb
    from template_rows
    inner join chosen
        on template_rows.choice_no = chosen.choice_no
    where template_rows.weight_up_to_here_wu <= chosen.weight_wu
    group by template_rows.choice_no
),

-- Without a division, which would round.
tied_rows as (
    select
        template_rows.choice_no,
        template_rows.txid
    from template_rows
    inner join last_promised
        on template_rows.choice_no = last_promised.choice_no
    where
        cast(template_rows.fee_sat as hugeint) * last_promised.vsize_vb
        = cast(last_promised.fee_sat as hugeint) * template_rows.vsize_vb
),

promised as (
    select
        template_rows.*,
        mined.txid is not null as is_matched
    from template_rows
    inner join chosen
        on template_rows.choice_no = chosen.choice_no
    left join stg_transactions as mined
        on chosen.block_hash = mined.block_hash and template_rows.txid = mined.txid
    where template_rows.weight_up_to_here_wu <= chosen.weight_wu
),

-- Materialised: else stays are joined with every later template before their transactions are compared.
missing as materialized (
    select
        promised.choice_no,
        promised.txid,
        chosen.node,
        chosen.cut_no,
        chosen.taken_at
    from promised
    inner join chosen
        on promised.choice_no = chosen.choice_no
    where not promised.is_matched
),

-- The stay in which the template found it: the last that began before, else, where we lagged, the first behind. One that
-- ended with its session tells only where no other does. Stays that ended two days before are not looked at.
missing_stays as (
    select
        missing.choice_no,
        missing.txid,
        arg_min(
            struct_pack(
                entered_at := waited.entered_at,
                first_seen_kind := waited.first_seen_kind,
                left_reason := waited.left_reason,
                last_cut_no := waited.last_cut_no
            ),
            (
                waited.left_reason is null and waited.last_cut_no < missing.cut_no,
                waited.entered_at > missing.taken_at,
                abs(seconds_between(waited.entered_at, missing.taken_at))
            )
        ) as stay
    from missing
    inner join mempool_residence as waited
        on
            missing.node = waited.node
            and missing.txid = waited.txid
            and missing.cut_no >= waited.first_cut_no
            and missing.cut_no // 1000000000 - 1 <= greatest(waited.first_cut_no, waited.last_cut_no) // 1000000000
    group by missing.choice_no, missing.txid
),

judged_promises as (
    select
        promised.choice_no,
        promised.txid,
        case
            when promised.is_matched then 'matched'
            when
                missing_stays.stay.left_reason = 'replaced' and missing_stays.stay.last_cut_no < chosen.cut_no
                or missing_stays.stay.left_reason = 'conflict' and missing_stays.stay.last_cut_no <= chosen.cut_no
                then 'conflicting'
            when promised.weight_up_to_here_wu > (1 - getvariable('tail_ratio')) * chosen.weight_wu then 'tail'
            when
                missing_stays.stay.first_seen_kind != 'at_start'
                and seconds_between(missing_stays.stay.entered_at, chosen.connected_at) < getvariable('fresh_s')
                then 'fresh'
            when tied_rows.txid is not null then 'tied'
            else 'unexplained'
        end as verdict
    from promised
    inner join chosen
        on promised.choice_no = chosen.choice_no
    left join missing_stays
        on promised.choice_no = missing_stays.choice_no and promised.txid = missing_stays.txid
    left join tied_rows
        on promised.choice_no = tied_rows.choice_no and promised.txid = tied_rows.txid
),

promise_counts as (
    select
        choice_no,
        count(*) as n_promised,
        count(*) filter (where verdict = 'matched') as n_matched,
        count(*) filter (where verdict = 'conflicting') as n_conflicting,
        count(*) filter (where verdict = 'tail') as n_tail,
        count(*) filter (where verdict = 'fresh') as n_fresh,
        count(*) filter (where verdict = 'tied') as n_tied,
        count(*) filter (where verdict = 'unexplained') as n_unexplained
    from judged_promises
    group by choice_no
),

extra as (
    select
        chosen.choice_no,
        chosen.node,
        chosen.cut_no,
        chosen.asked_at,
        chosen.weight_wu as limit_wu,
        mined.txid,
        template_rows.weight_up_to_here_wu,
        template_rows.txid is not null as is_in_template,
        cast(mined.fee_sat as hugeint) * last_promised.vsize_vb
        = cast(last_promised.fee_sat as hugeint) * mined.vsize_vb as is_tied
    from chosen
    inner join stg_transactions as mined
        on chosen.block_hash = mined.block_hash and not mined.is_coinbase
    left join last_promised
        on chosen.choice_no = last_promised.choice_no
    left join template_rows
        on chosen.choice_no = template_rows.choice_no and mined.txid = template_rows.txid
    where template_rows.txid is null or template_rows.weight_up_to_here_wu > chosen.weight_wu
),

mined_stays as (
    select
        extra.choice_no,
        extra.txid,
        arg_max(stay.stay_no, stay.entered_at) as stay_no,
        -- Only what entered behind the parent can be missing in an older template on it.
        seconds_between(max(stay.entered_at), extra.asked_at)
        < if(max(stay.first_cut_no) = extra.cut_no, getvariable('cache_s'), 0) as is_late
    from extra
    inner join mempool_residence as stay
        on extra.node = stay.node and extra.cut_no = stay.mined_cut_no and extra.txid = stay.txid
    group by extra.choice_no, extra.txid, extra.asked_at, extra.cut_no
),

extra_stays as (
    select
        extra.*,
        mined_stays.stay_no,
        mined_stays.is_late
    from extra
    left join mined_stays
        on extra.choice_no = mined_stays.choice_no and extra.txid = mined_stays.txid
),

links as (
    select
        mempool_links.child_no,
        mempool_links.parent_no,
        child.fee_sat / child.vsize_vb as child_feerate_sat_vb,
        parent.fee_sat / parent.vsize_vb as parent_feerate_sat_vb
    from mempool_links
    inner join mempool_residence as child
        on mempool_links.child_no = child.stay_no
    inner join mempool_residence as parent
        on mempool_links.parent_no = parent.stay_no
    where child.mined_cut_no is not null and parent.mined_cut_no is not null
),

-- What entered after the question, and ancestors for which it pays: the template need not have them.
paid_late (choice_no, stay_no, feerate_sat_vb) as (
    select
        extra_stays.choice_no,
        links.parent_no as stay_no,
        links.child_feerate_sat_vb as feerate_sat_vb
    from extra_stays
    inner join links
        on extra_stays.stay_no = links.child_no
    where extra_stays.is_late and links.child_feerate_sat_vb > links.parent_feerate_sat_vb
    union
    select
        paid_late.choice_no,
        links.parent_no as stay_no,
        paid_late.feerate_sat_vb
    from paid_late
    inner join links
        on paid_late.stay_no = links.child_no and paid_late.feerate_sat_vb > links.parent_feerate_sat_vb
),

judged_extra as (
    select
        extra_stays.choice_no,
        extra_stays.txid,
        extra_stays.is_tied and not extra_stays.is_in_template and extra_stays.stay_no is not null as is_tied_beyond,
        case
            when extra_stays.stay_no is null then 'unseen'
            when
                extra_stays.is_late
                or exists (
                    select 1
                    from paid_late
                    where extra_stays.choice_no = paid_late.choice_no and extra_stays.stay_no = paid_late.stay_no
                )
                then 'fresh'
            when extra_stays.weight_up_to_here_wu <= (1 + getvariable('tail_ratio')) * extra_stays.limit_wu then 'tail'
            when extra_stays.is_tied then 'tied'
            else 'prioritised'
        end as verdict
    from extra_stays
),

extra_counts as (
    select
        choice_no,
        count(*) as n_extra,
        count(*) filter (where verdict = 'unseen') as n_unseen,
        count(*) filter (where verdict = 'fresh') as n_fresh,
        count(*) filter (where verdict = 'tail') as n_tail,
        count(*) filter (where verdict = 'tied') as n_tied,
        count(*) filter (where is_tied_beyond) as n_tied_beyond,
        count(*) filter (where verdict = 'prioritised') as n_prioritised
    from judged_extra
    group by choice_no
),

-- An equal one excuses a missing one only once.
judged as (
    select
        chosen.*,
        coalesce(promise_counts.n_promised, 0) as n_promised,
        coalesce(promise_counts.n_matched, 0) as n_matched,
        coalesce(promise_counts.n_conflicting, 0) as n_missing_conflicting,
        coalesce(promise_counts.n_tail, 0) as n_missing_tail,
        coalesce(promise_counts.n_fresh, 0) as n_missing_fresh,
        coalesce(promise_counts.n_tied, 0) as n_missing_at_edge,
        least(coalesce(promise_counts.n_tied, 0), coalesce(extra_counts.n_tied, 0)) as n_missing_tied,
        coalesce(promise_counts.n_unexplained, 0) + n_missing_at_edge - n_missing_tied as n_missing_unexplained,
        coalesce(extra_counts.n_extra, 0) as n_extra,
        coalesce(extra_counts.n_unseen, 0) as n_extra_unseen,
        coalesce(extra_counts.n_fresh, 0) as n_extra_fresh,
        coalesce(extra_counts.n_tail, 0) as n_extra_tail,
        coalesce(extra_counts.n_tied, 0) as n_extra_tied,
        coalesce(extra_counts.n_prioritised, 0) as n_extra_prioritised,
        (
            select count(*) from tied_rows
            where tied_rows.choice_no = chosen.choice_no
        )
        + coalesce(extra_counts.n_tied_beyond, 0) as n_tied
    from chosen
    left join promise_counts
        on chosen.choice_no = promise_counts.choice_no
    left join extra_counts
        on chosen.choice_no = extra_counts.choice_no
)

select
    judged.block_hash,
    judged.node,
    judged.from_age_s,
    judged.height,
    block_pool.pool,
    judged.is_active,
    judged.taken_at,
    judged.age_s,
    judged.n_block,
    cast(judged.n_template as bigint) as n_template,
    judged.n_promised,
    judged.n_matched,
    judged.n_promised - judged.n_matched as n_missing,
    judged.n_missing_conflicting,
    judged.n_missing_tail,
    judged.n_missing_fresh,
    judged.n_missing_tied,
    judged.n_missing_unexplained,
    judged.n_extra,
    judged.n_extra_unseen,
    judged.n_extra_fresh,
    judged.n_extra_tail,
    judged.n_extra_tied,
    judged.n_extra_prioritised,
    judged.n_tied,
    judged.n_matched / nullif(judged.n_matched + judged.n_missing_unexplained, 0) as score_ratio
from judged
inner join block_pool
    on judged.block_hash = block_pool.block_hash
order by judged.cut_no, judged.node, judged.from_age_s
