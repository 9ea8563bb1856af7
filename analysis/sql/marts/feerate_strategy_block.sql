/*
summary = "How far each block took the best-paying transactions of the mempool it found."
method = """
The mempool is the one just before the block's C, the block's own transactions included (mempool_cuts,
mempool_residence), node by node. X is the number of the block's transactions without the coinbase. Waiting
transactions are ranked by feerate, best first, ties by order of entry, then txid. top_x_ratio is the share of the X
best that the block took, outside_2x_ratio the share that it took of those behind the best 2 X (arXiv:1902.07549,
section on feerate strategies). `plain` is fee / vsize, `package` the package feerate of mempool_packages.
Transactions without a known fee are not ranked. An empty block has X = 0 and no ratios. Blocks at which the
mempool is not known have no row.

Only two ranks per block are needed, X and 2 X, so the mempool is not sorted block by block. Stays are cut into
spans of cuts_per_span cuts, ranked once per span and dealt into n_buckets buckets by rank; counting who waits in
each bucket at each cut gives the bucket of the rank that is looked for, and only the stays of that bucket are
listed. Work grows in proportion to stays and blocks.
"""
grain = ["block_hash", "node", "feerate_kind"]
[parameters]
cuts_per_span = {value = 128, doc = "cuts that are ranked together"}
n_buckets = {value = 512, doc = "buckets per span, node and kind"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
feerate_kind = "VARCHAR  plain or package"
height = "INTEGER  blocks between this one and genesis"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
x = "BIGINT  transactions of the block, coinbase excluded"
n_mempool = "BIGINT  transactions waiting"
n_ranked = "BIGINT  those of them with a known fee and size"
n_own = "BIGINT  transactions of the block that were waiting"
n_top = "BIGINT  the X best, or all ranked when there are fewer"
n_top_taken = "BIGINT  those of them that the block took"
top_x_ratio = "DOUBLE  0..1, n_top_taken / n_top; null when there is nothing to take"
n_outside = "BIGINT  those ranked behind 2 X; null for an empty block"
n_outside_taken = "BIGINT  those of them that the block took; null for an empty block"
outside_2x_ratio = "DOUBLE  0..1, n_outside_taken / n_outside; null when there are none"
*/
with

waiting as (
    select
        stay_no,
        node,
        first_cut_no,
        last_cut_no,
        mined_cut_no,
        fee_sat / vsize_vb as feerate_sat_vb
    from mempool_residence
    where first_cut_no <= last_cut_no and fee_sat is not null and vsize_vb > 0
),

rated as (
    select
        'plain' as feerate_kind,
        *
    from waiting
    union all
    select
        'package' as feerate_kind,
        waiting.stay_no,
        waiting.node,
        coalesce(mempool_packages.first_cut_no, waiting.first_cut_no) as first_cut_no,
        coalesce(mempool_packages.last_cut_no, waiting.last_cut_no) as last_cut_no,
        waiting.mined_cut_no,
        coalesce(mempool_packages.package_feerate_sat_vb, waiting.feerate_sat_vb) as feerate_sat_vb
    from waiting
    left join mempool_packages
        on waiting.stay_no = mempool_packages.stay_no
),

spanned as (
    select
        *,
        unnest(
            range(
                first_cut_no // getvariable('cuts_per_span'),
                last_cut_no // getvariable('cuts_per_span') + 1
            )
        ) as span_no
    from rated
),

ranked as materialized (
    select
        feerate_kind,
        node,
        span_no,
        greatest(first_cut_no, span_no * getvariable('cuts_per_span')) as first_cut_no,
        least(last_cut_no, (span_no + 1) * getvariable('cuts_per_span') - 1) as last_cut_no,
        mined_cut_no,
        row_number() over in_order as place,
        ntile(getvariable('n_buckets')) over in_order as bucket
    from spanned
    window in_order as (
        partition by feerate_kind, node, span_no
        order by feerate_sat_vb desc, stay_no, first_cut_no
    )
),

changes as (
    select
        feerate_kind,
        node,
        span_no,
        bucket,
        first_cut_no as cut_no,
        count(*) as n_changed
    from ranked
    group by all
    union all
    select
        feerate_kind,
        node,
        span_no,
        bucket,
        last_cut_no + 1 as cut_no,
        -count(*) as n_changed
    from ranked
    group by all
),

changes_by_cut as (
    select
        feerate_kind,
        node,
        span_no,
        bucket,
        cut_no,
        sum(n_changed) as n_changed
    from changes
    group by all
),

measured as (
    select
        mempool_cuts.block_hash,
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.cut_no // getvariable('cuts_per_span') as span_no,
        chain_blocks.height,
        chain_blocks.is_active,
        cast(chain_blocks.n_tx - 1 as bigint) as x
    from mempool_cuts
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    where mempool_cuts.is_measured
),

-- Who waits in each bucket, as runs of cuts, laid on the measured cuts.
bucket_runs as (
    select
        * exclude (n_changed),
        lead(cut_no) over in_order as next_cut_no,
        sum(n_changed) over in_order as n_waiting
    from changes_by_cut
    window in_order as (partition by feerate_kind, node, span_no, bucket order by cut_no)
),

bucket_counts as (
    select
        measured.node,
        measured.span_no,
        measured.cut_no,
        measured.x,
        bucket_runs.feerate_kind,
        bucket_runs.bucket,
        bucket_runs.n_waiting,
        sum(bucket_runs.n_waiting) over (
            partition by bucket_runs.feerate_kind, measured.node, measured.cut_no
            order by bucket_runs.bucket
        ) as n_up_to_here
    from measured
    inner join bucket_runs
        on
            measured.node = bucket_runs.node
            and measured.span_no = bucket_runs.span_no
            and measured.cut_no >= bucket_runs.cut_no
            and measured.cut_no < bucket_runs.next_cut_no
    where bucket_runs.n_waiting > 0
),

totals as (
    select
        feerate_kind,
        node,
        cut_no,
        sum(n_waiting) as n_ranked
    from bucket_counts
    group by feerate_kind, node, cut_no
),

limits as (
    select
        *,
        unnest([1, 2]) as multiple
    from bucket_counts
),

limit_buckets as (
    select
        feerate_kind,
        node,
        span_no,
        cut_no,
        bucket,
        multiple,
        multiple * x - (n_up_to_here - n_waiting) as rank_in_bucket
    from limits
    where multiple * x > n_up_to_here - n_waiting and multiple * x <= n_up_to_here
),

limit_candidates as (
    select
        limit_buckets.feerate_kind,
        limit_buckets.node,
        limit_buckets.cut_no,
        limit_buckets.multiple,
        limit_buckets.rank_in_bucket,
        ranked.place,
        row_number() over (
            partition by
                limit_buckets.feerate_kind, limit_buckets.node, limit_buckets.cut_no, limit_buckets.multiple
            order by ranked.place
        ) as waiting_rank
    from limit_buckets
    inner join ranked
        on
            limit_buckets.feerate_kind = ranked.feerate_kind
            and limit_buckets.node = ranked.node
            and limit_buckets.span_no = ranked.span_no
            and limit_buckets.bucket = ranked.bucket
            and limit_buckets.cut_no between ranked.first_cut_no and ranked.last_cut_no
),

-- Place of the last one inside X and of the last one inside 2 X; null when fewer are waiting.
limit_places as (
    select
        feerate_kind,
        node,
        cut_no,
        max(place) filter (where multiple = 1) as last_top_place,
        max(place) filter (where multiple = 2) as last_inside_place
    from limit_candidates
    where waiting_rank = rank_in_bucket
    group by feerate_kind, node, cut_no
),

taken as (
    select
        ranked.feerate_kind,
        ranked.node,
        ranked.last_cut_no as cut_no,
        count(*) filter (
            where ranked.place <= limit_places.last_top_place or limit_places.last_top_place is null
        ) as n_top_taken,
        count(*) filter (where ranked.place > limit_places.last_inside_place) as n_outside_taken
    from ranked
    left join limit_places
        on
            ranked.feerate_kind = limit_places.feerate_kind
            and ranked.node = limit_places.node
            and ranked.last_cut_no = limit_places.cut_no
    where ranked.last_cut_no = ranked.mined_cut_no
    group by ranked.feerate_kind, ranked.node, ranked.last_cut_no
),

kinds as (
    select unnest(['plain', 'package']) as feerate_kind
),

counts as (
    select
        measured.*,
        kinds.feerate_kind,
        block_mempool.n_mempool,
        block_mempool.n_own,
        coalesce(totals.n_ranked, 0) as n_ranked,
        least(measured.x, coalesce(totals.n_ranked, 0)) as n_top,
        coalesce(taken.n_top_taken, 0) as n_top_taken,
        case when measured.x > 0 then greatest(coalesce(totals.n_ranked, 0) - 2 * measured.x, 0) end as n_outside,
        case when measured.x > 0 then coalesce(taken.n_outside_taken, 0) end as n_outside_taken
    from measured
    cross join kinds
    inner join block_mempool
        on measured.block_hash = block_mempool.block_hash and measured.node = block_mempool.node
    left join totals
        on
            kinds.feerate_kind = totals.feerate_kind
            and measured.node = totals.node
            and measured.cut_no = totals.cut_no
    left join taken
        on
            kinds.feerate_kind = taken.feerate_kind
            and measured.node = taken.node
            and measured.cut_no = taken.cut_no
)

select
    counts.block_hash,
    counts.node,
    counts.feerate_kind,
    counts.height,
    block_pool.pool,
    counts.is_active,
    counts.x,
    counts.n_mempool,
    cast(counts.n_ranked as bigint) as n_ranked,
    counts.n_own,
    cast(counts.n_top as bigint) as n_top,
    counts.n_top_taken,
    counts.n_top_taken / nullif(counts.n_top, 0) as top_x_ratio,
    cast(counts.n_outside as bigint) as n_outside,
    counts.n_outside_taken,
    counts.n_outside_taken / nullif(counts.n_outside, 0) as outside_2x_ratio
from counts
inner join block_pool
    on counts.block_hash = block_pool.block_hash
order by counts.node, counts.cut_no, counts.feerate_kind
