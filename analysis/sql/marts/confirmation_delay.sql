/*
summary = "How many transactions still wait, are mined, replaced or expired, by feerate decile and time."
method = """
The curves of confirmation_curves, with a row per time. waiting_ratio is the Kaplan-Meier estimate of not being mined
yet if nothing else could happen. mined_ratio, replaced_ratio, expired_ratio and other_ratio are cumulative incidences
(Aalen-Johansen) of what does happen; with those that still wait they add up to 1. A value is null where no
transaction was observed for so long. Intervals are null for entries in fewer than 5 block intervals.
"""
grain = ["decile", "at_s"]
[columns]
decile = "BIGINT  1 pays least, 10 most; 0 for all"
at_s = "DOUBLE  s after entry"
n_at_risk = "BIGINT  spells that lasted at least so long"
waiting_ratio = "DOUBLE  0..1, not mined yet, where other ends count as censored"
waiting_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
waiting_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
mined_ratio = "DOUBLE  0..1, mined by then"
mined_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
mined_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
replaced_ratio = "DOUBLE  0..1, replaced by then, conflicts included"
replaced_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
replaced_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
expired_ratio = "DOUBLE  0..1, expired or evicted by then"
expired_low_ratio = "DOUBLE  0..1, lower bound of the 95 % interval"
expired_high_ratio = "DOUBLE  0..1, upper bound of the 95 % interval"
other_ratio = "DOUBLE  0..1, gone for another reason by then"
*/
with

rows as (
    select
        decile,
        unnest(curves.at_s) as at_s,
        unnest(curves.n_at_risk) as n_at_risk,
        unnest(curves.waiting) as waiting_ratio,
        unnest(curves.waiting_low) as waiting_low_ratio,
        unnest(curves.waiting_high) as waiting_high_ratio,
        unnest(curves.mined) as mined_ratio,
        unnest(curves.mined_low) as mined_low_ratio,
        unnest(curves.mined_high) as mined_high_ratio,
        unnest(curves.replaced) as replaced_ratio,
        unnest(curves.replaced_low) as replaced_low_ratio,
        unnest(curves.replaced_high) as replaced_high_ratio,
        unnest(curves.expired) as expired_ratio,
        unnest(curves.expired_low) as expired_low_ratio,
        unnest(curves.expired_high) as expired_high_ratio,
        unnest(curves.other) as other_ratio
    from confirmation_curves
)

select
    decile,
    at_s,
    cast(n_at_risk as bigint) as n_at_risk,
    waiting_ratio,
    waiting_low_ratio,
    waiting_high_ratio,
    mined_ratio,
    mined_low_ratio,
    mined_high_ratio,
    replaced_ratio,
    replaced_low_ratio,
    replaced_high_ratio,
    expired_ratio,
    expired_low_ratio,
    expired_high_ratio,
    other_ratio
from rows
order by decile, at_s
