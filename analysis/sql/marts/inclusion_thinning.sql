/*
summary = "Of how many transactions inclusion_sample keeps one."
method = """
A block and each transaction that waited for it at one node are a pair. Where there are more than max_pairs pairs
(block_mempool), about one transaction in 2, 4, 8, ... is kept, so that about max_pairs pairs are left at most. A power
of two changes seldom, and a higher one keeps a part of what a lower one kept.
"""
grain = ["sample_every"]
[parameters]
max_pairs = {value = 1000000, doc = "most pairs that are kept, about"}
[columns]
sample_every = "BIGINT  a transaction is kept where its txid is in the lowest part in this many of all txids; 1 keeps all"
*/
with

pairs as (
    select coalesce(sum(n_mempool), 0) as n_pairs
    from block_mempool
    where node_no = 1
),

steps as (
    select cast(pow(2, unnest(range(0, 40))) as bigint) as sample_every
)

select min(steps.sample_every) as sample_every
from steps
cross join pairs
where pairs.n_pairs <= steps.sample_every * getvariable('max_pairs')
