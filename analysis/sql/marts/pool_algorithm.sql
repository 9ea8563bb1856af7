/*
summary = "Which algorithm each pool builds its blocks with, how sure that is, and from which height on."
method = """
The blocks of each pool in block_algorithm, in order of height, are cut into segments in which the pool follows one
algorithm (analysis/stats/algorithm_posterior.py). Model: each block is a stray one with the probability stray_ratio,
which makes any algorithm as probable as any other, so no single block decides; after each block the pool changes its
algorithm with the probability change_ratio; beforehand the five algorithms and `own` are equally probable. The segments
are the most probable ones (Viterbi). The probabilities of a segment follow from its blocks alone. A segment leaves open
the most probable algorithms that together have 95 %, and those that tie with the last of them. `own` is the class where
none of the five explains the order. Where two give the same order in every block, both stay open, however many blocks
there are: ancestor_sets and data_cost without envelopes, first_come and own without times of entry. A pool whose blocks
come from several makers follows no one algorithm: it is `mixed` where, whichever order of left_open it follows, the part
of its blocks that exclude this order is above stray_ratio with its whole interval (Wilson). The probabilities hold under
this model alone: other software may give the same order as an algorithm in the list. 'unknown' is not one pool.
"""
grain = ["pool", "segment"]
[parameters]
stray_ratio = {value = 0.1, doc = "part of the blocks that may be of another make than the pool's own"}
change_ratio = {value = 0.001, doc = "chance that a pool changes its algorithm after a block"}
[columns]
pool = "VARCHAR  slug; 'unknown' when no rule matches"
pool_name = "VARCHAR  name of the pool"
segment = "BIGINT  1, 2, ... in order of height; a pool with one segment has no change"
first_height_low = "INTEGER  lower bound of the 95 % interval of first_height; null for the first segment"
first_height = "INTEGER  height of the first block of the segment"
first_height_high = "INTEGER  upper bound of that interval"
last_height = "INTEGER  height of its last block"
n_blocks = "BIGINT  blocks of the segment"
n_telling = "BIGINT  blocks that exclude at least one of the six"
n_against = "BIGINT  blocks that exclude the one in left_open which fewest exclude"
ancestor_sets_probability = "DOUBLE  0..1, of ancestor_sets"
chunks_probability = "DOUBLE  0..1, of chunks"
data_cost_probability = "DOUBLE  0..1, of data_cost"
plain_probability = "DOUBLE  0..1, of plain"
first_come_probability = "DOUBLE  0..1, of first_come"
own_probability = "DOUBLE  0..1, of own: none of the five"
left_open = "VARCHAR[]  most probable algorithms that together have 95 %, or all that tie with them"
algorithm = "VARCHAR  the only one left open; mixed, or cannot_tell"
is_latest = "BOOLEAN  true for the last segment of the pool"
*/
with

pieces as (
    select
        pool,
        list(height order by height) as heights,
        list(if(len(left_open) < 6, 1, 0) order by height) as tell,
        unnest(
            order_segments(
                list(
                    [ancestor_sets_score, chunks_score, data_cost_score, plain_score, first_come_score]
                    order by height
                ),
                getvariable('stray_ratio'),
                getvariable('change_ratio')
            )
        ) as piece
    from block_algorithm
    group by pool
),

counted as (
    select
        *,
        piece.last_no - piece.first_no + 1 as n_blocks,
        row_number() over (partition by pool order by piece.first_no) as segment,
        wilson_interval(piece.n_against, piece.last_no - piece.first_no + 1) as against_interval
    from pieces
)

select
    counted.pool,
    coalesce(pools.name, counted.pool) as pool_name,
    counted.segment,
    counted.heights[counted.piece.first_low_no] as first_height_low,
    counted.heights[counted.piece.first_no] as first_height,
    counted.heights[counted.piece.first_high_no] as first_height_high,
    counted.heights[counted.piece.last_no] as last_height,
    counted.n_blocks,
    cast(
        list_sum(counted.tell[counted.piece.first_no:counted.piece.last_no]) as bigint
    ) as n_telling,
    counted.piece.n_against,
    counted.piece.ancestor_sets as ancestor_sets_probability,
    counted.piece.chunks as chunks_probability,
    counted.piece.data_cost as data_cost_probability,
    counted.piece.plain as plain_probability,
    counted.piece.first_come as first_come_probability,
    counted.piece.own as own_probability,
    counted.piece.left_open,
    case
        when counted.against_interval.low > getvariable('stray_ratio') then 'mixed'
        when len(counted.piece.left_open) = 1 then counted.piece.left_open[1]
        else 'cannot_tell'
    end as algorithm,
    counted.piece.last_no = len(counted.heights) as is_latest
from counted
left join pools
    on counted.pool = pools.slug
order by counted.pool, counted.segment
