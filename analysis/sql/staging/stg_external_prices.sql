/*
summary = "Price of one coin, day by day."
grain = ["source", "currency", "day_at"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
currency = "VARCHAR  ISO 4217 code of what the price is in"
day_at = "TIMESTAMP WITH TIME ZONE  Begin of the day, UTC"
open = "DOUBLE  Price at its begin"
high = "DOUBLE  Highest price"
low = "DOUBLE  Lowest price"
close = "DOUBLE  Price at its end, or the one price that the source gives"
imported_at = "TIMESTAMP WITH TIME ZONE  Our clock"
*/
select
    source,
    currency,
    day_at,
    open,
    high,
    low,
    close,
    imported_at
from external_prices
