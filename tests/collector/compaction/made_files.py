"""Write many small files into a dataset, and read them back with DuckDB alone."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS, TRANSACTIONS, Table

DAY_US = 86_400_000_000
MIDNIGHT_US = 20_000 * DAY_US  # 2024-10-04


def event(number: int, day: int = 0) -> dict[str, Any]:
    """Make a row of mempool_events `day` days after 2024-10-04; `number` sets its time and content."""
    return {
        "node": "n",
        "session": "s",
        "sequence": number,
        "kind": "pushed",
        "received_at": MIDNIGHT_US + day * DAY_US + number * 7919 % 86_400 * 1_000_000,
        "event": "A",
        "hash": number.to_bytes(32, "big"),
        "mempool_sequence": number,
    }


def write_events(dataset: Dataset, n_files: int, per_file: int, day: int = 0, stem: str = "seal") -> int:
    """Write events of one day as `n_files` files of `per_file` rows; return the number of rows."""
    for file in range(n_files):
        rows = [event(file + n_files * number, day) for number in range(per_file)]
        dataset.write(MEMPOOL_EVENTS, rows, stem=f"{stem}-{file}")
    return n_files * per_file


def block(height: int, **changes: Any) -> dict[str, Any]:
    """Make a row of blocks whose hash contains its height."""
    numbers = {column.name: 1 for column in BLOCKS.columns if str(column.type).startswith("int")}
    hashes = {
        column.name: bytes(32) for column in BLOCKS.columns if column.type == BLOCKS.arrow.field(0).type
    }
    row = {**numbers, **hashes, "height": height, "block_hash": height.to_bytes(32, "big")}
    row |= {"header_time": 1_700_000_000, "height_source": "rpc", "coinbase_script": b"x"}
    row |= {"coinbase_outputs": [{"value_sat": 5, "script": b"\x6a"}], "verdict": "valid"}
    return row | {"verified_by": "cpu", "source": "zmq", "fees_sat": None, **changes}


def transaction(height: int, index: int) -> dict[str, Any]:
    """Make a row of transactions."""
    row: dict[str, Any] = {column.name: index for column in TRANSACTIONS.columns}
    row |= {"block_hash": height.to_bytes(32, "big"), "height": height, "txid": bytes(32), "wtxid": bytes(32)}
    row |= {
        "output_types": ["anchor", "nulldata"],
        "spent_types": ["pubkey"],
        "parents": [0, 1],
        "is_coinbase": index == 0,
    }
    return row | {"has_witness": False, "signals_rbf": True, "effective_feerate_sat_vb": 1.5}


def seen(dataset: Dataset, table: Table) -> list[dict[str, Any]]:
    """Return all rows of a table as DuckDB reads them by a glob pattern, sorted."""
    pattern = dataset.folder / table.name / "**" / "*.parquet"
    with duckdb.connect() as connection:
        query = f"FROM read_parquet('{pattern}', hive_partitioning = false) ORDER BY ALL"
        return connection.sql(query).to_arrow_table().to_pylist()


def flip_a_bit_unseen_by_duckdb(path: Path, column: str) -> None:
    """Change a bit of a column so that DuckDB reads another value without an error; a checksum shows it."""

    def values() -> list[Any]:
        with duckdb.connect() as connection:
            return connection.sql(f"FROM '{path}' SELECT {column}").fetchall()

    right, content = values(), path.read_bytes()
    columns = pq.read_metadata(path).row_group(0).to_dict()["columns"]
    chunk = next(each for each in columns if each["path_in_schema"] == column)
    for at in range(chunk["data_page_offset"], chunk["data_page_offset"] + chunk["total_compressed_size"]):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with suppress(duckdb.Error):
            if values() != right:
                return
    raise AssertionError(path)


def files(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())
