/*
summary = "Transactions that have what nodes and pools disagree about, feature by feature."
method = """
One row per transaction and feature that it has, from what a mempool or a block showed of it; a transaction without any
of them has no row. truc: version 3 (BIP 431). anchor: a pay-to-anchor output. ephemeral_dust: an output below the dust
threshold and no fee, so that a child must pay. large_op_return: an OP_RETURN script above 83 bytes, the old limit of
Bitcoin Core. below_1_sat_vb: an own feerate below 1 sat/vB, the old relay limit. envelope: data in a script that is
never run, as inscriptions have. bare_multisig: a multisig output without a hash. full_rbf: it replaced a transaction
that did not signal that it may be replaced, as our mempool events tell. A transaction of version 3 always signals that
(BIP 431), and one with an unconfirmed parent may have the signal from there (BIP 125) or may have left with that
parent. So what it replaced is of another version, and had no unconfirmed parent at its entry. Files of version 0.1.0
lack some of these columns; what is null is not claimed.
"""
grain = ["txid", "feature"]
[columns]
txid = "BLOB  transaction id, internal byte order"
feature = "VARCHAR  truc, anchor, ephemeral_dust, large_op_return, below_1_sat_vb, envelope, bare_multisig or full_rbf"
*/
with

seen as (
    select
        txid,
        version,
        output_types,
        op_return_bytes,
        n_dust_outputs,
        n_envelopes,
        fee_sat,
        vsize_vb
    from stg_mempool_txs
    union all
    select
        txid,
        version,
        output_types,
        op_return_bytes,
        n_dust_outputs,
        n_envelopes,
        fee_sat,
        vsize_vb
    from stg_transactions
    where not is_coinbase
),

unsignalled as (
    select distinct
        node,
        txid
    from stg_mempool_txs
    where signals_rbf = false and version != 3 and len(parents) = 0
),

marked as (
    select
        txid,
        'truc' as feature
    from seen
    where version = 3
    union all
    select
        txid,
        'anchor' as feature
    from seen
    where list_contains(output_types, 'anchor')
    union all
    select
        txid,
        'ephemeral_dust' as feature
    from seen
    where n_dust_outputs > 0 and fee_sat = 0
    union all
    select
        txid,
        'large_op_return' as feature
    from seen
    where op_return_bytes > 83
    union all
    select
        txid,
        'below_1_sat_vb' as feature
    from seen
    where fee_sat < vsize_vb
    union all
    select
        txid,
        'envelope' as feature
    from seen
    where n_envelopes > 0
    union all
    select
        txid,
        'bare_multisig' as feature
    from seen
    where list_contains(output_types, 'multisig')
    union all
    select
        stg_mempool_events.replaced_by as txid,
        'full_rbf' as feature
    from stg_mempool_events
    inner join unsignalled
        on stg_mempool_events.node = unsignalled.node and stg_mempool_events.hash = unsignalled.txid
    where stg_mempool_events.removal_reason = 'replaced' and stg_mempool_events.replaced_by is not null
)

select distinct
    txid,
    feature
from marked
order by feature, txid
