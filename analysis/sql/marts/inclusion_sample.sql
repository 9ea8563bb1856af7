/*
summary = "Pairs of a block and a transaction that waited for it: was it taken, and how did it rank?"
method = """
Pairs of a measured, non-empty block of the active chain and a transaction that was waiting at its cut, taken or left,
at the node that connected the block first of those whose mempool is known. Only transactions whose entry was pushed, so
that their waiting time is known, and whose fee is known. Of these, the txid alone decides which are kept: about one in
sample_every (inclusion_thinning), taken or left, the same ones at every node. A txid is a hash, so it tells nothing of
ranks or areas under curves. Each factor is the transaction's rank among the pairs of its block, as (rank - 0.5) / pairs
with ties at their mean, so it lies between 0 and 1 in every block and can be compared between blocks.
"""
cost = """
Five ranks of every pair within its block are five sorts of the sample, which has at most about a million pairs.
"""
grain = ["stay_no", "cut_no"]
late = {relation = "block_pool", key = "block_hash", columns = ["pool"]}
[ranges]
by = "days"
[ranges.reads]
mempool_cuts = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_residence = "first_cut_no < getvariable('range_to') and last_cut_no >= getvariable('range_from')"
block_mempool = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
mempool_packages = "first_cut_no >= getvariable('range_from') and first_cut_no < getvariable('range_to')"
mempool_clusters = "first_cut_no >= getvariable('range_from') and first_cut_no < getvariable('range_to')"
chain_blocks = "block_hash in (select block_hash from mempool_cuts)"
block_pool = "block_hash in (select block_hash from mempool_cuts)"
[ranges.clips.mempool_residence]
last_cut_no = """if(last_cut_no >= getvariable('range_to') or left_position > (select map(list(node), list(last))
from (select node, max(position) as last from mempool_cuts group by node))[node], getvariable('range_to'), last_cut_no)"""
mined_cut_no = "if(mined_cut_no < getvariable('range_to'), mined_cut_no, null)"
[columns]
stay_no = "BIGINT  number of the stay in mempool_residence"
cut_no = "BIGINT  with node, the number of the block's cut in mempool_cuts"
node = "VARCHAR  name of the watched node"
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_taken = "BOOLEAN  the block took it"
n_pairs = "BIGINT  pairs of the block in this sample"
feerate_rank_ratio = "DOUBLE  0..1, rank of fee / vsize, higher pays more"
package_rank_ratio = "DOUBLE  0..1, rank of the package feerate (mempool_packages)"
cluster_rank_ratio = "DOUBLE  0..1, rank of the chunk feerate (mempool_clusters)"
waiting_rank_ratio = "DOUBLE  0..1, rank of the time waited, higher waited longer"
size_rank_ratio = "DOUBLE  0..1, rank of vsize, higher is larger"
*/
with

day_cuts as (
    select
        node,
        cut_no // 1000000000 as day_no,
        min(cut_no) as first_cut_no,
        max(cut_no) as last_cut_no
    from mempool_cuts
    group by node, cut_no // 1000000000
),

sampled as (
    select
        stay.stay_no,
        stay.node,
        stay.entered_at,
        stay.fee_sat,
        stay.vsize_vb,
        stay.mined_cut_no,
        stay.first_cut_no,
        stay.last_cut_no,
        unnest(
            range(
                stay.first_cut_no // 1000000000,
                least(stay.last_cut_no, (select max(mempool_cuts.cut_no) from mempool_cuts)) // 1000000000 + 1
            )
        ) as day_no
    from mempool_residence as stay
    cross join inclusion_thinning
    where
        stay.first_cut_no <= stay.last_cut_no
        and stay.first_seen_kind = 'pushed'
        and stay.fee_sat is not null
        and stay.vsize_vb > 0
        and is_in_sample(stay.txid, inclusion_thinning.sample_every)
),

-- The cuts of a node and day are numbered without a gap.
kept as (
    select
        sampled.*,
        unnest(
            range(
                greatest(sampled.first_cut_no, day_cuts.first_cut_no),
                least(sampled.last_cut_no, day_cuts.last_cut_no) + 1
            )
        ) as cut_no
    from sampled
    inner join day_cuts
        on sampled.node = day_cuts.node and sampled.day_no = day_cuts.day_no
),

pairs as (
    select
        kept.stay_no,
        kept.cut_no,
        kept.node,
        mempool_cuts.block_hash,
        coalesce(kept.mined_cut_no = kept.cut_no, false) as is_taken,
        kept.fee_sat / kept.vsize_vb as feerate_sat_vb,
        coalesce(mempool_packages.package_feerate_sat_vb, kept.fee_sat / kept.vsize_vb) as package_feerate_sat_vb,
        coalesce(mempool_clusters.cluster_feerate_sat_vb, kept.fee_sat / kept.vsize_vb) as cluster_feerate_sat_vb,
        seconds_between(kept.entered_at, mempool_cuts.connected_at) as waited_s,
        kept.vsize_vb
    from kept
    inner join mempool_cuts
        on kept.node = mempool_cuts.node and kept.cut_no = mempool_cuts.cut_no
    inner join block_mempool
        on kept.node = block_mempool.node and kept.cut_no = block_mempool.cut_no
    inner join chain_blocks
        on mempool_cuts.block_hash = chain_blocks.block_hash
    left join mempool_packages
        on
            kept.stay_no = mempool_packages.stay_no
            and kept.cut_no between mempool_packages.first_cut_no and mempool_packages.last_cut_no
    left join mempool_clusters
        on
            kept.stay_no = mempool_clusters.stay_no
            and kept.cut_no between mempool_clusters.first_cut_no and mempool_clusters.last_cut_no
    where block_mempool.node_no = 1 and chain_blocks.is_active and not chain_blocks.is_empty
),

-- rank() counts those below; cume_dist() those below or equal: their mean is the middle of the ties.
ranked as (
    select
        stay_no,
        cut_no,
        node,
        block_hash,
        is_taken,
        count(*) over (partition by node, cut_no) as n_pairs,
        rank() over by_feerate - 1 as n_below_feerate,
        cume_dist() over by_feerate as feerate_cume_ratio,
        rank() over by_package - 1 as n_below_package,
        cume_dist() over by_package as package_cume_ratio,
        rank() over by_cluster - 1 as n_below_cluster,
        cume_dist() over by_cluster as cluster_cume_ratio,
        rank() over by_waiting - 1 as n_below_waiting,
        cume_dist() over by_waiting as waiting_cume_ratio,
        rank() over by_size - 1 as n_below_size,
        cume_dist() over by_size as size_cume_ratio
    from pairs
    window
        by_feerate as (partition by node, cut_no order by feerate_sat_vb),
        by_package as (partition by node, cut_no order by package_feerate_sat_vb),
        by_cluster as (partition by node, cut_no order by cluster_feerate_sat_vb),
        by_waiting as (partition by node, cut_no order by waited_s),
        by_size as (partition by node, cut_no order by vsize_vb)
)

select
    ranked.stay_no,
    ranked.cut_no,
    ranked.node,
    ranked.block_hash,
    block_pool.height,
    block_pool.pool,
    ranked.is_taken,
    ranked.n_pairs,
    (ranked.n_below_feerate / ranked.n_pairs + ranked.feerate_cume_ratio) / 2 as feerate_rank_ratio,
    (ranked.n_below_package / ranked.n_pairs + ranked.package_cume_ratio) / 2 as package_rank_ratio,
    (ranked.n_below_cluster / ranked.n_pairs + ranked.cluster_cume_ratio) / 2 as cluster_rank_ratio,
    (ranked.n_below_waiting / ranked.n_pairs + ranked.waiting_cume_ratio) / 2 as waiting_rank_ratio,
    (ranked.n_below_size / ranked.n_pairs + ranked.size_cume_ratio) / 2 as size_rank_ratio
from ranked
inner join block_pool
    on ranked.block_hash = block_pool.block_hash
order by ranked.cut_no // 1000000000, ranked.stay_no, ranked.cut_no
