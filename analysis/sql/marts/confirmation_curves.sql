/*
summary = "How long users wait, by feerate decile: survival and incidence curves, each decile in one row."
method = """
competing_risks of analysis/stats/survival.py on the counts of confirmation_cells. It gives, at the times of
`delay_grid_s`, the Kaplan-Meier curve of not being mined yet, and the cumulative incidences of being mined, replaced,
expired or gone for another reason. Transactions that entered between the same two blocks share their fate, so the
intervals treat batches of consecutive block intervals as independent, not single transactions. There are `max_batches`
batches of about equally many block intervals, or one per block interval where these are fewer. This is the method of
batch means, because one interval influences the next ones (C. Alexopoulos and A. F. Seila, 1998, "Output data
analysis", in Handbook of Simulation). confirmation_delay has a row per time, confirmation_decile has the sums.
"""
grain = ["decile"]
[parameters]
delay_grid_s = {value = "0 1 2 5 10 30 60 120 300 600 1200 1800 3600 7200 14400 43200 86400 259200 604800 1209600", doc = "s after entry"}
max_batches = {value = 30, doc = "batches of block intervals, of which variances are computed"}
[columns]
decile = "BIGINT  1 pays least, 10 most; 0 for all, those of unknown feerate included"
curves = "STRUCT(at_s DOUBLE[], n_at_risk DOUBLE[], waiting DOUBLE[], waiting_low DOUBLE[], waiting_high DOUBLE[], mined DOUBLE[], mined_low DOUBLE[], mined_high DOUBLE[], replaced DOUBLE[], replaced_low DOUBLE[], replaced_high DOUBLE[], expired DOUBLE[], expired_low DOUBLE[], expired_high DOUBLE[], other DOUBLE[], half_mined_s DOUBLE)  curves at the times of the grid, as lists of equal length"
*/
with

cells as (
    select
        0 as decile,
        wait_no,
        outcome,
        delay_s,
        n_spells
    from confirmation_cells
    union all
    select
        decile,
        wait_no,
        outcome,
        delay_s,
        n_spells
    from confirmation_cells
    where decile > 0
),

waits as (
    select distinct
        decile,
        wait_no
    from cells
),

batches as (
    select
        decile,
        wait_no,
        (row_number() over (partition by decile order by wait_no = 0, wait_no) - 1)
        * least(count(*) over (partition by decile), getvariable('max_batches'))
        // count(*) over (partition by decile) as batch
    from waits
),

counts as (
    select
        cells.decile,
        batches.batch,
        cells.delay_s,
        coalesce(list_position(['mined', 'replaced', 'expired', 'other'], cells.outcome), 0) as cause,
        cast(sum(cells.n_spells) as bigint) as n_spells
    from cells
    inner join batches
        on cells.decile = batches.decile and cells.wait_no = batches.wait_no
    group by all
)

select
    decile,
    competing_risks(
        list(struct_pack(delay_s := delay_s, cause := cause, batch := batch, n_spells := n_spells)),
        cast(string_split(any_value(getvariable('delay_grid_s')), ' ') as double[])
    ) as curves
from counts
group by decile
order by decile
