/*
summary = "Hashrate of a pool on a day, as others estimate it."
grain = ["source", "label", "day_at"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
label = "VARCHAR  The source's name of the pool, as it writes it"
day_at = "TIMESTAMP WITH TIME ZONE  Begin of the day, UTC"
hashrate_hashes_per_s = "DOUBLE  Hashes per second"
imported_at = "TIMESTAMP WITH TIME ZONE  Our clock"
*/
select
    source,
    label,
    day_at,
    hashrate_hashes_per_s,
    imported_at
from external_pool_hashrate
