"""Query what is known of one transaction: seen when and where, replaced by, mined by, passed over by.

A block passed a transaction over if the transaction waited in the node's mempool when the block came, and the
block did not take it. That alone is no fault of the pool: a block has room for so many.
"""

from collections.abc import Mapping
from typing import Any, Final

from analysis.serve.lookups import NotFoundError, txid_bytes
from analysis.serve.results import Reader, Row

MOST_ROWS: Final = 200  # of one table; counts are of all rows
STAYS: Final = f"""
    SELECT
        stay.stay_no, stay.node, stay.entered_at, stay.first_seen_kind, stay.fee_sat, stay.vsize_vb,
        stay.fee_sat / stay.vsize_vb AS feerate_sat_vb, stay.left_reason,
        mined_cut.block_hash AS mined_hash,
        mined_cut.connected_at AS mined_at,
        (
            SELECT count(*) FROM mempool_cuts AS seen
            WHERE seen.node = stay.node AND seen.cut_no BETWEEN stay.first_cut_no AND stay.last_cut_no
        ) AS n_blocks_seen
    FROM mempool_residence AS stay
    LEFT JOIN mempool_cuts AS mined_cut
        ON stay.node = mined_cut.node AND stay.mined_cut_no = mined_cut.cut_no
    WHERE stay.txid = ?
    ORDER BY stay.entered_at, stay.node
    LIMIT {MOST_ROWS}
"""  # noqa: S608 - a number of ours
PASSED_OVER: Final = f"""
    WITH stays AS (FROM mempool_residence WHERE txid = ?)
    SELECT
        mempool_cuts.node, mempool_cuts.block_hash, chain_blocks.height, chain_blocks.is_active,
        block_pool.pool, block_pool.pool_name, mempool_cuts.connected_at,
        seconds_between(stays.entered_at, mempool_cuts.connected_at) AS waited_s,
        stays.fee_sat / stays.vsize_vb AS feerate_sat_vb, block_order.own_margin_sat_vb,
        chain_blocks.is_empty, chain_blocks.told_by,
        count(DISTINCT mempool_cuts.block_hash) OVER () AS n_blocks
    FROM stays
    INNER JOIN mempool_cuts
        ON
            stays.node = mempool_cuts.node
            AND mempool_cuts.cut_no BETWEEN stays.first_cut_no AND stays.last_cut_no
            AND mempool_cuts.cut_no IS DISTINCT FROM stays.mined_cut_no
    INNER JOIN chain_blocks USING (block_hash)
    LEFT JOIN block_pool USING (block_hash)
    LEFT JOIN block_order USING (block_hash)
    ORDER BY mempool_cuts.connected_at, mempool_cuts.node
    LIMIT {MOST_ROWS}
"""  # noqa: S608 - a number of ours
REPLACED: Final = f"""
    SELECT
        node, txid, replaced_by, replaced_at, waited_s, hop, n_hops_left, fee_sat, vsize_vb, by_fee_sat,
        by_vsize_vb, last_txid, last_left_reason
    FROM replacement_chain
    WHERE txid = ? OR replaced_by = ?
    ORDER BY replaced_at, node, stay_no
    LIMIT {MOST_ROWS}
"""  # noqa: S608 - a number of ours
MINED: Final = """
    SELECT
        mined.block_hash, mined.height, mined.tx_index, mined.fee_sat, mined.vsize_vb, mined.weight_wu,
        mined.n_inputs, mined.n_outputs, mined.output_value_sat, mined.is_coinbase, mined.signals_rbf,
        mined.effective_feerate_sat_vb, chain_blocks.is_active, chain_blocks.header_time,
        chain_blocks.told_by, block_pool.pool, block_pool.pool_name
    FROM stg_transactions AS mined
    INNER JOIN chain_blocks USING (block_hash)
    LEFT JOIN block_pool USING (block_hash)
    WHERE mined.txid = ? {heights}
    ORDER BY chain_blocks.is_active DESC, mined.height
    LIMIT 20
"""


def transaction(reader: Reader, named: str) -> Mapping[str, Any]:
    """Return all that is known of one transaction, given by its txid in display order, as a dict.

    `mined` is None if the dataset is gone. Raises NotFoundError if neither a mempool nor a block had it.
    """
    txid = txid_bytes(named)
    stays = reader.rows(STAYS, txid)
    mined = _mined(reader, txid, stays)
    replacements = reader.rows(REPLACED, txid, txid)
    if not (stays or mined or replacements):
        raise NotFoundError("no mempool and no block of this dataset had such a transaction")
    counted = reader.rows(PASSED_OVER, txid)
    return {
        "txid": txid,
        "stays": stays,
        "mined": mined,
        "replaced_by": [row for row in replacements if row["txid"] == txid],
        "replaces": [row for row in replacements if row["replaced_by"] == txid],
        "passed_over": [{name: row[name] for name in row if name != "n_blocks"} for row in counted],
        "n_blocks_passed_over": counted[0]["n_blocks"] if counted else 0,
        "candidates": reader.rows("FROM out_of_band_candidates WHERE txid = ? ORDER BY ALL LIMIT 20", txid),
    }


def _mined(reader: Reader, txid: bytes, stays: list[Row]) -> list[Row] | None:
    """Return a row for each block that holds a transaction; None if the dataset is gone.

    Where a mempool saw it mined, only the heights of those blocks are searched; else all blocks are.
    """
    hashes = [row["mined_hash"] for row in stays if row["mined_hash"] is not None]
    if not hashes:
        return reader.raw_rows(MINED.format(heights=""), txid)
    known = reader.rows("SELECT DISTINCT height FROM chain_blocks WHERE block_hash = ANY(?)", hashes)
    heights = ", ".join(str(row["height"]) for row in known)
    return reader.raw_rows(MINED.format(heights=f"AND mined.height IN ({heights})"), txid)
