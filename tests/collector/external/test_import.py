"""Test that other publishers' files are imported whole with their origin, or refused with file and line."""

import contextlib
import csv
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import (
    BLOCK_ARRIVALS,
    BLOCKS,
    EXTERNAL_ACCELERATED,
    EXTERNAL_ARRIVALS,
    EXTERNAL_BLOCKS,
    EXTERNAL_POOL_LABELS,
    EXTERNAL_PRICES,
    EXTERNAL_SOURCES,
    hash_hex,
)
from collector.errors import DatasetError, DecodeError, SettingsError
from collector.external import imported_rows, readers
from collector.external.imported_rows import Imported, Origin, read_import, store_import
from collector.external.kinds import KINDS
from collector.external.readers import read_rows

ORIGIN = Origin("somebody", "CC0", "https://example.org/file")
HASHES = [f"{i:064x}" for i in range(1, 4)]
ARRIVALS = "height,hash,timestamp_ms\n" + "".join(
    f"{900_000 + i},{block_hash},{1_700_000_000_123 + i}\n" for i, block_hash in enumerate(HASHES)
)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Create an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "main", create=True)


def written(folder: Path, content: str, name: str = "file.csv") -> Path:
    """Write a file to import; return its path."""
    path = folder / name
    path.write_text(content)
    return path


def import_file(
    dataset: Dataset, kind: str, path: Path, origin: Origin, *, currency: str = "USD"
) -> Imported:
    """Read a file and store its rows, as the command does."""
    return store_import(dataset, read_import(kind, path, origin, currency=currency))


def test_arrivals_are_stored_with_their_origin_and_apart_from_ours(dataset: Dataset, tmp_path: Path) -> None:
    """Arrivals keep milliseconds and hashes in internal order, and none is in `block_arrivals`."""
    result = import_file(dataset, "arrivals", written(tmp_path, ARRIVALS), ORIGIN)

    rows = dataset.read(EXTERNAL_ARRIVALS).to_pylist()
    assert (result.n_rows, result.n_new) == (3, 3)
    assert [hash_hex(row["block_hash"]) for row in rows] == HASHES
    assert rows[0]["arrived_at"] == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert {row["source"] for row in rows} == {"somebody"}
    (about,) = dataset.read(EXTERNAL_SOURCES).to_pylist()
    assert (about["licence"], about["url"], about["file_name"]) == ("CC0", ORIGIN.url, "file.csv")
    assert len(dataset.read(BLOCK_ARRIVALS)) == len(dataset.read(BLOCKS)) == 0


@pytest.mark.parametrize("named", ["seller", "pool"])
def test_known_accelerated_transactions_are_stored(dataset: Dataset, tmp_path: Path, named: str) -> None:
    """A transaction may have several sellers; a txid that is none is refused with its line."""
    lines = [f"{HASHES[0]},Alpha", f"{HASHES[0]},Accelerator", f"{HASHES[1]},Alpha"]
    path = written(tmp_path, "\n".join([f"txid,{named}", *lines]))

    assert import_file(dataset, "accelerated", path, ORIGIN) == ("external_accelerated", 3, 3)

    rows = dataset.read(EXTERNAL_ACCELERATED).to_pylist()
    assert [f"{hash_hex(row['txid'])},{row['seller']}" for row in rows] == [lines[1], lines[0], lines[2]]
    with pytest.raises(DecodeError, match=r"file.csv:2: txid: '1234' is not a hash"):
        read_rows("accelerated", written(tmp_path, f"txid,{named}\n1234,Alpha\n"))


def test_a_second_import_adds_only_what_is_new(dataset: Dataset, tmp_path: Path) -> None:
    """Importing the same file again changes nothing; a longer one adds only its new rows."""
    import_file(dataset, "arrivals", written(tmp_path, ARRIVALS), ORIGIN)
    before = sorted(dataset.root.rglob("*.parquet"))

    assert import_file(dataset, "arrivals", written(tmp_path, ARRIVALS), ORIGIN).n_new == 0
    assert sorted(dataset.root.rglob("*.parquet")) == before

    longer = ARRIVALS + f"900003,{'ab' * 32},1700000009000\n"
    assert import_file(dataset, "arrivals", written(tmp_path, longer), ORIGIN).n_new == 1
    assert len(dataset.read(EXTERNAL_ARRIVALS)) == 4


def test_a_source_that_contradicts_itself_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    """Another time for a stored block is an error that names it, and nothing is written."""
    import_file(dataset, "arrivals", written(tmp_path, ARRIVALS), ORIGIN)
    other = written(tmp_path, ARRIVALS.replace("1700000000123", "1700000000999"))

    with pytest.raises(DatasetError, match=f"said otherwise about {HASHES[0]}") as refused:
        import_file(dataset, "arrivals", other, ORIGIN)
    was, now = (f"2023-11-14 22:13:20.{ms}000+00:00" for ms in (123, 999))
    assert "file.csv, row 1: somebody said" in str(refused.value)
    assert f"before (arrived_at was {was}, is now {now}), and" in str(refused.value)

    assert len(dataset.read(EXTERNAL_ARRIVALS)) == 3
    assert import_file(dataset, "arrivals", other, ORIGIN._replace(source="another")).n_new == 3


def test_a_file_that_is_read_in_another_way_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    """Corrected columns or another currency never seem to be stored when the first reading stays."""
    path = written(tmp_path, "day,a,b\n2020-01-01,7000,7200\n2020-01-02,7000,7000\n")

    def prices(close: str, currency: str = "USD") -> Imported:
        file = read_import("prices", path, ORIGIN, currency=currency, theirs={"close": close})
        return store_import(dataset, file)

    assert (prices("a").n_new, prices("a").n_new) == (2, 0)
    with pytest.raises(
        DatasetError, match=r"row 1: .*close was 7000\.0, is now 7200\.0.*--source somebody-2"
    ):
        prices("b")
    with pytest.raises(
        DatasetError, match=r"file\.csv: This file was imported before .* 2 of its rows differ now"
    ):
        prices("a", "EUR")

    assert [row["close"] for row in dataset.read(EXTERNAL_PRICES).to_pylist()] == [7000, 7000]
    assert len(dataset.read(EXTERNAL_SOURCES)) == 1


def test_a_file_costs_its_own_rows_however_many_are_stored(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the stored rows only those about the same things are looked at one by one."""
    labels = "height,pool\n" + "".join(f"{height},a\n" for height in range(1_000))
    import_file(dataset, "labels", written(tmp_path, labels), ORIGIN)
    few = written(tmp_path, "height,pool\n4,a\n2000,b\n", "few.csv")
    keys = []
    key = imported_rows._key
    monkeypatch.setattr(imported_rows, "_key", lambda table, row: keys.append(key(table, row)) or keys[-1])

    assert [import_file(dataset, "labels", few, ORIGIN).n_new for _ in range(2)] == [1, 0]
    assert len(keys) == (2 + 2 + 1) + (2 + 2 + 2)  # two of the file twice, and those that are stored


def test_a_contradiction_shows_both_values(dataset: Dataset, tmp_path: Path) -> None:
    """The error names the row of the file, what was said before and what the file says now."""
    import_file(dataset, "labels", written(tmp_path, "height,pool\n4,a\n5,F2Pool\n"), ORIGIN)
    other = written(tmp_path, "height,pool\n4,a\n5,Ant\x1b[31mPool\n", "newer.csv")

    with pytest.raises(
        DatasetError, match=r"newer.csv, row 2: .*5 before \(label was F2Pool, is now Ant\[31mP"
    ):
        import_file(dataset, "labels", other, ORIGIN)


def test_prices_by_day_from_csv(dataset: Dataset, tmp_path: Path) -> None:
    """A CSV file may have one price a day, or open, high, low and close."""
    one = written(tmp_path, "currency,date_UTC,price_USD\nBTC,2016-01-06T00:00:00Z,432.4\n", "one.csv")
    four = written(tmp_path, "date,open,high,low,close\n2016-01-06,430,435,429.5,432\n", "four.csv")

    import_file(dataset, "prices", one, ORIGIN)
    import_file(dataset, "prices", four, ORIGIN._replace(source="other"), currency="EUR")

    rows = {row["source"]: row for row in dataset.read(EXTERNAL_PRICES).to_pylist()}
    assert (rows["somebody"]["close"], rows["somebody"]["open"]) == (432.4, None)
    assert (rows["other"]["low"], rows["other"]["currency"]) == (429.5, "EUR")
    assert rows["other"]["day_at"] == datetime(2016, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("arrivals", "", "is empty"),
        ("arrivals", "height,when\n1,2\n", "has no column hash.*`pool-collector import KIND FILE --columns`"),
        ("arrivals", "height,hash,timestamp_ms\n1,zz,1700000000000\n", ":2: block_hash"),
        ("arrivals", f"height,hash,timestamp_ms\n1,{HASHES[0]},99\n", "before the first block"),
        ("arrivals", f"height,hash,timestamp_ms\n1,{HASHES[0]},99999999999999\n", "in the future"),
        ("arrivals", f"height,hash,timestamp_ms\n-1,{HASHES[0]},1700000000000\n", "is not within"),
        ("arrivals", "height,hash,timestamp_ms\n1,2\n", "has 2 fields"),
        ("labels", "height,pool\n1,\n", "is no name"),
        ("labels", "height,pool,time\n1,a,2023-07-24\n", "'2023-07-24' has no time of day; write one, like"),
        ("labels", "height,pool\n1,a\n1,b\n", "as an earlier one is"),
        ("labels", 'height,pool\n1,a\n2,"b\n', "unexpected end of data"),
        ("labels", 'height,pool\n1,"a\n2,b\n3,"c"\n', "is no table: ',' expected after"),
        ("labels", "height,pool,pool\n1,a,b\n", "has several columns pool; rename"),
        ("prices", "date,price\n2016-01-06,nan\n", "is no price"),
        ("prices", "date,price\n2016-13-06,4\n", "day_at"),
        ("prices", "date,price\n2016-01-06,-4\n", "is no price"),
        ("prices", "date,open,high,low,close\n2016-01-06,10,5,20,9\n", ":2: open 10, high 5.*between"),
        ("prices", "date,high,close\n2016-01-06,5,9\n", "between lowest and highest"),
    ],
)
def test_bad_files_are_refused_whole(
    kind: str, content: str, message: str, dataset: Dataset, tmp_path: Path
) -> None:
    """One bad value in a file refuses all its rows."""
    with pytest.raises((DecodeError, DatasetError), match=message):
        import_file(dataset, kind, written(tmp_path, content), ORIGIN)

    assert not list(dataset.root.rglob("*.parquet"))


@pytest.mark.parametrize(
    "prices", ["{}", "[[1, 2]]", "[[1, 2, 3, 2.5]]", "[", "[[1, 2, -1, 1]]", f"[[{'1' * 5000}, 1, 1, 1]]"]
)
def test_bad_json_prices_are_refused(prices: str, tmp_path: Path) -> None:
    """A JSON file of prices with any fault raises a DecodeError."""
    with pytest.raises(DecodeError):
        read_rows("prices", written(tmp_path, prices, "file.json"))


def test_a_null_in_a_parquet_file_is_no_name(tmp_path: Path) -> None:
    """A null label in a Parquet file is refused; it does not become the text None."""
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"height": [1, 2], "label": ["a", None]}), path)

    with pytest.raises(DecodeError, match="row 2: label: '' is no name"):
        read_rows("labels", path)


def test_an_origin_is_demanded(dataset: Dataset, tmp_path: Path) -> None:
    """An import without a licence or with an unusable source name is refused."""
    path = written(tmp_path, ARRIVALS)

    with pytest.raises(SettingsError, match="--licence is empty"):
        import_file(dataset, "arrivals", path, ORIGIN._replace(licence=" "))
    with pytest.raises(SettingsError, match="--url 'notaurl' is no address; write one like https://"):
        import_file(dataset, "arrivals", path, ORIGIN._replace(url="notaurl"))
    with pytest.raises(SettingsError, match="no short name"):
        import_file(dataset, "arrivals", path, ORIGIN._replace(source="../x"))


@pytest.mark.parametrize("name", ["licence", "url"])
def test_an_origin_is_text(name: str, dataset: Dataset, tmp_path: Path) -> None:
    """Bytes of the command line that are not UTF-8 are refused before anything is stored."""
    path, strange = written(tmp_path, ARRIVALS), os.fsdecode(b"https://example.org/\xff")

    with pytest.raises(SettingsError, match=f"--{name} .* is not text in UTF-8"):
        import_file(dataset, "arrivals", path, ORIGIN._replace(**{name: strange}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([2**62], pa.timestamp("us")), r"timestamp\[us\] that cannot be read: date value out of"),
        (pa.array([2**30], pa.date32()), r"date32\[day\] that cannot be read: days="),
        (pa.array([2**62], pa.duration("s")), r"duration\[s\] that cannot be read"),
        (pa.array([9**9], pa.timestamp("s", "Europe/Nope")), "cannot be read: .*Europe/Nope"),
    ],
)
def test_a_time_that_cannot_be_held_is_refused(values: pa.Array, said: str, tmp_path: Path) -> None:
    """A Parquet file may hold times beyond the calendar, and zones that there are not."""
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"height": [1], "label": ["a"], "date": values}), path)

    with pytest.raises(DecodeError, match=rf"labels\.parquet, column date has a value of type .*{said}"):
        read_rows("labels", path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Nothing says which of two Parquet columns called `label` is meant."""
    path = tmp_path / "labels.parquet"
    columns = [pa.array([1]), pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.table(columns, names=["height", "label", "label"]), path)

    with pytest.raises(DecodeError, match="has several columns label"):
        read_rows("labels", path)


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    content=st.binary(max_size=200),
    suffix=st.sampled_from([".csv", ".json", ".parquet"]),
)
def test_nothing_but_a_refusal_comes_of_garbage(
    kind: str, content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any bytes in any kind of file give rows or a DecodeError."""
    path = tmp_path_factory.mktemp("garbage") / f"file{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(DecodeError):
        assert isinstance(read_rows(kind, path), list)


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    """A device or a pipe is refused without being opened."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe, tmp_path):
        with pytest.raises(DecodeError, match="no file that can be read to its end"):
            read_rows("labels", path)


def test_a_file_that_is_one_endless_line_is_refused_at_its_beginning(tmp_path: Path) -> None:
    """A sparse gigabyte of zeros is refused after its first megabyte, which is one line."""
    path = written(tmp_path, "")
    os.truncate(path, readers.MAX_FILE_BYTES)
    with pytest.raises(DecodeError, match="has a line of 1,048,576 characters or more"):
        read_rows("labels", path)
    os.truncate(path, readers.MAX_FILE_BYTES + 1)
    with pytest.raises(DecodeError, match="more than 1,073,741,824; split it"):
        read_rows("labels", path)


def test_a_parquet_file_that_unfolds_to_too_much_is_refused(tmp_path: Path) -> None:
    """Small Parquet files with too many rows, too long texts or lists are refused."""
    path = tmp_path / "labels.parquet"
    n_rows = readers.MAX_ROWS + 1
    heights = np.zeros(n_rows, np.int32)
    names = pa.DictionaryArray.from_arrays(np.zeros(n_rows, np.int8), ["a"])
    pq.write_table(pa.table({"height": heights, "label": names}), path)
    assert path.stat().st_size < 50_000
    with pytest.raises(DecodeError, match="2,000,001 rows, more than 2,000,000; split it"):
        read_rows("labels", path)
    pq.write_table(pa.table({"height": range(1000), "label": ["a" * 1_000_000] * 1000}), path)
    with pytest.raises(DecodeError, match="a value of more than"):
        read_rows("labels", path)
    pq.write_table(pa.table({"height": [1], "label": [["a", "b"]]}), path)
    with pytest.raises(DecodeError, match="column label holds several values in a row"):
        read_rows("labels", path)


@pytest.mark.parametrize(
    ("n_days", "message"),
    [(20_000, "day 6.*in the future"), (1_500_000, "day 6.*in the future"), (3_000_000, "split it")],
)
def test_prices_of_days_to_come_are_refused(n_days: int, message: str, tmp_path: Path) -> None:
    """A price of a day in the future is refused, even beyond the years of the calendar."""
    with pytest.raises(DecodeError, match=message):
        read_rows("prices", written(tmp_path, f"[{','.join(['[1,1,1,1]'] * n_days)}]", "days.json"))


def say_import(monkeypatch: pytest.MonkeyPatch, path: Path, dataset: Path) -> None:
    """Let the command line be one that imports labels from a file."""
    origin = ("--source", "me", "--licence", "none", "--url", "https://example.org")
    words = ["pool-collector", "import", "labels", str(path), *origin, "--dataset", str(dataset)]
    monkeypatch.setattr(sys, "argv", words)


def test_a_refused_import_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused file leads to one error line and status 1, and no dataset is made."""
    path = written(tmp_path, "height,pool\n1,a\n1,b\n")
    say_import(monkeypatch, path, tmp_path / "ds")

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file.csv"]


def test_a_file_name_need_not_be_text(dataset: Dataset, tmp_path: Path) -> None:
    """Bytes of a file name that are not UTF-8 are replaced in the stored name."""
    path = tmp_path / os.fsdecode(b"labels-\xff.csv")
    path.write_text("height,pool\n1,a\n")

    assert import_file(dataset, "labels", path, ORIGIN).n_new == 1

    (about,) = dataset.read(EXTERNAL_SOURCES).to_pylist()
    assert about["file_name"] == "labels-\ufffd.csv"


def test_the_command_imports_and_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints the number of rows and stores hostile names as plain data."""
    label = "<script>\x1b[31m'; drop table x"
    path = written(tmp_path, f'height,pool\n5,"{label}"\n')
    say_import(monkeypatch, path, tmp_path / "ds")

    with pytest.raises(SystemExit) as ended:
        main()

    assert not ended.value.code
    assert "1 of them new" in capsys.readouterr().out
    stored = Dataset.open(tmp_path / "ds", "main").read(EXTERNAL_POOL_LABELS).to_pylist()
    assert [row["label"] for row in stored] == [label]


@pytest.mark.data
def test_published_files_are_taken_as_they_are(data_dir: Path, dataset: Dataset) -> None:
    """Real files of providers (blocks, labels, prices) can be imported unchanged."""
    path = data_dir / "blockchair-2025-03" / "blockchair_bitcoin_blocks_20250301.tsv"
    with path.open() as lines:
        first = next(csv.DictReader(lines, delimiter="\t"))

    import_file(dataset, "blocks", path, ORIGIN)
    import_file(dataset, "labels", data_dir / "paper" / "miningpool.csv", ORIGIN)
    parquet = data_dir / "pool-labels-610683-699999.parquet"
    import_file(dataset, "labels", parquet, ORIGIN._replace(source="other"))
    import_file(dataset, "prices", data_dir / "paper" / "bitcoin_price.csv", ORIGIN)
    ohlc = data_dir / "brk" / "date_price_ohlc.json"
    import_file(dataset, "prices", ohlc, ORIGIN._replace(source="other"))

    row = dataset.read(EXTERNAL_BLOCKS).to_pylist()[0]
    assert hash_hex(row["block_hash"]) == first["hash"]
    assert (row["height"], row["fees_sat"], row["pool_label"]) == (885784, 14852635, "AntPool")
    labels = dataset.read(EXTERNAL_POOL_LABELS)
    assert labels.filter(pa.compute.equal(labels["source"], "other")).num_rows == 89_317
    prices = dataset.read(EXTERNAL_PRICES)
    days = dict(zip(prices["day_at"].to_pylist(), prices["source"].to_pylist(), strict=True))
    n_days = sum(any(day) for day in json.loads(ohlc.read_text()))
    assert prices.filter(pa.compute.equal(prices["source"], "other")).num_rows == n_days
    assert max(days) == datetime(2026, 2, 12, tzinfo=UTC)
