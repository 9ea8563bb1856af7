/*
summary = "The feerates of each decile on each day."
method = """
Of the counted spells of confirmation_spells. Deciles are made anew for each day, so their feerates are those of a day.
"""
grain = ["day", "decile"]
[ranges]
by = "mempool_days"
[ranges.reads]
confirmation_spells = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
[columns]
day = "DATE  UTC day of entry"
decile = "BIGINT  1 pays least, 10 most; 0 for all whose feerate is known"
n_spells = "BIGINT  spells of known feerate"
low_sat_vb = "DOUBLE  sat/vB, lowest"
median_sat_vb = "DOUBLE  sat/vB, median"
high_sat_vb = "DOUBLE  sat/vB, highest"
*/
with

spells as (
    select
        day,
        unnest([0, decile]) as decile,
        feerate_sat_vb
    from confirmation_spells
    where is_counted and decile is not null
)

select
    day,
    decile,
    count(*) as n_spells,
    min(feerate_sat_vb) as low_sat_vb,
    median(feerate_sat_vb) as median_sat_vb,
    max(feerate_sat_vb) as high_sat_vb
from spells
group by day, decile
order by day, decile
