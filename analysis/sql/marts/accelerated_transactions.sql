/*
summary = "Transactions in blocks for which, as imported lists say, somebody paid to have them mined sooner."
method = """
Rows of transactions whose txid a list has (pool-collector import accelerated), in blocks of the active chain and in stale
ones. A list that names several sellers of a transaction has one row of it per block.
"""
grain = ["source", "block_hash", "txid"]
[ranges]
by = "heights"
needs = "stg_external_accelerated"
[ranges.reads]
chain_blocks = "height >= getvariable('range_from') and height < getvariable('range_to')"
stg_external_accelerated = "txid is not null"
stg_transactions = """height >= getvariable('range_from') and height < getvariable('range_to')
and txid in (select txid from stg_external_accelerated)"""
[columns]
source = "VARCHAR  name of the list, as in stg_external_sources"
block_hash = "BLOB  header hash of its block, internal byte order"
height = "INTEGER  height of its block; 0 is the genesis block"
txid = "BLOB  transaction id, internal byte order"
*/
with

listed as (
    select distinct
        source,
        txid
    from stg_external_accelerated
)

select
    listed.source,
    stg_transactions.block_hash,
    stg_transactions.height,
    stg_transactions.txid
from listed
inner join stg_transactions
    on listed.txid = stg_transactions.txid
where stg_transactions.block_hash in (select chain_blocks.block_hash from chain_blocks)
order by stg_transactions.height, stg_transactions.block_hash, listed.source, stg_transactions.txid
