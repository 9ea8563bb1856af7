/*
summary = "Price of one bitcoin in USD, day by day, from the imported sources."
method = """
The close of the day, in USD; where several sources have the day, the median of theirs. Prices are imported
(pool-collector import) and their sources are in stg_external_sources; no other source of prices is used.
"""
grain = ["day"]
[columns]
day = "DATE  UTC day"
price_usd = "DOUBLE  USD per bitcoin"
n_sources = "BIGINT  sources with a price of the day"
*/
select
    cast(day_at as date) as day,
    median(close) as price_usd,
    count(distinct source) as n_sources
from stg_external_prices
where currency = 'USD' and close > 0
group by cast(day_at as date)
order by day
