/*
summary = "Every how many-th stay in a mempool inclusion_sample keeps."
method = """
A block and each transaction that waited for it at one node are a pair. Where there are more than max_pairs pairs
(block_mempool), only every second, fourth, eighth, ... stay is kept, so that at most max_pairs pairs are left. A power
of two changes seldom, and only then is the whole sample drawn anew.
"""
grain = ["sample_every"]
[parameters]
max_pairs = {value = 1000000, doc = "most pairs that are kept, about"}
[columns]
sample_every = "BIGINT  a stay is kept where its stay_no is a multiple of this; 1 keeps all"
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
