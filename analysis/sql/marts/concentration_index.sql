/*
summary = "HHI, Nakamoto coefficient, Gini and entropy per day, difficulty epoch and over all, with intervals and bounds for unknown blocks."
method = """
The indices (analysis/stats/concentration.py) describe the blocks that have a name. The 95 % interval is a bootstrap
over blocks: 999 seeded multinomial draws, with quantiles moved by their bias; the interval of nakamoto is where the
intervals of the top n reach one half. The interval says how well this many blocks show the shares behind them; it is
null for fewer than two owners. Owners without a block in the period are missing: gini is that of the owners seen, and
over few blocks entropy is too low. Unknown blocks give bounds instead of a pool: *_if_apart counts each as a miner of
its own, *_if_largest gives all of them to the largest owner. For hhi, nakamoto and entropy_bits these two bounds hold
for every possible owner of the unknown blocks. Gini can leave that range, so it has bounds of its own, gini_least and
gini_most. A period without a named block has these bounds and nulls; a period without blocks has no row. The draws take
about 3 ms per period and grouping, which is nearly all of this mart's time.
"""
grain = ["grouped_by", "period_kind", "period"]
[columns]
grouped_by = "VARCHAR  pool, owner or proxy, as in block_owner"
period_kind = "VARCHAR  day, epoch or all"
period = "VARCHAR  UTC day of the header time, number of the difficulty epoch, or all"
first_height = "INTEGER  first of the blocks that count in the period"
block_count = "BIGINT  blocks on the active chain"
unknown_block_count = "BIGINT  blocks whose pool no rule names"
n_owners = "BIGINT  owners with at least one block, unknown not counted"
hhi = "DOUBLE  Herfindahl-Hirschman index, 1 / n_owners to 1, of the named blocks"
hhi_low = "DOUBLE  lower bound of the 95 % interval; may be below 1 / n_owners, as there may be owners without a block here"
hhi_high = "DOUBLE  upper bound of the 95 % interval"
hhi_if_apart = "DOUBLE  the same over all blocks, if each unknown one is from a miner of its own"
hhi_if_largest = "DOUBLE  the same over all blocks, if every unknown one is from the largest owner"
nakamoto = "DOUBLE  fewest owners that together have more than half of the named blocks"
nakamoto_low = "DOUBLE  lower bound of the 95 % interval"
nakamoto_high = "DOUBLE  upper bound of the 95 % interval"
nakamoto_if_apart = "DOUBLE  the same over all blocks, if each unknown one is from a miner of its own"
nakamoto_if_largest = "DOUBLE  the same over all blocks, if every unknown one is from the largest owner"
gini = "DOUBLE  Gini index of the named blocks; 0: all owners have equally many"
gini_low = "DOUBLE  lower bound of the 95 % interval"
gini_high = "DOUBLE  upper bound of the 95 % interval"
gini_if_apart = "DOUBLE  the same over all blocks, if each unknown one is from a miner of its own"
gini_if_largest = "DOUBLE  the same over all blocks, if every unknown one is from the largest owner"
gini_least = "DOUBLE  least Gini index of all blocks over every way to give out the unknown ones"
gini_most = "DOUBLE  largest Gini index of all blocks over every way to give out the unknown ones"
entropy_bits = "DOUBLE  Shannon entropy of the shares, base 2, of the named blocks"
entropy_bits_low = "DOUBLE  lower bound of the 95 % interval"
entropy_bits_high = "DOUBLE  upper bound of the 95 % interval"
entropy_bits_if_apart = "DOUBLE  the same over all blocks, if each unknown one is from a miner of its own"
entropy_bits_if_largest = "DOUBLE  the same over all blocks, if every unknown one is from the largest owner"
told_by = "VARCHAR[]  sources of these blocks, each once: observed, backfilled, or names of imported sources"
*/
with

counts as (
    select
        grouped_by,
        period_kind,
        period,
        first_height,
        cast(sum(block_count) as bigint) as block_count,
        cast(coalesce(sum(block_count) filter (where is_unknown), 0) as bigint) as unknown_block_count,
        sources_of(flatten(list(told_by))) as told_by,
        count(*) filter (where not is_unknown) as n_owners,
        coalesce(list(block_count order by position) filter (where not is_unknown), []) as owner_counts
    from owner_share
    group by grouped_by, period_kind, period, first_height
),

indices as (
    select
        *,
        concentration(owner_counts) as named,
        concentration_intervals(owner_counts) as bounds,
        concentration(
            list_concat(owner_counts, list_transform(range(unknown_block_count), lambda i: cast(1 as bigint)))
        ) as apart,
        concentration(
            list_concat([coalesce(owner_counts[1], 0) + unknown_block_count], owner_counts[2:])
        ) as largest,
        gini_range(owner_counts, unknown_block_count) as gini_bounds
    from counts
)

select
    grouped_by,
    period_kind,
    period,
    first_height,
    block_count,
    unknown_block_count,
    n_owners,
    named.hhi,
    bounds.hhi_low,
    bounds.hhi_high,
    apart.hhi as hhi_if_apart,
    largest.hhi as hhi_if_largest,
    named.nakamoto,
    bounds.nakamoto_low,
    bounds.nakamoto_high,
    apart.nakamoto as nakamoto_if_apart,
    largest.nakamoto as nakamoto_if_largest,
    named.gini,
    bounds.gini_low,
    bounds.gini_high,
    apart.gini as gini_if_apart,
    largest.gini as gini_if_largest,
    gini_bounds.low as gini_least,
    gini_bounds.high as gini_most,
    named.entropy_bits,
    bounds.entropy_bits_low,
    bounds.entropy_bits_high,
    apart.entropy_bits as entropy_bits_if_apart,
    largest.entropy_bits as entropy_bits_if_largest,
    told_by
from indices
order by grouped_by, period_kind, first_height
