"""Test that files appear whole, in the contract's folders and with its types."""

import datetime as dt
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import BLOCKS, COVERAGE, MEMPOOL_EVENTS, TABLES, TRANSACTIONS, Table
from collector.errors import DatasetError

DAY_US = 86_400_000_000
MIDNIGHT_US = 20_000 * DAY_US  # 2024-10-04


def event(sequence: int, received_us: int) -> dict[str, Any]:
    """Make a row of mempool_events."""
    return {
        "node": "n",
        "session": "s",
        "sequence": sequence,
        "kind": "pushed",
        "received_at": received_us,
        "event": "A",
        "hash": sequence.to_bytes(32, "big"),
        "mempool_sequence": sequence,
    }


def transaction(height: int, index: int) -> dict[str, Any]:
    """Make a row of transactions."""
    row = {column.name: index for column in TRANSACTIONS.columns}
    row |= {"block_hash": bytes([height % 256]) * 32, "height": height, "tx_index": index}
    row |= {
        "txid": bytes(32),
        "wtxid": bytes(32),
        "output_types": ["anchor", "nulldata"],
        "spent_types": ["pubkey"],
        "parents": [0, 1],
    }
    row |= {"is_coinbase": index == 0, "has_witness": False, "signals_rbf": True}
    return row | {"effective_feerate_sat_vb": None, "fee_sat": None, "input_value_sat": None}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def test_rows_come_back_as_they_went_in(dataset: Dataset) -> None:
    """Written rows are read with the contract's columns, types and metadata, in the table's order."""
    rows = [event(3, MIDNIGHT_US + 3), event(1, MIDNIGHT_US + 1), event(2, MIDNIGHT_US + 2)]

    dataset.write(MEMPOOL_EVENTS, rows, stem="a")

    read = dataset.read(MEMPOOL_EVENTS)
    assert read.schema.equals(MEMPOOL_EVENTS.arrow, check_metadata=True)
    assert read.column("sequence").to_pylist() == [1, 2, 3]
    assert read.column("received_at")[0].as_py() == dt.datetime(2024, 10, 4, 0, 0, 0, 1, tzinfo=dt.UTC)
    assert read.column("replaced_by").null_count == 3


def test_rows_are_split_by_utc_day(dataset: Dataset) -> None:
    """The last microsecond of a day and the first of the next lie in two folders."""
    rows = [event(1, MIDNIGHT_US - 1), event(2, MIDNIGHT_US), event(3, MIDNIGHT_US + DAY_US - 1)]

    paths = dataset.write(MEMPOOL_EVENTS, rows, stem="seal-1")

    assert [str(path.relative_to(dataset.root)) for path in paths] == [
        "chain=regtest/mempool_events/date=2024-10-03/seal-1.parquet",
        "chain=regtest/mempool_events/date=2024-10-04/seal-1.parquet",
    ]
    assert [pq.read_metadata(path).num_rows for path in paths] == [1, 2]


def test_rows_are_split_by_a_thousand_heights(dataset: Dataset) -> None:
    """Heights 0 to 999 share a folder, 1000 begins the next."""
    rows = [transaction(height, 0) for height in (1000, 0, 999, 5_000_123)]

    paths = dataset.write(TRANSACTIONS, rows, stem="x")

    assert [path.parent.name for path in paths] == [
        "heights=0-999",
        "heights=1000-1999",
        "heights=5000000-5000999",
    ]
    assert dataset.paths(TRANSACTIONS) == paths


def test_parquet_carries_the_contract(dataset: Dataset) -> None:
    """A Parquet file holds format, table, version, grain, sort key and the sentence on each column."""
    (path,) = dataset.write(BLOCKS, [block_row()], stem="x")

    file = pq.ParquetFile(path)
    metadata = file.schema_arrow.metadata
    assert metadata[b"table"] == b"blocks"
    assert metadata[b"version"] == b"1"
    assert metadata[b"grain"] == b"block_hash"
    assert metadata[b"sort"] == b"height,block_hash"
    for column in BLOCKS.columns:
        assert file.schema_arrow.field(column.name).metadata[b"doc"] == column.doc.encode()
        assert file.schema_arrow.field(column.name).nullable == column.nullable
    names = [file.schema_arrow.names[key.column_index] for key in file.metadata.row_group(0).sorting_columns]
    assert names == list(BLOCKS.sort)
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def block_row() -> dict[str, Any]:
    """Make a row of blocks."""
    numbers = {column.name: 1 for column in BLOCKS.columns if pa.types.is_integer(column.type)}
    hashes = {column.name: bytes(32) for column in BLOCKS.columns if column.type == pa.binary(32)}
    return {
        **numbers,
        **hashes,
        "height_source": "rpc",
        "header_time": 1_700_000_000,
        "coinbase_script": b"\x00\xff<script>",
        "coinbase_outputs": [{"value_sat": 5, "script": b"\x6a"}],
        "verdict": "valid",
        "verified_by": "reference",
        "source": "zmq",
    }


def test_the_same_stem_is_written_once(dataset: Dataset) -> None:
    """A second write with the same stem leaves the complete file untouched."""
    (path,) = dataset.write(TRANSACTIONS, [transaction(7, 0)], stem="x")
    before = path.stat()

    dataset.write(TRANSACTIONS, [transaction(7, 0), transaction(7, 1)], stem="x")

    assert path.stat().st_ino == before.st_ino
    assert dataset.read(TRANSACTIONS).num_rows == 1


def test_no_rows_make_no_file(dataset: Dataset) -> None:
    """A write of no rows makes no file."""
    assert dataset.write(TRANSACTIONS, [], stem="x") == []
    assert dataset.read(TRANSACTIONS).num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_every_table_reads_empty(dataset: Dataset, name: str) -> None:
    """A table without files is read as no rows, with the contract's schema."""
    assert dataset.read(TABLES[name]).schema.equals(TABLES[name].arrow, check_metadata=True)


def test_what_a_crash_left_behind_is_invisible(dataset: Dataset) -> None:
    """A half-written temporary file disturbs no reader, and the next write replaces it."""
    (path,) = dataset.write(TRANSACTIONS, [transaction(7, 0)], stem="x")
    torn = path.with_name(".y.parquet.tmp")
    torn.write_bytes(path.read_bytes()[:100])
    pattern = dataset.folder / "transactions" / "**" / "*.parquet"

    assert dataset.read(TRANSACTIONS).num_rows == 1
    assert count_in_duckdb(str(pattern)) == 1
    assert len(pd.read_parquet(dataset.folder / "transactions", partitioning=None)) == 1
    dataset.write(TRANSACTIONS, [transaction(8, 0)], stem="y")
    assert not torn.exists()
    assert dataset.read(TRANSACTIONS).num_rows == 2


def test_a_file_gets_its_name_when_it_is_whole_and_on_disk(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is: write everything, force the file to disk, rename, force the folder to disk."""
    dataset.write(TRANSACTIONS, [transaction(1, 0)], stem="makes-the-folders")
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def spy_fsync(handle: int) -> None:
        fsync(handle)
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def spy_replace(path: Path, target: Path) -> Path:
        assert pq.read_metadata(path).num_rows == 2
        assert not target.exists()
        done.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    dataset.write(TRANSACTIONS, [transaction(7, 0), transaction(7, 1)], stem="x")

    assert done == ["file", "rename", "folder"]


def count_in_duckdb(pattern: str) -> int:
    """Count the rows that DuckDB finds, read as the documentation says."""
    query = "select count(*) from read_parquet($1, hive_partitioning = false, union_by_name = true)"
    (count,) = duckdb.connect().execute(query, [pattern]).fetchone() or (0,)
    return int(count)


def test_duckdb_sees_the_heights_and_not_the_folder_names(dataset: Dataset) -> None:
    """With `hive_partitioning = false` DuckDB reads `height` from the file, not from the folder name."""
    dataset.write(TRANSACTIONS, [transaction(1234, 0)], stem="x")
    query = "select height, output_types, parents from read_parquet($1, hive_partitioning = false)"

    rows = duckdb.connect().execute(query, [f"{dataset.folder}/transactions/**/*.parquet"]).fetchall()

    assert rows == [(1234, ["anchor", "nulldata"], [0, 1])]


def test_files_and_folders_are_closed_to_strangers(dataset: Dataset) -> None:
    """Only the owner and the group can read files and folders of a dataset."""
    (path,) = dataset.write(TRANSACTIONS, [transaction(7, 0)], stem="x")

    assert stat.S_IMODE(path.stat().st_mode) & 0o137 == 0
    for folder in (path.parent, path.parent.parent, dataset.folder, dataset.root):
        assert stat.S_IMODE(folder.stat().st_mode) & 0o027 == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": None}, "mempool_events.node is null"),
        ({"colour": 1}, "no column colour"),
        ({"sequence": "many"}, "mempool_events.sequence"),
        ({"sequence": 1 << 63}, "mempool_events.sequence"),
        ({"hash": b"short"}, "mempool_events.hash"),
        ({"event": "X"}, "mempool_events.event is 'X': not one of A, R, C, D"),
        ({"node": "\ud800"}, "mempool_events.node"),
    ],
)
def test_a_row_that_breaks_the_contract_is_refused(
    dataset: Dataset, change: dict[str, Any], message: str
) -> None:
    """The error names table, column and value, and nothing is written."""
    with pytest.raises(DatasetError, match=message):
        dataset.write(MEMPOOL_EVENTS, [event(1, 1), event(2, 2) | change], stem="x")
    assert dataset.paths(MEMPOOL_EVENTS) == []


def test_a_table_with_a_strange_column_is_refused(dataset: Dataset) -> None:
    """An Arrow table with an unknown column is refused, not written without the column."""
    with pytest.raises(DatasetError, match="coverage has no column colour"):
        dataset.write(COVERAGE, pa.table({"colour": [1]}), stem="x")


def test_a_row_without_a_required_column_is_refused() -> None:
    """The error names the column."""
    row = event(1, 1)
    del row["kind"]
    with pytest.raises(DatasetError, match="mempool_events has no kind"):
        to_batch(MEMPOOL_EVENTS, [row])


def test_a_batch_made_elsewhere_must_keep_the_contract_too() -> None:
    """An Arrow batch with other columns or a value outside its set is refused like rows."""
    batch = to_batch(MEMPOOL_EVENTS, [event(1, 1), event(2, 2)])
    assert to_batch(MEMPOOL_EVENTS, batch) is batch
    with pytest.raises(DatasetError, match="for transactions has other columns"):
        to_batch(TRANSACTIONS, batch)
    strange = batch.set_column(5, MEMPOOL_EVENTS.arrow.field("event"), pa.array(["A", "Z"]))
    with pytest.raises(DatasetError, match=r"mempool_events\.event is 'Z'"):
        to_batch(MEMPOOL_EVENTS, strange.cast(MEMPOOL_EVENTS.arrow))


def test_a_strange_value_inside_a_list_is_refused() -> None:
    """The closed set of a list column holds for each item of a list."""
    with pytest.raises(DatasetError, match="output_types is 'p2sh'"):
        to_batch(TRANSACTIONS, [transaction(1, 1) | {"output_types": ["anchor", "p2sh"]}])


@pytest.mark.parametrize("stem", ["", ".hidden", "../up", "a/b", "a\0b", "a b"])
def test_a_stem_cannot_leave_its_folder(dataset: Dataset, stem: str) -> None:
    """A stem with a slash or another special character is refused."""
    with pytest.raises(DatasetError, match="cannot name a file"):
        dataset.write(TRANSACTIONS, [transaction(7, 0)], stem=stem)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "neither empty nor a dataset"),
        ("{}", "another program"),
        ("[1]", "another program"),
        ("not json", "cannot be read as the marker"),
        ('{"format": "pool-measurement", "version": 99}', "version 99"),
    ],
)
def test_a_foreign_folder_is_left_alone(tmp_path: Path, content: str | None, message: str) -> None:
    """A folder with somebody else's files, or a dataset of another version, is refused untouched."""
    (tmp_path / "theirs.txt").write_text("precious")
    if content is not None:
        (tmp_path / "dataset.json").write_text(content)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(DatasetError, match=message):
        Dataset.open(tmp_path, "main", create=True)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_dataset_is_an_error_unless_it_may_be_made(tmp_path: Path) -> None:
    """Opening makes no folder; opening with `create` makes a dataset that can be opened."""
    root = tmp_path / "new" / "dataset"
    with pytest.raises(DatasetError, match="there is no dataset"):
        Dataset.open(root, "main")
    assert not root.exists()
    Dataset.open(root, "main", create=True)
    assert Dataset.open(root, "main").chain == "main"
    with pytest.raises(DatasetError, match="no chain 'mainnet'"):
        Dataset.open(root, "mainnet")


def test_a_removed_dataset_is_not_made_again_without_its_marker(dataset: Dataset) -> None:
    """A write into a dataset that somebody has moved is refused: no command would take its folder for one."""
    dataset.root.rename(dataset.root.with_name("moved"))
    with pytest.raises(DatasetError, match=f"{dataset.root} was removed or moved .*; put it back, and start"):
        dataset.write(MEMPOOL_EVENTS, [event(1, MIDNIGHT_US)], stem="00000001-a")
    for lock in (dataset.write_lock, dataset.replace_lock, dataset.backfill_lock):
        with pytest.raises(DatasetError, match="was removed or moved"), lock():
            pass
    assert not dataset.root.exists()


@pytest.mark.parametrize("part", [".", MEMPOOL_EVENTS.name])
def test_a_link_to_nothing_is_not_an_empty_table(dataset: Dataset, tmp_path: Path, part: str) -> None:
    """What is behind it, as on a disk that is not mounted, would pass for removed."""
    dataset.write(MEMPOOL_EVENTS, [event(1, MIDNIGHT_US)], stem="00000001-a")
    link = dataset.folder / part
    link.rename(tmp_path / "elsewhere")
    link.symlink_to(tmp_path / "no-disk")
    with pytest.raises(DatasetError, match=f"{link} is a link to a folder that is not there"):
        dataset.paths(MEMPOOL_EVENTS)


def test_a_dataset_that_goes_while_it_is_read_has_no_empty_tables(dataset: Dataset) -> None:
    """A reader that has opened it gets an error, not zero rows."""
    dataset.write(MEMPOOL_EVENTS, [event(1, MIDNIGHT_US)], stem="00000001-a")
    dataset.root.rename(dataset.root.with_name("moved"))
    with pytest.raises(DatasetError, match="was removed or moved"):
        dataset.read(MEMPOOL_EVENTS)


def test_an_unreadable_file_is_named(dataset: Dataset) -> None:
    """A truncated Parquet file gives its path and what to do."""
    (path,) = dataset.write(TRANSACTIONS, [transaction(7, 0)], stem="x")
    os.truncate(path, 50)
    with pytest.raises(DatasetError, match=r"cannot read .*x\.parquet.*move it away"):
        dataset.read(TRANSACTIONS)


def test_columns_added_later_read_as_null(dataset: Dataset) -> None:
    """A file written before a nullable column existed still reads."""
    older = Table(
        name="coverage",
        doc=COVERAGE.doc,
        grain=COVERAGE.grain,
        sort=COVERAGE.sort,
        day_column=COVERAGE.day_column,
        columns=tuple(column for column in COVERAGE.columns if column.name != "detail"),
    )
    row = {"node": "n", "session": "s", "topic": "rawtx", "from_at": 1, "to_at": 2, "n_messages": 0}
    dataset.write(older, [row | {"end_reason": "shutdown"}], stem="x")

    assert dataset.read(COVERAGE).column("detail").to_pylist() == [None]


FULL_DISK = """
import os, resource, signal, sys
from pathlib import Path
import pyarrow as pa
from collector.errors import DatasetError
from collector.dataset.schema import REJECTS
from collector.dataset.open import Dataset

dataset = Dataset.open(Path(sys.argv[1]), "regtest")
row = {"node": "n", "session": "s", "received_at": 0, "topic": "rpc", "reason": "r"}
row["body"] = os.urandom(50_000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    dataset.write(REJECTS, [row], stem="x")
except DatasetError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_leaves_no_half_file(dataset: Dataset) -> None:
    """When the disk is full the error names the file, and no partial file stays."""
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(dataset.root)], capture_output=True, text=True, check=False
    )

    assert (result.returncode, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "date=1970-01-01/x.parquet" in result.stderr
    assert list((dataset.folder / "rejects" / "date=1970-01-01").iterdir()) == []


def test_readers_that_know_hive_partitioning_see_the_heights_as_written(dataset: Dataset) -> None:
    """DuckDB and pandas, asked without an option, give the column `height` of the rows."""
    dataset.write(BLOCKS, [block_row() | {"height": height} for height in (7, 1007)], stem="x")

    found = duckdb.read_parquet(f"{dataset.root}/*/blocks/**/*.parquet").order("height")

    assert found.project("height").fetchall() == [(7,), (1007,)]
    assert sorted(pd.read_parquet(dataset.folder / "blocks").height) == [7, 1007]
