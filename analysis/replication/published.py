"""Loads what the authors of arXiv:1902.07549 published into five tables of a DuckDB connection.

    paper_labels     height, label                       pool of each block, 400000 to 546235
    paper_sizes      height, label, size_bytes, n_tx     every block of four pools, 400000 to 556781
    paper_hashrates  day, label, hashes_per_s            daily hashrate; label 'ALL' is the network
    paper_revenues   day, revenue_usd                    what all miners earned
    paper_prices     day, price_usd

Files are those of the authors' repository, github.com/Canhui/Bitcoin_Mining_Pools. Their names are kept. They
may lie in one folder, or in subfolders as in a clone of that repository.
"""

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from analysis.errors import PublishedDataError
from analysis.replication.spreadsheet import read_rows

LABELS: Final = "miningpool.csv"
# How deep below the given folder a file may lie; a clone has "Data Set/Block Size/".
PATTERNS: Final = ("{}", "*/{}", "*/*/{}")
HASHRATES: Final = "hash_rate.csv"
REVENUES: Final = "mining_revenue.csv"
PRICES: Final = "bitcoin_price.csv"
SIZES: Final = ("antpool", "f2pool", "btccom", "viabtc")
SIZE_TYPE: Final = pa.schema(
    [("height", pa.int64()), ("label", pa.string()), ("size_bytes", pa.int64()), ("n_tx", pa.int64())]
)

# File and query of each table; ? is the path. Values are read as text and cast, so a wrong type is an error.
QUERIES: Final = {
    "paper_labels": (
        LABELS,
        """
        SELECT CAST(blockid AS BIGINT) AS height, miningpool AS label
        FROM read_csv(?, header = true, all_varchar = true)
        """,
    ),
    # The last columns repeat four pools in capitals, which DuckDB numbers; BTC.com has no other column.
    "paper_hashrates": (
        HASHRATES,
        """
        SELECT CAST(left(Time, 10) AS DATE) AS day, label, CAST(value AS DOUBLE) AS hashes_per_s
        FROM (
            UNPIVOT (FROM read_csv(?, header = true, all_varchar = true))
            ON COLUMNS(* EXCLUDE (Time)) INTO NAME label VALUE value
        )
        WHERE label NOT IN ('ANTPOOL_1', 'F2POOL_1', 'VIABTC_1')
        """,
    ),
    "paper_revenues": (
        REVENUES,
        """
        SELECT CAST(strptime(column0, '%m/%d/%Y') AS DATE) AS day, CAST(column1 AS DOUBLE) AS revenue_usd
        FROM read_csv(?, header = false, all_varchar = true)
        """,
    ),
    "paper_prices": (
        PRICES,
        """
        SELECT CAST(left(date_UTC, 10) AS DATE) AS day, CAST(price_USD AS DOUBLE) AS price_usd
        FROM read_csv(?, header = true, all_varchar = true)
        """,
    ),
}


def load(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Make five DuckDB tables from the files in `folder` that the paper's authors published.

    The files may lie in subfolders. Raises PublishedDataError if a file is missing, there twice, or not the
    published one.
    """
    paths = _find(folder, [file for file, _ in QUERIES.values()] + [_size_file(pool) for pool in SIZES])
    for table, (file, query) in QUERIES.items():
        try:
            connection.execute(f"CREATE TABLE {table} AS {query}", [str(paths[file])])
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise PublishedDataError(
                f"{paths[file]} is not the file that was published ({reason}); fetch it anew"
            ) from None
    sizes = pa.concat_tables(_read_sizes(paths[_size_file(pool)]) for pool in SIZES)
    connection.register("sizes", sizes)
    connection.execute("CREATE TABLE paper_sizes AS SELECT * FROM sizes")
    connection.unregister("sizes")


def _find(folder: Path, files: list[str]) -> dict[str, Path]:
    """Return the path of each named file: in `folder`, or else in a subfolder at most two levels below.

    Raises PublishedDataError if a file is nowhere, or twice at one depth.
    """
    paths = {}
    for file in files:
        depths = (
            [path for path in sorted(folder.glob(pattern.format(file))) if path.is_file()]
            for pattern in PATTERNS
        )
        found = next((there for there in depths if there), [])
        if len(found) > 1:
            raise PublishedDataError(
                f"{folder} has {file} twice, as {found[0]} and {found[1]}; name the folder of one with --data"
            )
        if found:
            paths[file] = found[0]
    missing = [file for file in files if file not in paths]
    if missing:
        raise PublishedDataError(
            f"{folder} has no {', '.join(missing)}; name the folder of the authors' files with --data"
        )
    return paths


def _size_file(pool: str) -> str:
    return f"blocksize_{pool}.xlsx"


def _read_sizes(path: Path) -> pa.Table:
    """Read a pool's file of block sizes, a spreadsheet without a head; return it as an Arrow table.

    Its columns are height, label, size and number of transactions. Raises PublishedDataError if the file is
    not the published one.
    """
    columns: dict[str, list[object]] = {name: [] for name in SIZE_TYPE.names}
    try:
        for row in read_rows(path):
            columns["height"].append(int(row["A"]))
            columns["label"].append(row["B"])
            columns["size_bytes"].append(int(row["C"]))
            columns["n_tx"].append(int(row["D"]))
    except (KeyError, ValueError) as error:
        raise PublishedDataError(
            f"{path} is not the file that was published ({error}); fetch it anew"
        ) from None
    return pa.table(columns, schema=SIZE_TYPE)
