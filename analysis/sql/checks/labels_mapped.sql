/*
summary = "Names of pools in imported labels that are none of our names. `pool-analysis show unmapped_label` lists them; an alias in data/pools maps one."
severity = "warn"
[needs]
stg_external_sources = "nothing was imported"
*/
select *
from unmapped_label
