/*
summary = "Transactions of a block that pay far less than transactions the block left out, as if paid for elsewhere."
method = """
Only blocks of pools that order by feerate (pool_ordering) are judged: where a pool chooses by something else, a low
feerate means nothing, and that finding takes the place of candidates. More of the block must be in feerate order than
chance explains, 2 sqrt(n) of n feerates, or 2.5 sqrt(n) where it fits first come (block_order). That less than half of
it is in order is no reason to leave it out: that is what a block looks like in which most places were sold, and those
sold first in order of their arrival look like first come. There are two yardsticks, and the lower one counts. The first
is the part of the newest template of the node on the block's parent (template_audit_block) that weighs no more than the
block: the margin_quantile of the own feerates of its transactions, which lies above the cheap parents that rich
children pull in. The second is the block's own (own_margin_sat_vb of block_order), so that neither an old template nor
a pool that refuses some transactions makes candidates. Where much of a block was sold and put last, its own yardstick
falls to that, which is then not found. A transaction of the block is a candidate when its package
feerate is below low_factor * margin_sat_vb (low_paying) and the block lacks promised transactions that were not in
conflict, so that somebody else lost the room. `prioritised` transactions were in our mempool; their package feerate is
that at the block (mempool_packages), or the effective one within the block (stg_transactions) where that is higher.
`unseen` ones were not there, like those that pools receive directly or that pay too little to be relayed; theirs is
the effective feerate alone. A block whose transactions weigh more than the template has no candidate: everybody found
room. A candidate is a suspicion and no finding. A pool's own payments, a promise kept for free and a fee paid elsewhere
look the same.
"""
grain = ["block_hash", "node", "txid"]
[ranges]
by = "heights"
needs = "low_paying"
[ranges.reads]
low_paying = "height >= getvariable('range_from') and height < getvariable('range_to')"
ahead_of_feerate = "height >= getvariable('range_from') and height < getvariable('range_to')"
pool_ordering = "verdict = 'feerate'"
[columns]
block_hash = "BLOB  header hash, internal byte order"
node = "VARCHAR  name of the watched node"
txid = "BLOB  transaction id, internal byte order"
kind = "VARCHAR  prioritised: was in our mempool until this block, or one that was left, took it; unseen: was not"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
fee_sat = "BIGINT  fee of the transaction"
vsize_vb = "BIGINT  virtual size of the transaction"
package_feerate_sat_vb = "DOUBLE  sat/vB, feerate together with the descendants that pay for it"
margin_sat_vb = "DOUBLE  sat/vB, feerate that a stock node, or the block's own order, would have required; the lower"
waited_s = "DOUBLE  s in our mempool before the block, or the one that was left; null when its entry was not pushed"
sppe_ratio = "DOUBLE  0..1, how far ahead of its feerate it stands; null where ahead_of_feerate does not list it"
*/
select
    low_paying.block_hash,
    low_paying.node,
    low_paying.txid,
    low_paying.kind,
    low_paying.height,
    low_paying.pool,
    low_paying.fee_sat,
    low_paying.vsize_vb,
    low_paying.package_feerate_sat_vb,
    low_paying.margin_sat_vb,
    low_paying.waited_s,
    ahead_of_feerate.sppe_ratio
from low_paying
inner join pool_ordering
    on low_paying.pool = pool_ordering.pool
left join ahead_of_feerate
    on low_paying.block_hash = ahead_of_feerate.block_hash and low_paying.txid = ahead_of_feerate.txid
where pool_ordering.verdict = 'feerate'
order by
    low_paying.height, low_paying.block_hash, low_paying.node, low_paying.package_feerate_sat_vb, low_paying.txid
