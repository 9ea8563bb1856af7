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
parent. So what it replaced is of another version, and had no unconfirmed parent at its entry (full_rbf). Files of version
0.1.0 lack some of these columns; what is null is not claimed. This is a view, computed when it is read, of what each day
of a mempool shows (mempool_features, full_rbf) and each block (mined_features).
"""
grain = ["txid", "feature"]
is_view = true
[columns]
txid = "BLOB  transaction id, internal byte order"
feature = "VARCHAR  truc, anchor, ephemeral_dust, large_op_return, below_1_sat_vb, envelope, bare_multisig or full_rbf"
*/
select
    txid,
    feature
from mempool_features
union
select
    txid,
    feature
from mined_features
union
select
    txid,
    'full_rbf' as feature
from full_rbf
