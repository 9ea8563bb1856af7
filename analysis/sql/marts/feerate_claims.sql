/*
summary = "What arXiv:1902.07549 says about feerates, compared with what was measured here, for each template age."
method = """
The paper says that about 90 % of the top X and less than 5 % of those outside the top 2 X are accepted. The ratio of
all blocks in feerate_age stands beside it. The verdict on `top_x` is agrees when the paper's value lies inside our 95 %
interval, else it is above or below (ours). On `outside_2x` it is agrees when our whole interval is below the paper's
value, above when all of it is not, else open. Without an interval the verdict is not enough data. Where every block has
the ratio 0, or every block 1, no spread shows how far it is by chance, and the interval is as wide as if each block
took all or nothing. Then the verdict is by Wilson's interval of the transactions, which is the narrowest that the data
allow, or else a perfect result would say less than a worse one. The paper takes the mempool at the block's arrival and
plain feerates, which is age 0 and `plain`; the other rows show how much depends on that choice.
"""
grain = ["claim", "feerate_kind", "age_s"]
[parameters]
paper_top_x = {value = 0.9, doc = "accepted of the top X, arXiv:1902.07549, section on feerate strategies"}
paper_outside_2x = {value = 0.05, doc = "accepted outside the top 2 X, the same"}
[columns]
claim = "VARCHAR  top_x or outside_2x"
feerate_kind = "VARCHAR  how waiting transactions are ranked"
age_s = "DOUBLE  s before the block at which the mempool is taken"
n_blocks = "BIGINT  blocks measured"
paper_ratio = "DOUBLE  0..1, what the paper says"
measured_ratio = "DOUBLE  0..1, what was measured; null when there is nothing"
measured_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
measured_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
verdict = "VARCHAR  agrees, above, below, open or not enough data"
*/
with

claims as (
    select
        'top_x' as claim,
        feerate_kind,
        age_s,
        n_blocks,
        cast(getvariable('paper_top_x') as double) as paper_ratio,
        n_top as n_offered,
        n_top_taken as n_taken,
        top_x_ratio as measured_ratio,
        top_x_low_ratio as measured_low_ratio,
        top_x_high_ratio as measured_high_ratio
    from feerate_age
    where pool = 'all'
    union all
    select
        'outside_2x' as claim,
        feerate_kind,
        age_s,
        n_blocks,
        cast(getvariable('paper_outside_2x') as double) as paper_ratio,
        n_outside as n_offered,
        n_outside_taken as n_taken,
        outside_2x_ratio as measured_ratio,
        outside_2x_low_ratio as measured_low_ratio,
        outside_2x_high_ratio as measured_high_ratio
    from feerate_age
    where pool = 'all'
),

judged as (
    select
        *,
        if(is_extreme, transactions.low, measured_low_ratio) as judged_low_ratio,
        if(is_extreme, transactions.high, measured_high_ratio) as judged_high_ratio
    from (
        select
            *,
            n_taken in (0, n_offered) as is_extreme,
            wilson_interval(n_taken, n_offered) as transactions
        from claims
    ) as bounded
)

select
    claim,
    feerate_kind,
    age_s,
    n_blocks,
    paper_ratio,
    measured_ratio,
    measured_low_ratio,
    measured_high_ratio,
    case
        when measured_low_ratio is null or measured_high_ratio is null then 'not enough data'
        when claim = 'top_x' and judged_low_ratio > paper_ratio then 'above'
        when claim = 'top_x' and judged_high_ratio < paper_ratio then 'below'
        when claim = 'top_x' then 'agrees'
        when judged_high_ratio < paper_ratio then 'agrees'
        when judged_low_ratio >= paper_ratio then 'above'
        else 'open'
    end as verdict
from judged
order by claim desc, feerate_kind, age_s
