"""Fill the fees of mempool entries that are null although `transactions` has them.

A fee is null where it could not be learnt in time. When the transaction is mined, `transactions` has its fee,
which is the same in the mempool and in a block. Each partition is replaced as compaction replaces it; a
second run finds nothing to do.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow.compute as pc

from collector.compaction.file_merge import merge
from collector.compaction.replacement import Replacements, open_replacements, sealed_files
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import read_file, refuse_damaged
from collector.dataset.query import contract_rows, query_engine
from collector.dataset.schema import BLOCKS, MEMPOOL_TXS, TRANSACTIONS
from collector.errors import DatasetError

# Fees by transaction. The parameter {missing} is a query for entries without a fee.
FEES: Final = """
    SELECT txid, max(fee_sat) AS fee_sat FROM {transactions}
    WHERE fee_sat IS NOT NULL AND txid IN (SELECT txid FROM {missing}) GROUP BY txid
"""


class Mended(NamedTuple):
    """Says how many fees `mend` filled in one partition, or why it could not."""

    partition: str  # <table>/<folder>
    n_filled: int  # fees
    error: str = ""  # why it was left as it is


def mend(dataset: Dataset) -> Iterator[Mended]:
    """Fill null fees of `mempool_txs` from `transactions`; yield a result after each changed partition.

    A partition that cannot be replaced is left as it is, and no fee is taken from a damaged file; both have a
    result with an error. Raises DatasetError while `pool-collector compact` or another `mend` is running, or
    when DuckDB cannot read the entries.
    """
    with open_replacements(dataset) as replacements, query_engine(replacements.spill) as connection:
        folders = sorted({path.parent for path in dataset.paths(MEMPOOL_TXS)})
        try:
            with dataset.read_lock():
                damaged = _find_fees(dataset, folders, connection)
        except duckdb.Error as error:
            raise DatasetError(
                f"DuckDB cannot read {dataset.folder}: {str(error).splitlines()[0]}; nothing was changed, "
                "`pool-collector check` names a file that cannot be read"
            ) from None
        yield from damaged
        for folder in folders:
            result = _mend_folder(dataset, folder, connection, replacements)
            replacements.remove_retired()
            if result is not None:
                yield result


def blocks_without_fees(dataset: Dataset) -> dict[bytes, int]:
    """Return the height of each stored block that lacks its fees, by block hash.

    `mend` cannot learn a transaction's fee from such a block.
    Raises DatasetError for a file that cannot be read.
    """
    found: dict[bytes, int] = {}
    with dataset.read_lock():
        for path in dataset.paths(BLOCKS):
            rows = read_file(path, ("block_hash", "height", "fees_sat"))
            lacking = rows.filter(pc.is_null(rows["fees_sat"]))
            found.update(zip(lacking["block_hash"].to_pylist(), lacking["height"].to_pylist(), strict=True))
    return found


def _find_fees(
    dataset: Dataset, folders: Sequence[Path], connection: duckdb.DuckDBPyConnection
) -> list[Mended]:
    """Make the DuckDB table `fees`: txid and fee of each transaction whose mempool entry lacks a fee.

    Entries are read from the `folders` of `mempool_txs`, fees from the files of `transactions` that are not
    damaged. Returns a result for each damaged one.
    """
    sealed = [path for folder in folders for path in sealed_files(dataset, folder)]
    missing = f"(SELECT txid FROM {contract_rows(MEMPOOL_TXS, sealed)} WHERE fee_sat IS NULL)"  # noqa: S608 - names are the contract's
    ((is_any_missing,),) = connection.execute(f"SELECT count(*) > 0 FROM {missing}").fetchall()  # noqa: S608 - a query of ours
    sound: list[Path] = []
    damaged: list[Mended] = []
    for path in dataset.paths(TRANSACTIONS) if is_any_missing else []:
        try:
            refuse_damaged(path, ("txid", "fee_sat"))
        except DatasetError as error:
            damaged.append(Mended(f"{TRANSACTIONS.name}/{path.parent.name}", 0, str(error)))
        else:
            sound.append(path)
    transactions = contract_rows(TRANSACTIONS, sound)
    connection.execute(f"CREATE TEMP TABLE fees AS {FEES.format(transactions=transactions, missing=missing)}")
    return damaged


def _mend_folder(
    dataset: Dataset, folder: Path, connection: duckdb.DuckDBPyConnection, replacements: Replacements
) -> Mended | None:
    """Fill missing fees in a folder's files of mempool transactions; the files become one new file.

    Returns what was done, or None if no row lacks a fee that a block tells. A failure leaves the folder as it
    is and is described in the result.
    """
    partition = f"{MEMPOOL_TXS.name}/{folder.name}"
    n_filled = 0
    try:
        sources = []
        for path in sealed_files(dataset, folder):
            n_lacking = _count_lacking(connection, path)
            n_filled += n_lacking
            if n_lacking:
                sources.append(path)
        if not sources:
            return None
        rows = f"""(
            SELECT e.* REPLACE (
                coalesce(e.fee_sat, f.fee_sat) AS fee_sat,
                CASE WHEN e.fee_sat IS NULL AND f.fee_sat IS NOT NULL THEN 'block' ELSE e.fee_source END
                    AS fee_source
            )
            FROM {contract_rows(MEMPOOL_TXS, sources)} e LEFT JOIN fees f USING (txid)
        )"""  # noqa: S608 - names are the contract's
        replacements.replace(
            folder,
            sources,
            "mend",
            lambda target: merge(connection, MEMPOOL_TXS, sources, target, rows=rows),
        )
    except DatasetError as error:
        return Mended(partition, 0, str(error))
    except OSError as error:  # both folders are whole, and only the next run removes one
        return Mended(partition, 0, f"{folder}: {error.strerror or error}")
    return Mended(partition, n_filled)


def _count_lacking(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """Return how many rows of a file lack a fee that is in the table `fees`.

    Raises DatasetError when the file cannot be read.
    """
    rows = contract_rows(MEMPOOL_TXS, [path])
    query = f"SELECT count(*) FROM (FROM {rows} WHERE fee_sat IS NULL) SEMI JOIN fees USING (txid)"  # noqa: S608 - names are the contract's
    try:
        ((n_lacking,),) = connection.execute(query).fetchall()
    except duckdb.Error as error:
        raise DatasetError(
            f"cannot read {path}: {str(error).splitlines()[0]}; nothing was changed here, "
            "`pool-collector check` names a file that cannot be read"
        ) from None
    return int(n_lacking)
