/*
summary = "Counts of equal waits: by day, feerate decile, block interval of entry, end and delay."
method = """
The counted spells of confirmation_spells, with delays rounded up: to two digits, but never past a time of `delay_grid_s`.
So a delay is at most 10 % too long (0.1 s below 1 s), and at the times of the grid the counts are exact. Curves over any
length of history are made of these counts.
"""
grain = ["day", "decile", "wait_no", "outcome", "delay_s"]
[ranges]
by = "mempool_days"
[ranges.reads]
confirmation_spells = "stay_no >= getvariable('range_from') and stay_no < getvariable('range_to')"
[parameters]
delay_grid_s = {value = "0 1 2 5 10 30 60 120 300 600 1200 1800 3600 7200 14400 43200 86400 259200 604800 1209600", doc = "s after entry"}
[columns]
day = "DATE  UTC day of entry"
decile = "BIGINT  1 pays least, 10 most; 0 where the feerate is not known"
wait_no = "BIGINT  block interval of entry, the same number at every node: wait_no of confirmation_spells"
outcome = "VARCHAR  mined, replaced, expired, other or censored"
delay_s = "DOUBLE  s from entry to the end, or to the end of observation; rounded up"
n_spells = "BIGINT  spells that are alike in all this"
*/
with

grid as (
    select 1000000 * unnest(cast(string_split(getvariable('delay_grid_s'), ' ') as bigint[])) as at_us
),

waited as (
    select
        day,
        coalesce(decile, 0) as decile,
        wait_no,
        outcome,
        cast(round(delay_s * 1000000) as bigint) as delay_us
    from confirmation_spells
    where is_counted
),

spells as (
    select
        waited.*,
        grid.at_us,
        case
            when waited.delay_us <= 10000000 then 100000
            when waited.delay_us <= 100000000 then 1000000
            when waited.delay_us <= 1000000000 then 10000000
            when waited.delay_us <= 10000000000 then 100000000
            when waited.delay_us <= 100000000000 then 1000000000
            else 10000000000
        end as step_us
    from waited
    asof left join grid
        on waited.delay_us <= grid.at_us
)

select
    day,
    decile,
    wait_no,
    outcome,
    least((delay_us + step_us - 1) // step_us * step_us, coalesce(at_us, 9000000000000000000)) / 1e6 as delay_s,
    count(*) as n_spells
from spells
group by all
order by day, decile, wait_no, outcome, delay_s
