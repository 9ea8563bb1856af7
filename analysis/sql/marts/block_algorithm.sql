/*
summary = "Which algorithm explains the order of each block: ancestor sets, chunks, data cost, plain, first come, or none."
method = """
Each algorithm gives the transactions keys, on this block alone (analysis/stats/block_algorithms.py). ancestor_sets: the
feerate by vsize at which each is taken when the best-paying transaction with its ancestors is always next (Bitcoin Core
before 31). chunks: the feerate by weight of its chunk (Core 31). data_cost: ancestor sets in which envelope bytes count
as whole vbytes (Bitcoin Knots, -datacarriercost=1). plain: own feerate, behind its parents. first_come: the earliest
entry into our mempools. Compared are neighbours in the block, and pairs half a block apart, each transaction in one of
these; members of one family are not compared. Error model: the higher key stands first, but for an error whose
probability is the same for all pairs of a kind in a block, and uniform from 0 to max_error_ratio beforehand; equal keys
say nothing. own: either stands first in every pair. A score is the natural logarithm of the likelihood against own.
Without times of entry first_come scores 0, like own. Where templates of ours are known and the block holds less than
min_template_ratio of the best of them (block_order), it was not chosen by feerate, however it is sorted: the four
algorithms by feerate then score no more than ln(wrong_template_ratio). Beforehand each of the six is as probable as any
other. A block leaves open the most probable ones that together have 95 %, and those that tie with the last of them.
Most small blocks leave several open, because their orders coincide. A node also counts sigops, and fees that its
operator changed, which show as errors. So does an area sorted by coin age (Knots, -blockprioritysize), and a block that
is one such area is an own order: no dataset has the ages of coins, and places that were sold look alike. Compared with
real nodes were ancestor sets and coin age (Bitcoin Knots 29). No node with a cluster mempool was at hand: chunks are
tested on blocks that an assembler of ours fills, which takes the best order always, and Core may stop before it.
"""
cost = """
Every block is walked through in Python, and the families in it are taken apart twice by the ancestor-set algorithm and
once into chunks: SQL has neither.
"""
grain = ["block_hash"]
late = {relation = "block_order", key = "block_hash", columns = ["pool"]}
[ranges]
by = "heights"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_transactions = "height >= getvariable('range_from') and height < getvariable('range_to')"
mempool_cuts = "block_hash in (select block_hash from chain_blocks)"
mempool_residence = "mined_cut_no in (select cut_no from mempool_cuts)"
block_order = "block_hash in (select block_hash from chain_blocks)"
[parameters]
max_error_ratio = {value = 0.25, doc = "pairs against an algorithm that may still follow it"}
min_template_ratio = {value = 0.5, doc = "part of a template that a choice by feerate must hold"}
wrong_template_ratio = {value = 0.01, doc = "chance that a choice by feerate holds less than that"}
[columns]
block_hash = "BLOB  header hash, internal byte order"
height = "INTEGER  height of the block; 0 is the genesis block"
pool = "VARCHAR  slug; 'unknown' when no rule matches"
n_near = "BIGINT  pairs of neighbours that are compared"
n_far = "BIGINT  pairs half a block apart that are compared"
n_telling = "BIGINT  pairs of neighbours on which the four algorithms by feerate disagree"
template_ratio = "DOUBLE  0..1, as in block_order; null without templates"
ancestor_sets_score = "DOUBLE  ln of the likelihood against own"
chunks_score = "DOUBLE  ln of the likelihood against own"
data_cost_score = "DOUBLE  ln of the likelihood against own"
plain_score = "DOUBLE  ln of the likelihood against own"
first_come_score = "DOUBLE  ln of the likelihood against own; 0 without times of entry"
left_open = "VARCHAR[]  most probable algorithms that together have 95 %, or all that tie with them"
algorithm = "VARCHAR  the only one left open, or cannot_tell"
*/
with

entered as (
    select
        mempool_cuts.block_hash,
        mempool_residence.txid,
        min(mempool_residence.entered_at) as entered_at
    from mempool_cuts
    inner join mempool_residence
        on mempool_cuts.node = mempool_residence.node and mempool_cuts.cut_no = mempool_residence.mined_cut_no
    where mempool_residence.first_seen_kind = 'pushed'
    group by mempool_cuts.block_hash, mempool_residence.txid
),

fitted as (
    select
        stg_transactions.block_hash,
        order_scores(
            list(stg_transactions.tx_index order by stg_transactions.tx_index),
            list(stg_transactions.fee_sat order by stg_transactions.tx_index),
            list(stg_transactions.vsize_vb order by stg_transactions.tx_index),
            list(
                coalesce(nullif(stg_transactions.weight_wu, 0), 4 * stg_transactions.vsize_vb)
                order by stg_transactions.tx_index
            ),
            list(coalesce(stg_transactions.envelope_bytes, 0) order by stg_transactions.tx_index),
            list(
                coalesce(stg_transactions.parents, cast([] as integer[])) order by stg_transactions.tx_index
            ),
            list(cast(epoch_us(entered.entered_at) as double) order by stg_transactions.tx_index),
            getvariable('max_error_ratio')
        ) as fit
    from stg_transactions
    inner join chain_blocks
        on stg_transactions.block_hash = chain_blocks.block_hash
    left join entered
        on stg_transactions.block_hash = entered.block_hash and stg_transactions.txid = entered.txid
    where
        not stg_transactions.is_coinbase
        and chain_blocks.is_active
        and stg_transactions.fee_sat is not null
        and stg_transactions.vsize_vb > 0
    group by stg_transactions.block_hash
),

-- What a choice by feerate can score at most.
bounded as (
    select
        block_order.block_hash,
        block_order.height,
        block_order.template_ratio,
        fitted.fit,
        case
            when block_order.template_ratio < getvariable('min_template_ratio')
                then ln(getvariable('wrong_template_ratio'))
            else cast('infinity' as double)
        end as most
    from fitted
    inner join block_order
        on fitted.block_hash = block_order.block_hash
),

scored as (
    select
        block_hash,
        height,
        fit.n_near,
        fit.n_far,
        fit.n_telling,
        template_ratio,
        least(fit.ancestor_sets, most) as ancestor_sets_score,
        least(fit.chunks, most) as chunks_score,
        least(fit.data_cost, most) as data_cost_score,
        least(fit.plain, most) as plain_score,
        fit.first_come as first_come_score
    from bounded
),

judged as (
    select
        *,
        orders_left_open(
            [ancestor_sets_score, chunks_score, data_cost_score, plain_score, first_come_score]
        ) as left_open
    from scored
)

select
    judged.block_hash,
    judged.height,
    block_order.pool,
    judged.n_near,
    judged.n_far,
    judged.n_telling,
    judged.template_ratio,
    judged.ancestor_sets_score,
    judged.chunks_score,
    judged.data_cost_score,
    judged.plain_score,
    judged.first_come_score,
    judged.left_open,
    case when len(judged.left_open) = 1 then judged.left_open[1] else 'cannot_tell' end as algorithm
from judged
inner join block_order
    on judged.block_hash = block_order.block_hash
order by judged.height, judged.block_hash
