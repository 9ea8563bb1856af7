/*
summary = "How long users wait, by feerate decile: survival and incidence curves, each decile in one row."
method = """
competing_risks of analysis/stats/survival.py on the counted spells of confirmation_spells. It gives, at the times of
`delay_grid_s`, the Kaplan-Meier curve of not being mined yet, and the cumulative incidences of being mined, replaced,
expired or gone for another reason. Transactions that entered between the same two blocks share their fate, so the
intervals treat batches of consecutive block intervals, not single transactions, as independent. confirmation_delay
has a row per time, confirmation_decile has the sums.
"""
cost = """
All spells go to NumPy as lists, decile by decile and once more all together. They are sorted by delay, and each list
gives four curves with intervals.
"""
grain = ["decile"]
[parameters]
delay_grid_s = {value = "0 1 2 5 10 30 60 120 300 600 1200 1800 3600 7200 14400 43200 86400 259200 604800 1209600", doc = "s after entry"}
[columns]
decile = "BIGINT  1 pays least, 10 most; 0 for all, those of unknown feerate included"
curves = "STRUCT(at_s DOUBLE[], n_at_risk DOUBLE[], waiting DOUBLE[], waiting_low DOUBLE[], waiting_high DOUBLE[], mined DOUBLE[], mined_low DOUBLE[], mined_high DOUBLE[], replaced DOUBLE[], replaced_low DOUBLE[], replaced_high DOUBLE[], expired DOUBLE[], expired_low DOUBLE[], expired_high DOUBLE[], other DOUBLE[], half_mined_s DOUBLE)  curves at the times of the grid, as lists of equal length"
*/
with

spells as (
    select
        unnest(if(decile is null, [0], [0, decile])) as decile,
        struct_pack(
            delay_s := delay_s,
            cause := coalesce(list_position(['mined', 'replaced', 'expired', 'other'], outcome), 0),
            wait_no := wait_no
        ) as spell
    from confirmation_spells
    where is_counted
)

select
    decile,
    competing_risks(
        list(spell),
        cast(string_split(any_value(getvariable('delay_grid_s')), ' ') as double[])
    ) as curves
from spells
group by decile
order by decile
