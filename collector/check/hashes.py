"""The check of hashes: what is stored of blocks and transactions is enough to compute them again.

Transactions are taken a folder at a time, so that memory stays bounded.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import gpuhash
from collector.check.grain import reverse
from collector.check.links import backfill_command
from collector.check.model import Outcome
from collector.check.view import View
from collector.codec.coinbase import subsidy_sat
from collector.dataset.query import contract_rows
from collector.dataset.schema import TRANSACTIONS
from collector.dataset.schema.model import HASH

Bytes = npt.NDArray[np.uint8]
AT_ONCE: Final = 100_000  # headers

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
# Numbers that are none of a header are told by `ranges`.
_HEADERS: Final = """
    SELECT DISTINCT block_hash, height, version, prev_hash, merkle_root,
        CAST(epoch(header_time) AS BIGINT) AS time, bits, nonce
    FROM blocks
    WHERE bits BETWEEN 0 AND 4294967295 AND nonce BETWEEN 0 AND 4294967295
        AND epoch(header_time) BETWEEN 0 AND 4294967295
"""
# Where some are missing or strange, `transactions` tells so.
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


def check_hashes(view: View) -> Outcome:
    """Hash headers and merkle trees again; and see whether the hash has the work that its header states."""
    outcome = Outcome("hashes", "headers hash to their blocks and have their work, txids to the merkle root")
    for rows in _batches(view, _HEADERS):
        outcome.n_rows += len(rows)
        _look_at_headers(view, rows, outcome)
    view.rows(_ROOTS)
    for paths in _by_folder(view):
        query = _TREES.format(rows=contract_rows(TRANSACTIONS, paths))
        for rows in _batches(view, query):
            outcome.n_rows += len(rows.column("txids").combine_chunks().flatten())
            _look_at_trees(view, rows, outcome)
    return outcome


def _look_at_headers(view: View, rows: pa.Table, outcome: Outcome) -> None:
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
            _tell(view, outcome, stored[at], height, "the header that is stored of it has another hash")
        elif int.from_bytes(stored[at].tobytes(), "little") > targets[bits]:
            _tell(view, outcome, stored[at], height, "its hash does not meet its target")


def _look_at_trees(view: View, rows: pa.Table, outcome: Outcome) -> None:
    txids = rows.column("txids").combine_chunks()
    roots, mutated = gpuhash.merkle_roots(_hashes(txids.flatten()), txids.offsets.to_numpy())
    is_other = (roots != _hashes(rows.column("merkle_root"))).any(axis=1)
    for at in np.flatnonzero(is_other | mutated).tolist():
        block_hash, height = _hashes(rows.column("block_hash"))[at], rows.column("height")[at].as_py()
        _tell(view, outcome, block_hash, height, "its txids do not hash to its merkle root")


def _tell(view: View, outcome: Outcome, block_hash: Bytes, height: int, wrong: str) -> None:
    outcome.breach(
        f"block {reverse(block_hash.tobytes().hex())} at height {height}: {wrong}",
        f"move the files of blocks and transactions with height {height} out of the dataset, "
        f"then {backfill_command(view, height, height)}",
    )


def check_subsidies(view: View) -> Outcome:
    """Compare new coins with what the chain allows at a height."""
    outcome = Outcome("subsidies", "the subsidy is that of the height on this chain")
    found = view.rows("SELECT height, subsidy_sat, count(*) FROM blocks GROUP BY height, subsidy_sat")
    for height, stored_sat, count in found:
        outcome.n_rows += count
        if height >= 0 and stored_sat != subsidy_sat(height, view.dataset.chain):
            outcome.breach(
                f"the subsidy at height {height} is {stored_sat} satoshi, which {view.dataset.chain} has not",
                f"move its file out of the dataset, then {backfill_command(view, height, height)}",
                count,
            )
    return outcome


def _target(bits: int) -> int:
    """Return the target of a header; nothing meets one that is not valid."""
    try:
        return gpuhash.target_from_bits(bits)
    except gpuhash.InvalidInputError:
        return -1


def _batches(view: View, query: str) -> Iterator[pa.Table]:
    for batch in view.connection.sql(query).to_arrow_reader(AT_ONCE):
        if len(batch):
            yield pa.Table.from_batches([batch])


def _by_folder(view: View) -> Iterator[list[Path]]:
    paths = sorted(view.sound[TRANSACTIONS.name])
    for _, each in groupby(paths, lambda path: path.parent):
        yield list(each)


def _hashes(column: pa.ChunkedArray | pa.Array) -> Bytes:
    """Give hashes as rows of 32 bytes."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    fixed = array.cast(HASH)
    start = fixed.offset * HASH.byte_width
    values = np.frombuffer(fixed.buffers()[1], np.uint8, len(fixed) * HASH.byte_width, start)
    return values.reshape(-1, HASH.byte_width)
