/*
summary = "How far each block took the best-paying transactions of the mempool it found."
method = """
feerate_age_block at age 0: the mempool just before the block's C, for each node, including the block's own
transactions. That mart explains ranking, X and the kinds of feerate. Where several nodes know their mempool, one row
counts for the block (is_counted): that of the node that connected it first, among those that had something to rank. The
pool could not take what entered the mempools of the other nodes after that.
"""
grain = ["block_hash", "node", "feerate_kind"]
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
feerate_kind = "VARCHAR  plain, package or cluster"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
is_active = "BOOLEAN  on the active chain; false: stale"
x = "BIGINT  transactions of the block, coinbase excluded"
n_mempool = "BIGINT  transactions waiting"
n_ranked = "BIGINT  those of them with a known fee and size"
n_own = "BIGINT  transactions of the block that were waiting"
n_top = "BIGINT  the X best, or all ranked when there are fewer"
n_top_taken = "BIGINT  those of them that the block took"
n_tied = "BIGINT  transactions of the block that pay exactly what the last of the X best pays; they share the places left"
top_x_ratio = "DOUBLE  0..1, n_top_taken / n_top; null when there is nothing to take"
n_outside = "BIGINT  those ranked behind 2 X; null for an empty block"
n_outside_taken = "BIGINT  those of them that the block took; null for an empty block"
outside_2x_ratio = "DOUBLE  0..1, n_outside_taken / n_outside; null when there are none"
is_counted = "BOOLEAN  true for the one row per block and kind of feerate that counts; none counts where n_top is 0 at every node"
*/
select
    ranks.block_hash,
    ranks.node,
    ranks.feerate_kind,
    ranks.height,
    ranks.pool,
    ranks.is_active,
    ranks.x,
    block_mempool.n_mempool,
    ranks.n_ranked,
    block_mempool.n_own,
    ranks.n_top,
    ranks.n_top_taken,
    ranks.n_tied,
    ranks.top_x_ratio,
    ranks.n_outside,
    ranks.n_outside_taken,
    ranks.outside_2x_ratio,
    ranks.n_top > 0 and row_number() over of_block = 1 as is_counted
from feerate_age_block as ranks
inner join block_mempool
    on ranks.block_hash = block_mempool.block_hash and ranks.node = block_mempool.node
where ranks.age_s = 0
window
    of_block as (
        partition by ranks.block_hash, ranks.feerate_kind
        order by ranks.n_top = 0, block_mempool.node_no
    )
order by ranks.node, block_mempool.cut_no, ranks.feerate_kind
