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

waits as (
    select distinct
        decile,
        wait_no
    from confirmation_cells
),

waits_of_all as (
    select distinct
        0 as decile,
        wait_no
    from waits
    union all
    select
        decile,
        wait_no
    from waits
    where decile > 0
),

batches as (
    select
        decile,
        wait_no,
        batch_of(
            row_number() over (partition by decile order by wait_no = 0, wait_no),
            count(*) over (partition by decile),
            getvariable('max_batches')
        ) as batch
    from waits_of_all
),

-- The batches of a decile and those of all cells have other bounds; the many cells are summed once for both.
placed as (
    select
        cells.decile,
        own.batch,
        every.batch as batch_of_all,
        cells.outcome,
        cells.delay_s,
        sum(cells.n_spells) as n_spells
    from confirmation_cells as cells
    inner join batches as every
        on every.decile = 0 and cells.wait_no = every.wait_no
    left join batches as own
        on own.decile > 0 and cells.decile = own.decile and cells.wait_no = own.wait_no
    group by all
),

of_deciles as (
    select
        0 as decile,
        batch_of_all as batch,
        outcome,
        delay_s,
        n_spells
    from placed
    union all
    select
        decile,
        batch,
        outcome,
        delay_s,
        n_spells
    from placed
    where decile > 0
),

counts as (
    select
        decile,
        batch,
        delay_s,
        coalesce(list_position(['mined', 'replaced', 'expired', 'other'], outcome), 0) as cause,
        cast(sum(n_spells) as bigint) as n_spells
    from of_deciles
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
