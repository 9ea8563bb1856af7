/*
summary = "The model of what all blocks together take, whoever mined them."
method = """
inclusion_model of analysis/stats/inclusion_model.py on the whole of inclusion_sample: a logistic regression of `taken`
on package feerate, waiting time and size together. inclusion_factors shows it beside those of the pools. It has a mart
of its own since it names no pool, so a changed pool rule leaves it as it is.
"""
cost = """
SciPy fits a logistic regression by iteration. The sample has at most about a million pairs, so this does not grow with
the dataset.
"""
grain = ["factor"]
[columns]
factor = "VARCHAR  package, waiting or size"
coefficient = "DOUBLE  log odds, highest against lowest rank; null without enough data"
coefficient_low = "DOUBLE  lower bound of the 95 % interval"
coefficient_high = "DOUBLE  upper bound of the 95 % interval"
*/
with

fits as (
    select
        inclusion_model_of(
            inclusion_pairs(
                is_taken, height, package_rank_ratio, waiting_rank_ratio, size_rank_ratio, stay_no, cut_no
            )
        ) as model
    from inclusion_sample
    having count(*) > 0
),

terms as (
    select
        unnest(
            [
                struct_pack(
                    factor := 'package',
                    middle := model.package, low := model.package_low, high := model.package_high
                ),
                struct_pack(
                    factor := 'waiting',
                    middle := model.waiting, low := model.waiting_low, high := model.waiting_high
                ),
                struct_pack(
                    factor := 'size',
                    middle := model.size, low := model.size_low, high := model.size_high
                )
            ]
        ) as term
    from fits
)

select
    term.factor,
    term.middle as coefficient,
    term.low as coefficient_low,
    term.high as coefficient_high
from terms
order by term.factor
