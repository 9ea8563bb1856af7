/*
summary = "Transactions for whose place somebody was paid, as others say."
grain = ["source", "txid", "seller"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
txid = "BLOB  Transaction id, internal byte order"
seller = "VARCHAR  The pool or service that was paid, as the source writes it"
imported_at = "TIMESTAMP WITH TIME ZONE  Our clock"
*/
select
    source,
    txid,
    seller,
    imported_at
from external_accelerated
