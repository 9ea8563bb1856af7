"""Compute block hashes, merkle roots and the ids of coinbases again from the rows of blocks and transactions.

Transactions are read a folder at a time, so that memory stays bounded.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import gpuhash
from collector.check.cross_table import backfill_command
from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.codec.arrays import Bytes
from collector.codec.coinbase import coinbase_bytes, stated_height, subsidy_sat
from collector.codec.transaction import decode_transactions
from collector.dataset.query import contract_rows
from collector.dataset.schema import TRANSACTIONS
from collector.dataset.schema.model import HASH
from collector.errors import DecodeError

AT_ONCE: Final = 100_000  # headers
# From where on every coinbase states its height, BIP 34. On regtest this depends on the node.
STATED_FROM: Final = {"main": 227_931, "test": 21_111, "testnet4": 1, "signet": 1}

# Serialisation of a header; hashes as they are in it.
_HEADER: Final = np.dtype(
    [
        ("version", "<i4"),
        ("prev_hash", "V32"),
        ("merkle_root", "V32"),
        ("time", "<u4"),
        ("bits", "<u4"),
        ("nonce", "<u4"),
    ]
)
# The check `ranges` reports numbers that do not fit into a header.
_HEADERS: Final = """
    SELECT DISTINCT block_hash, height, version, prev_hash, merkle_root,
        CAST(epoch(header_time) AS BIGINT) AS time, bits, nonce
    FROM blocks
    WHERE bits BETWEEN 0 AND 4294967295 AND nonce BETWEEN 0 AND 4294967295
        AND epoch(header_time) BETWEEN 0 AND 4294967295
"""
# The check `transactions` reports blocks that lack transactions; they are left out here.
_TREES: Final = """
    SELECT b.block_hash, b.height, b.merkle_root, t.txids
    FROM (
        SELECT block_hash, list(txid ORDER BY tx_index) AS txids
        FROM (SELECT DISTINCT block_hash, tx_index, txid FROM {rows}) GROUP BY block_hash
    ) t JOIN roots b USING (block_hash)
    WHERE len(t.txids) = b.n_tx
"""
_ROOTS: Final = """
    CREATE OR REPLACE TEMP TABLE roots AS
    SELECT block_hash, any_value(height) AS height, any_value(merkle_root) AS merkle_root,
        any_value(n_tx) AS n_tx
    FROM blocks GROUP BY block_hash
"""
# Files of version 0.1.0 lack what rebuilds a coinbase; the check `ranges` reports numbers that do not fit.
_COINBASES: Final = """
    SELECT b.*, t.wtxid FROM (
        SELECT DISTINCT block_hash, height, version, coinbase_txid, coinbase_version, coinbase_script,
            coinbase_sequence, coinbase_outputs, coinbase_reserved_value, coinbase_locktime
        FROM blocks
        WHERE coinbase_version BETWEEN 0 AND 4294967295 AND coinbase_sequence BETWEEN 0 AND 4294967295
            AND coinbase_locktime BETWEEN 0 AND 4294967295
            AND len(list_filter(coinbase_outputs, lambda output: output.value_sat < 0)) = 0
    ) b
    LEFT JOIN (SELECT DISTINCT block_hash, wtxid FROM transactions WHERE tx_index = 0) t USING (block_hash)
"""


def check_hashes(view: DatasetView) -> CheckResult:
    """Find blocks whose header, coinbase or txids do not give the stored hashes, txid and merkle root.

    All are hashed again; block hashes must also meet their targets, and a coinbase states its height where
    the chain demands that. Returns a CheckResult.
    """
    result = CheckResult(
        "hashes", "headers and coinbases hash to their ids, with the block's work, txids to its merkle root"
    )
    for rows in _batches(view, _HEADERS):
        result.n_rows += len(rows)
        _look_at_headers(view, rows, result)
    for rows in _batches(view, _COINBASES):
        _look_at_coinbases(view, rows, result)
        _look_at_stated_heights(view, rows, result)
    view.rows(_ROOTS)
    for paths in _by_folder(view):
        query = _TREES.format(rows=contract_rows(TRANSACTIONS, paths))
        for rows in _batches(view, query):
            result.n_rows += len(rows.column("txids").combine_chunks().flatten())
            _look_at_trees(view, rows, result)
    return result


def _look_at_headers(view: DatasetView, rows: pa.Table, result: CheckResult) -> None:
    headers = np.zeros(len(rows), _HEADER)
    for name in headers.dtype.names or ():
        is_hash = headers.dtype[name].kind == "V"
        column = rows.column(name)
        headers[name] = _hashes(column).view("V32")[:, 0] if is_hash else column.to_numpy()
    stored = _hashes(rows.column("block_hash"))
    hashes = gpuhash.sha256d_headers(headers.view(np.uint8).reshape(-1, _HEADER.itemsize))
    is_other = (hashes != stored).any(axis=1)
    targets = {bits: _target(bits) for bits in set(headers["bits"].tolist())}
    heights = rows.column("height").to_pylist()
    for at, (bits, height) in enumerate(zip(headers["bits"].tolist(), heights, strict=True)):
        if is_other[at]:
            _tell(view, result, stored[at], height, "its stored header has another hash")
        elif int.from_bytes(stored[at].tobytes(), "little") > targets[bits]:
            _tell(view, result, stored[at], height, "its hash does not meet its target")


def _look_at_coinbases(view: DatasetView, rows: pa.Table, result: CheckResult) -> None:
    """Add to `result` each coinbase that, rebuilt from its columns, does not hash to its txid and wtxid."""
    found = rows.to_pylist()
    for column, with_witness in (("coinbase_txid", False), ("wtxid", True)):
        rebuilt = [coinbase_bytes(row, with_witness=with_witness) or b"" for row in found]
        for row, hash_ in zip(found, gpuhash.sha256d_batch(gpuhash.join(rebuilt)), strict=True):
            if row[column] not in (None, hash_.tobytes()):
                wrong = (
                    f"its coinbase, rebuilt from its columns, has another {column.removeprefix('coinbase_')}"
                )
                block_hash = np.frombuffer(row["block_hash"], np.uint8)
                _tell(view, result, block_hash, row["height"], wrong)


def _look_at_stated_heights(view: DatasetView, rows: pa.Table, result: CheckResult) -> None:
    """Add to `result` each block whose coinbase states another height than the stored one."""
    first = STATED_FROM.get(view.dataset.chain)
    if first is None:
        return
    for row in rows.select(["block_hash", "height", "version", "coinbase_script"]).to_pylist():
        is_bound = row["height"] >= first and row["version"] >= 2  # noqa: PLR2004 - BIP 34 came with version 2
        if is_bound and stated_height(row["coinbase_script"]) != row["height"]:
            block_hash = np.frombuffer(row["block_hash"], np.uint8)
            _tell(view, result, block_hash, row["height"], "its coinbase states another height")


def _look_at_trees(view: DatasetView, rows: pa.Table, result: CheckResult) -> None:
    txids = rows.column("txids").combine_chunks()
    roots, mutated = gpuhash.merkle_roots(_hashes(txids.flatten()), txids.offsets.to_numpy())
    is_other = (roots != _hashes(rows.column("merkle_root"))).any(axis=1)
    for at in np.flatnonzero(is_other | mutated).tolist():
        block_hash, height = _hashes(rows.column("block_hash"))[at], rows.column("height")[at].as_py()
        _tell(view, result, block_hash, height, "its txids do not hash to its merkle root")


def _tell(view: DatasetView, result: CheckResult, block_hash: Bytes, height: int, wrong: str) -> None:
    result.breach(
        f"block {display_hash(block_hash.tobytes().hex())} at height {height}: {wrong}",
        f"move the files of blocks and transactions with height {height} out of the dataset, "
        f"then {backfill_command(view, height, height)}",
    )


def check_bodies(view: DatasetView) -> CheckResult:
    """Find transactions whose stored raw bytes do not hash to their txid; return a CheckResult."""
    result = CheckResult("bodies", "raw bytes of transactions hash to their txids")
    for rows in _batches(view, "SELECT txid, raw FROM mempool_bodies"):
        result.n_rows += len(rows)
        txids, raws = rows.column("txid").to_pylist(), rows.column("raw").to_pylist()
        for txid, found in zip(txids, decode_transactions(raws), strict=True):
            if isinstance(found, DecodeError) or found.txid != txid:
                result.breach(
                    f"the bytes of transaction {display_hash(txid.hex())} are not that transaction",
                    "restore the files of mempool_bodies from a copy, or move them out of the dataset",
                )
    return result


def check_subsidies(view: DatasetView) -> CheckResult:
    """Find blocks whose stored subsidy is not what the chain allows at the height; return a CheckResult."""
    result = CheckResult("subsidies", "the subsidy is that of the height on this chain")
    found = view.rows("SELECT height, subsidy_sat, count(*) FROM blocks GROUP BY height, subsidy_sat")
    for height, stored_sat, count in found:
        result.n_rows += count
        if height >= 0 and stored_sat != subsidy_sat(height, view.dataset.chain):
            result.breach(
                f"the subsidy at height {height} is {stored_sat} satoshi, wrong on {view.dataset.chain}",
                f"move its file out of the dataset, then {backfill_command(view, height, height)}",
                count,
            )
    return result


def _target(bits: int) -> int:
    """Return the target that a header's `bits` encode; -1, which no hash meets, when they are not valid."""
    try:
        return gpuhash.target_from_bits(bits)
    except gpuhash.InvalidInputError:
        return -1


def _batches(view: DatasetView, query: str) -> Iterator[pa.Table]:
    for batch in view.connection.sql(query).to_arrow_reader(AT_ONCE):
        if len(batch):
            yield pa.Table.from_batches([batch])


def _by_folder(view: DatasetView) -> Iterator[list[Path]]:
    paths = sorted(view.readable[TRANSACTIONS.name])
    for _, each in groupby(paths, lambda path: path.parent):
        yield list(each)


def _hashes(column: pa.ChunkedArray | pa.Array) -> Bytes:
    """Return a column of hashes as a numpy array uint8[n, 32], one row per hash."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    fixed = array.cast(HASH)
    start = fixed.offset * HASH.byte_width
    values = np.frombuffer(fixed.buffers()[1], np.uint8, len(fixed) * HASH.byte_width, start)
    return values.reshape(-1, HASH.byte_width)
