/*
summary = "Fees of each block, compared with a stock template of our node and with the most that any block could take."
method = """
There are two yardsticks. The template is the newest one of the node on the block's parent that was taken before the
block came. Only its first transactions that together weigh no more than the block's own are compared, because a pool
may choose smaller blocks for its own reasons. The bound is that of the linear relaxation of the knapsack problem
(G. B. Dantzig, 1957, doi:10.1287/opre.5.2.266): the mempool at the block's cut by feerate, best first, until the weight
is used up, the last transaction in part. The bound ignores that parents come first, so no block made from this mempool
can have more fees. There is a bound for the block's own weight and one for the full 4,000,000 WU. Where the mempool did
not give the weight of a transaction, it counts as 4 * vsize - 3, the least weight of that vsize, so rounding cannot
break the bound. Many signature operations can, because they raise the vsize that nodes report. The bound ignores
that a block may hold at most 80,000 of them; without that limit it can only be higher, so it stays a bound.
seen_fees_sat are the fees of those transactions of the block that were waiting, which are what the bound is about. A
block of which the dataset has no transactions is left out: nobody knows which of them were waiting.
The stays of a UTC day are ranked together, in buckets as in feerate_age_block.
"""
grain = ["block_hash", "node"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "days"
[ranges.reads]
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_residence = "first_cut_no < getvariable('range_to') and last_cut_no >= getvariable('range_from')"
chain_blocks = "block_hash in (select block_hash from mempool_cuts)"
block_pool = "block_hash in (select block_hash from mempool_cuts)"
stg_transactions = "height in (select height from chain_blocks) and block_hash in (select block_hash from mempool_cuts)"
stg_templates = "height in (select height from chain_blocks) and prev_hash in (select prev_hash from chain_blocks)"
stg_template_txs = "taken_at in (select taken_at from stg_templates)"
[ranges.clips.mempool_residence]
last_cut_no = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], getvariable('range_to'), last_cut_no)"""
mined_cut_no = "if(mined_cut_no < getvariable('range_to'), mined_cut_no, null)"
[parameters]
n_capture_buckets = {value = 128, doc = "buckets per day and node"}
max_block_wu = {value = 4000000, doc = "consensus limit of a block, BIP141"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
weight_wu = "BIGINT  weight of the block's transactions, coinbase excluded"
fees_sat = "BIGINT  the block's fees; null while unknown"
seen_fees_sat = "BIGINT  fees of those of its transactions that were waiting at this node"
template_age_s = "DOUBLE  s from the template to the block; null without a template"
template_fees_sat = "BIGINT  fees of the whole template"
template_same_weight_sat = "BIGINT  fees of its first transactions that weigh no more than the block's"
template_multiple = "DOUBLE  fees_sat / template_same_weight_sat; above 1 where the pool did better"
bound_same_weight_sat = "DOUBLE  most fees that the block's weight could hold"
bound_full_sat = "DOUBLE  most fees that a full block could hold"
captured_ratio = "DOUBLE  0..1, seen_fees_sat / bound_same_weight_sat; null for an empty block"
captured_full_ratio = "DOUBLE  0..1, seen_fees_sat / bound_full_sat; null when nothing was waiting"
*/
with

block_weights as (
    select
        block_hash,
        cast(coalesce(sum(weight_wu) filter (where not is_coinbase), 0) as bigint) as weight_wu
    from stg_transactions
    group by block_hash
),

measured as (
    select
        mempool_cuts.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.connected_at,
        mempool_cuts.cut_no // 1000000000 as day_no,
        chain_blocks.prev_hash,
        chain_blocks.height,
        chain_blocks.is_active,
        chain_blocks.fees_sat,
        block_weights.weight_wu,
        getvariable('max_block_wu') - chain_blocks.weight_wu + block_weights.weight_wu as full_wu
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    inner join block_weights
        on mempool_cuts.block_hash = block_weights.block_hash
    where mempool_cuts.is_measured
),

spanned as (
    select
        stay_no,
        node,
        first_cut_no,
        last_cut_no,
        fee_sat,
        coalesce(weight_wu, 4 * vsize_vb - 3) as weight_wu,
        unnest(
            range(
                first_cut_no // 1000000000,
                least(last_cut_no, (select max(mempool_cuts.cut_no) from mempool_cuts)) // 1000000000 + 1
            )
        ) as day_no
    from mempool_residence
    where first_cut_no <= last_cut_no and fee_sat is not null and vsize_vb > 0
),

ranked as materialized (
    select
        node,
        day_no,
        fee_sat,
        weight_wu,
        greatest(first_cut_no, day_no * 1000000000) as first_cut_no,
        least(last_cut_no, (day_no + 1) * 1000000000 - 1) as last_cut_no,
        row_number() over in_order as place,
        ntile(getvariable('n_capture_buckets')) over in_order as bucket
    from spanned
    where day_no in (select measured.day_no from measured)
    window in_order as (partition by node, day_no order by fee_sat / weight_wu desc, stay_no)
),

changes as (
    select
        node,
        day_no,
        bucket,
        first_cut_no as cut_no,
        sum(fee_sat) as fee_sat,
        sum(weight_wu) as weight_wu
    from ranked
    group by all
    union all
    select
        node,
        day_no,
        bucket,
        last_cut_no + 1 as cut_no,
        -sum(fee_sat) as fee_sat,
        -sum(weight_wu) as weight_wu
    from ranked
    group by all
),

changes_by_cut as (
    select
        node,
        day_no,
        bucket,
        cut_no,
        sum(fee_sat) as fee_sat,
        sum(weight_wu) as weight_wu
    from changes
    group by all
),

bucket_runs as (
    select
        node,
        day_no,
        bucket,
        cut_no,
        lead(cut_no) over in_order as next_cut_no,
        sum(fee_sat) over in_order as fee_sat,
        sum(weight_wu) over in_order as weight_wu
    from changes_by_cut
    window in_order as (partition by node, day_no, bucket order by cut_no)
),

bucket_sums as (
    select
        measured.node,
        measured.day_no,
        measured.cut_no,
        measured.weight_wu as own_wu,
        measured.full_wu,
        bucket_runs.bucket,
        bucket_runs.fee_sat,
        bucket_runs.weight_wu,
        sum(bucket_runs.fee_sat) over by_bucket as fee_up_to_here_sat,
        sum(bucket_runs.weight_wu) over by_bucket as weight_up_to_here_wu
    from measured
    inner join bucket_runs
        on
            measured.node = bucket_runs.node
            and measured.day_no = bucket_runs.day_no
            and measured.cut_no >= bucket_runs.cut_no
            and measured.cut_no < bucket_runs.next_cut_no
    where bucket_runs.weight_wu > 0
    window by_bucket as (partition by measured.node, measured.cut_no order by bucket_runs.bucket)
),

limits as (
    select
        *,
        unnest(
            [struct_pack(is_full := false, limit_wu := own_wu), struct_pack(is_full := true, limit_wu := full_wu)]
        ) as room
    from bucket_sums
),

-- Buckets that fit whole, and the one that does not.
whole_buckets as (
    select
        node,
        cut_no,
        room.is_full,
        max(fee_up_to_here_sat) as fee_sat
    from limits
    where weight_up_to_here_wu <= room.limit_wu
    group by node, cut_no, room.is_full
),

cut_buckets as (
    select
        node,
        day_no,
        cut_no,
        bucket,
        room.is_full,
        room.limit_wu - (weight_up_to_here_wu - weight_wu) as room_wu
    from limits
    where weight_up_to_here_wu > room.limit_wu and weight_up_to_here_wu - weight_wu < room.limit_wu
),

cut_stays as (
    select
        cut_buckets.node,
        cut_buckets.cut_no,
        cut_buckets.is_full,
        cut_buckets.room_wu,
        ranked.fee_sat,
        ranked.weight_wu,
        sum(ranked.weight_wu) over (
            partition by cut_buckets.node, cut_buckets.cut_no, cut_buckets.is_full
            order by ranked.place
        ) as weight_up_to_here_wu
    from cut_buckets
    inner join ranked
        on
            cut_buckets.node = ranked.node
            and cut_buckets.day_no = ranked.day_no
            and cut_buckets.bucket = ranked.bucket
            and cut_buckets.cut_no between ranked.first_cut_no and ranked.last_cut_no
),

part_buckets as (
    select
        node,
        cut_no,
        is_full,
        -- As decimals, which give the same sum in any order.
        sum(
            cast(
                fee_sat * greatest(0, least(1, (room_wu - (weight_up_to_here_wu - weight_wu)) / weight_wu))
                as decimal(38, 6)
            )
        ) as fee_sat
    from cut_stays
    group by node, cut_no, is_full
),

parts as (
    select * from whole_buckets
    union all by name
    select * from part_buckets
),

bounds as (
    select
        node,
        cut_no,
        cast(sum(cast(fee_sat as decimal(38, 6))) filter (where not is_full) as double) as same_weight_sat,
        cast(sum(cast(fee_sat as decimal(38, 6))) filter (where is_full) as double) as full_sat
    from parts
    group by node, cut_no
),

seen as (
    select
        node,
        mined_cut_no as cut_no,
        cast(sum(fee_sat) as bigint) as fees_sat
    from mempool_residence
    where first_cut_no <= last_cut_no and mined_cut_no is not null
    group by node, mined_cut_no
),

newest_templates as (
    select
        measured.node,
        measured.cut_no,
        measured.connected_at,
        measured.weight_wu,
        max(stg_templates.taken_at) as taken_at
    from measured
    inner join stg_templates
        on
            measured.node = stg_templates.node
            and measured.prev_hash = stg_templates.prev_hash
            and measured.connected_at >= stg_templates.taken_at
    group by measured.node, measured.cut_no, measured.connected_at, measured.weight_wu
),

template_rows as (
    select
        newest_templates.node,
        newest_templates.cut_no,
        newest_templates.weight_wu as limit_wu,
        stg_template_txs.fee_sat,
        sum(stg_template_txs.weight_wu) over (
            partition by newest_templates.node, newest_templates.cut_no
            order by stg_template_txs.tx_index
        ) as weight_up_to_here_wu
    from newest_templates
    inner join stg_template_txs
        on newest_templates.node = stg_template_txs.node and newest_templates.taken_at = stg_template_txs.taken_at
),

template_fees as (
    select
        node,
        cut_no,
        cast(sum(fee_sat) as bigint) as fees_sat,
        cast(coalesce(sum(fee_sat) filter (where weight_up_to_here_wu <= limit_wu), 0) as bigint) as same_weight_sat
    from template_rows
    group by node, cut_no
)

select
    measured.block_hash,
    measured.node,
    measured.height,
    block_pool.pool,
    measured.is_active,
    measured.weight_wu,
    measured.fees_sat,
    coalesce(seen.fees_sat, 0) as seen_fees_sat,
    seconds_between(newest_templates.taken_at, measured.connected_at) as template_age_s,
    case when newest_templates.taken_at is not null then coalesce(template_fees.fees_sat, 0) end as template_fees_sat,
    case
        when newest_templates.taken_at is not null then coalesce(template_fees.same_weight_sat, 0)
    end as template_same_weight_sat,
    measured.fees_sat / nullif(template_fees.same_weight_sat, 0) as template_multiple,
    coalesce(bounds.same_weight_sat, 0) as bound_same_weight_sat,
    coalesce(bounds.full_sat, 0) as bound_full_sat,
    coalesce(seen.fees_sat, 0) / nullif(bounds.same_weight_sat, 0) as captured_ratio,
    coalesce(seen.fees_sat, 0) / nullif(bounds.full_sat, 0) as captured_full_ratio
from measured
inner join block_pool
    on measured.block_hash = block_pool.block_hash
left join bounds
    on measured.node = bounds.node and measured.cut_no = bounds.cut_no
left join seen
    on measured.node = seen.node and measured.cut_no = seen.cut_no
left join newest_templates
    on measured.node = newest_templates.node and measured.cut_no = newest_templates.cut_no
left join template_fees
    on measured.node = template_fees.node and measured.cut_no = template_fees.cut_no
order by measured.cut_no, measured.node
