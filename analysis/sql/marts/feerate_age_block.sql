/*
summary = "How far each block took the best-paying transactions of the mempool some time before it came."
method = """
The mempool of a node (mempool_residence) is ranked at every moment of mempool_moments. A pool works on a template that
is some seconds old and cannot take what entered since, so the mempool at the block's arrival alone would be unfair to
it. A transaction waits at a moment that lies between its entry and its end in the node's stream; at age 0 the moment is
just before the block's C, so the block's own transactions are included. X is the number of the block's transactions
without the coinbase. Waiting transactions are ranked by feerate, best first. Those that pay exactly the same share what
is left of the places: which of them the block took is no choice by feerate, so its own fill these places first. n_tied
says how many of its transactions pay exactly what the last of the X best pays. top_x_ratio is the share of the X best
that the block took, outside_2x_ratio the share that it took of those behind the best 2 X (arXiv:1902.07549, section on
feerate strategies). `plain` is fee / vsize, `package` the package feerate of mempool_packages, `cluster` the chunk
feerate of mempool_clusters. Package and cluster feerates are known at blocks only: a relative that enters between the
moment and the block counts already, and a transaction that leaves between them keeps the feerate it had at the block
before, or its own where that came on another UTC day. Transactions without a known fee are not ranked. An empty block
has X = 0 and no ratios. Blocks at which the mempool is not known have no row. Stays are ranked once per six hours, as
the moments are numbered, and divided into n_age_buckets buckets by rank: only two ranks per moment are needed, X and 2
X. The number of each bucket that waits tells in which bucket such a rank is, and only its stays are listed.
"""
cost = "24 rankings of a mempool per block: for eight moments by three kinds of feerate. A scan reads once."
grain = ["block_hash", "node", "age_s", "feerate_kind"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "days"
[ranges.reads]
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_moments = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_residence = """first_cut_no < getvariable('range_to') and (first_cut_no >= getvariable('range_from') or
last_cut_no >= getvariable('range_from') or left_position >= (select min(position) from mempool_moments))"""
mempool_packages = "first_cut_no >= getvariable('range_from') and first_cut_no < getvariable('range_to')"
mempool_clusters = "first_cut_no >= getvariable('range_from') and first_cut_no < getvariable('range_to')"
chain_blocks = "block_hash in (select block_hash from mempool_cuts)"
block_pool = "block_hash in (select block_hash from mempool_cuts)"
[ranges.clips.mempool_residence]
last_cut_no = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], getvariable('range_to'), last_cut_no)"""
mined_cut_no = "if(mined_cut_no < getvariable('range_to'), mined_cut_no, null)"
left_reason = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], null, left_reason)"""
left_position = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], null, left_position)"""
[parameters]
n_age_buckets = {value = 128, doc = "buckets per span and node"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
age_s = "DOUBLE  s before the block, as one of the parameter ages_s"
feerate_kind = "VARCHAR  plain, package or cluster"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
real_age_s = "DOUBLE  s before the block, but not before the node's previous cut"
is_clamped = "BOOLEAN  true: the block came less than age_s after the node's previous cut"
x = "BIGINT  transactions of the block, coinbase excluded"
n_ranked = "BIGINT  transactions waiting at the moment, with a known fee and size"
n_top = "BIGINT  the X best, or all ranked when there are fewer"
n_top_taken = "BIGINT  those of them that the block took"
n_tied = "BIGINT  transactions of the block that pay exactly what the last of the X best pays; 0 where fewer than X are ranked"
top_x_ratio = "DOUBLE  0..1, n_top_taken / n_top; null when there is nothing to take"
n_outside = "BIGINT  those ranked behind 2 X; null for an empty block"
n_outside_taken = "BIGINT  those of them that the block took; null for an empty block"
outside_2x_ratio = "DOUBLE  0..1, n_outside_taken / n_outside; null when there are none"
*/
with

distinct_moments as (
    select distinct
        node,
        moment_no,
        cut_no,
        position
    from mempool_moments
),

-- For every cut: the first moment at or behind it, and the last one at or before it.
cut_bounds as (
    select distinct
        mempool_cuts.node,
        mempool_cuts.cut_no,
        mempool_cuts.position,
        min(distinct_moments.moment_no) over (
            partition by mempool_cuts.node order by mempool_cuts.cut_no
            range between current row and unbounded following
        ) as next_moment_no,
        max(distinct_moments.moment_no) over (
            partition by mempool_cuts.node order by mempool_cuts.cut_no
        ) as last_moment_no
    from mempool_cuts
    left join distinct_moments
        on mempool_cuts.node = distinct_moments.node and mempool_cuts.cut_no = distinct_moments.cut_no
),

begun as (
    select
        stay.stay_no,
        stay.node,
        stay.last_cut_no,
        stay.mined_cut_no,
        stay.fee_sat / stay.vsize_vb as feerate_sat_vb,
        distinct_moments.moment_no as first_moment_no,
        -- The last cut tells the end where it is one, and where an R belongs to the C behind it.
        case
            when coalesce(stay.left_reason, 'conflict') not in ('mined', 'conflict') then stay.left_position
            -- In a range of cuts, what waits longer waits at the last moment of all.
            when stay.first_cut_no <= stay.last_cut_no then coalesce(
                cut_bounds.position, (select max(every_moment.position) from distinct_moments as every_moment)
            )
        end as end_position
    from mempool_residence as stay
    asof inner join distinct_moments
        on stay.node = distinct_moments.node and stay.position < distinct_moments.position
    left join cut_bounds
        on stay.node = cut_bounds.node and stay.last_cut_no = cut_bounds.cut_no
    where stay.fee_sat is not null and stay.vsize_vb > 0
),

day_moments as (
    select
        node,
        cut_no // 1000000000 as day_no,
        min(moment_no) as first_moment_no,
        max(moment_no) as last_moment_no
    from distinct_moments
    group by all
),

waiting_days as (
    select
        begun.* exclude (first_moment_no),
        day_moments.day_no,
        greatest(begun.first_moment_no, day_moments.first_moment_no) as first_moment_no,
        least(end_moments.moment_no, day_moments.last_moment_no) as last_moment_no
    from begun
    asof inner join distinct_moments as end_moments
        on begun.node = end_moments.node and begun.end_position >= end_moments.position
    inner join day_moments
        on
            begun.node = day_moments.node
            and begun.first_moment_no <= day_moments.last_moment_no
            and end_moments.moment_no >= day_moments.first_moment_no
),

runs as (
    select
        'package' as feerate_kind,
        * exclude (package_feerate_sat_vb),
        package_feerate_sat_vb as feerate_sat_vb
    from mempool_packages
    union all
    select
        'cluster' as feerate_kind,
        * exclude (cluster_feerate_sat_vb),
        cluster_feerate_sat_vb as feerate_sat_vb
    from mempool_clusters
),

related as (
    select distinct
        stay_no,
        first_cut_no // 1000000000 as day_no
    from runs
),

-- On a day without relatives, a transaction has one feerate of every kind.
rated as (
    select
        case when related.stay_no is null then 'any' else 'plain' end as feerate_kind,
        stay.node,
        stay.stay_no,
        stay.mined_cut_no,
        stay.feerate_sat_vb,
        stay.first_moment_no,
        stay.last_moment_no
    from waiting_days as stay
    left join related
        on stay.stay_no = related.stay_no and stay.day_no = related.day_no
    union all
    select
        runs.feerate_kind,
        stay.node,
        stay.stay_no,
        stay.mined_cut_no,
        runs.feerate_sat_vb,
        -- No moment behind or before a cut: the run waits at none.
        greatest(coalesce(first_bound.next_moment_no, 9000000000000000000), stay.first_moment_no) as first_moment_no,
        least(
            stay.last_moment_no,
            if(runs.last_cut_no < stay.last_cut_no, coalesce(last_bound.last_moment_no, -1), stay.last_moment_no)
        ) as last_moment_no
    from runs
    inner join waiting_days as stay
        on runs.stay_no = stay.stay_no and runs.first_cut_no // 1000000000 = stay.day_no
    left join cut_bounds as first_bound
        on stay.node = first_bound.node and runs.first_cut_no = first_bound.cut_no
    left join cut_bounds as last_bound
        on stay.node = last_bound.node and runs.last_cut_no = last_bound.cut_no
),

spanned as (
    select
        *,
        unnest(range(first_moment_no // 1000000000, last_moment_no // 1000000000 + 1)) as span_no
    from rated
    where first_moment_no <= last_moment_no
),

-- One order for all kinds: the places of one kind are in order, with those of the others between.
ranked as materialized (
    select
        feerate_kind,
        node,
        span_no,
        greatest(first_moment_no, span_no * 1000000000) as first_moment_no,
        least(last_moment_no, (span_no + 1) * 1000000000 - 1) as last_moment_no,
        mined_cut_no,
        feerate_sat_vb,
        row_number() over in_order as place,
        ntile(getvariable('n_age_buckets')) over in_order as bucket
    from spanned
    -- At a moment before a block, the first of equals to be mined are those that the block took.
    window in_order as (
        partition by node, span_no order by feerate_sat_vb desc, mined_cut_no nulls last, stay_no, first_moment_no
    )
),

changes as (
    select
        feerate_kind,
        node,
        span_no,
        bucket,
        first_moment_no as moment_no,
        count(*) as n_changed
    from ranked
    group by all
    union all
    select
        feerate_kind,
        node,
        span_no,
        bucket,
        last_moment_no + 1 as moment_no,
        -count(*) as n_changed
    from ranked
    group by all
),

kinds as (
    select unnest(['plain', 'package', 'cluster']) as feerate_kind
),

changes_by_moment as (
    select
        kinds.feerate_kind,
        changes.node,
        changes.span_no,
        changes.bucket,
        changes.moment_no,
        sum(changes.n_changed) as n_changed
    from changes
    inner join kinds
        on changes.feerate_kind in ('any', kinds.feerate_kind)
    group by all
),

measured as (
    select
        distinct_moments.node,
        distinct_moments.cut_no,
        distinct_moments.moment_no,
        distinct_moments.moment_no // 1000000000 as span_no,
        cast(chain_blocks.n_tx - 1 as bigint) as x
    from distinct_moments
    inner join mempool_cuts
        on distinct_moments.node = mempool_cuts.node and distinct_moments.cut_no = mempool_cuts.cut_no
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
),

-- Who waits in each bucket, as runs of moments, laid on the moments of blocks.
bucket_runs as (
    select
        * exclude (n_changed),
        lead(moment_no) over in_order as next_moment_no,
        sum(n_changed) over in_order as n_waiting
    from changes_by_moment
    window in_order as (partition by feerate_kind, node, span_no, bucket order by moment_no)
),

bucket_counts as materialized (
    select
        measured.node,
        measured.span_no,
        measured.moment_no,
        measured.x,
        bucket_runs.feerate_kind,
        bucket_runs.bucket,
        bucket_runs.n_waiting,
        sum(bucket_runs.n_waiting) over (
            partition by bucket_runs.feerate_kind, measured.node, measured.moment_no
            order by bucket_runs.bucket
        ) as n_up_to_here
    from measured
    inner join bucket_runs
        on
            measured.node = bucket_runs.node
            and measured.span_no = bucket_runs.span_no
            and measured.moment_no >= bucket_runs.moment_no
            and measured.moment_no < bucket_runs.next_moment_no
    where bucket_runs.n_waiting > 0
),

totals as (
    select
        feerate_kind,
        node,
        moment_no,
        sum(n_waiting) as n_ranked
    from bucket_counts
    group by feerate_kind, node, moment_no
),

-- The bucket of the last one inside X, and of the last one inside 2 X.
multiples as (
    select unnest([1, 2]) as multiple
),

limit_buckets as (
    select
        bucket_counts.*,
        multiples.multiple,
        multiples.multiple * bucket_counts.x - (bucket_counts.n_up_to_here - bucket_counts.n_waiting) as rank_in_bucket
    from bucket_counts
    cross join multiples
    where
        multiples.multiple * bucket_counts.x > bucket_counts.n_up_to_here - bucket_counts.n_waiting
        and multiples.multiple * bucket_counts.x <= bucket_counts.n_up_to_here
),

-- Places in those buckets that wait at the moment; the one of the rank is the limit.
limit_candidates as (
    select
        limit_buckets.feerate_kind,
        limit_buckets.node,
        limit_buckets.moment_no,
        limit_buckets.multiple,
        list_sort(list(struct_pack(place := ranked.place, feerate_sat_vb := ranked.feerate_sat_vb)))[
            any_value(cast(limit_buckets.rank_in_bucket as bigint))
        ] as ranked_last
    from limit_buckets
    inner join ranked
        on
            limit_buckets.node = ranked.node
            and limit_buckets.span_no = ranked.span_no
            and limit_buckets.bucket = ranked.bucket
            and ranked.feerate_kind in ('any', limit_buckets.feerate_kind)
            and limit_buckets.moment_no between ranked.first_moment_no and ranked.last_moment_no
    group by limit_buckets.feerate_kind, limit_buckets.node, limit_buckets.moment_no, limit_buckets.multiple
),

-- Null when fewer are waiting.
limit_places as (
    select
        feerate_kind,
        node,
        moment_no,
        max(ranked_last.place) filter (where multiple = 1) as last_top_place,
        max(ranked_last.feerate_sat_vb) filter (where multiple = 1) as last_top_feerate_sat_vb,
        max(ranked_last.place) filter (where multiple = 2) as last_inside_place
    from limit_candidates
    group by feerate_kind, node, moment_no
),

taken as (
    select
        kinds.feerate_kind,
        measured.node,
        measured.moment_no,
        count(*) filter (
            where ranked.place <= limit_places.last_top_place or limit_places.last_top_place is null
        ) as n_top_taken,
        count(*) filter (where ranked.feerate_sat_vb = limit_places.last_top_feerate_sat_vb) as n_tied,
        count(*) filter (where ranked.place > limit_places.last_inside_place) as n_outside_taken
    from ranked
    inner join measured
        on
            ranked.node = measured.node
            and ranked.mined_cut_no = measured.cut_no
            and measured.moment_no between ranked.first_moment_no and ranked.last_moment_no
    inner join kinds
        on ranked.feerate_kind in ('any', kinds.feerate_kind)
    left join limit_places
        on
            kinds.feerate_kind = limit_places.feerate_kind
            and measured.node = limit_places.node
            and measured.moment_no = limit_places.moment_no
    group by kinds.feerate_kind, measured.node, measured.moment_no
),

counts as (
    select
        measured.*,
        kinds.feerate_kind,
        coalesce(totals.n_ranked, 0) as n_ranked,
        least(measured.x, coalesce(totals.n_ranked, 0)) as n_top,
        coalesce(taken.n_top_taken, 0) as n_top_taken,
        coalesce(taken.n_tied, 0) as n_tied,
        case when measured.x > 0 then greatest(coalesce(totals.n_ranked, 0) - 2 * measured.x, 0) end as n_outside,
        case when measured.x > 0 then coalesce(taken.n_outside_taken, 0) end as n_outside_taken
    from measured
    cross join kinds
    left join totals
        on
            kinds.feerate_kind = totals.feerate_kind
            and measured.node = totals.node
            and measured.moment_no = totals.moment_no
    left join taken
        on
            kinds.feerate_kind = taken.feerate_kind
            and measured.node = taken.node
            and measured.moment_no = taken.moment_no
)

select
    mempool_moments.block_hash,
    mempool_moments.node,
    mempool_moments.age_s,
    counts.feerate_kind,
    chain_blocks.height,
    block_pool.pool,
    chain_blocks.is_active,
    mempool_moments.real_age_s,
    mempool_moments.is_clamped,
    counts.x,
    cast(counts.n_ranked as bigint) as n_ranked,
    cast(counts.n_top as bigint) as n_top,
    counts.n_top_taken,
    counts.n_tied,
    counts.n_top_taken / nullif(counts.n_top, 0) as top_x_ratio,
    cast(counts.n_outside as bigint) as n_outside,
    counts.n_outside_taken,
    counts.n_outside_taken / nullif(counts.n_outside, 0) as outside_2x_ratio
from mempool_moments
inner join counts
    on mempool_moments.node = counts.node and mempool_moments.moment_no = counts.moment_no
inner join chain_blocks
    on mempool_moments.block_hash = chain_blocks.block_hash
inner join block_pool
    on mempool_moments.block_hash = block_pool.block_hash
order by mempool_moments.cut_no, mempool_moments.node, mempool_moments.age_s, counts.feerate_kind
