"""Test that the tables of an Iceberg catalogue have the rows of the dataset, each once, at every moment."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyiceberg", reason="pip install '.[iceberg]'")

from collector.catalog import iceberg
from collector.catalog.iceberg import CatalogedTable, bring_up_to_date, own_catalog
from collector.cli import app
from collector.compaction import replacement
from collector.compaction.mend import mend
from collector.compaction.run import compact
from collector.dataset.files import lock_taken
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS, MEMPOOL_TXS, TRANSACTIONS, Table
from collector.errors import DatasetError, SettingsError
from tests.collector.compaction.made_files import block, event, seen, transaction, write_events
from tests.collector.compaction.test_compact import TODAY
from tests.collector.compaction.test_mend import entry, mined

FIRST_DAY = "received_at < '2024-10-05T00:00:00+00:00'"
# Ends like a power cut when the second table is done.
KILLED = """
import os, signal, sys
from pathlib import Path
from collector.catalog.iceberg import bring_up_to_date, own_catalog
from collector.dataset.open import open_existing
dataset = open_existing(Path(sys.argv[1]), None)
for table in bring_up_to_date(dataset, own_catalog(dataset)):
    if table.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Store events of two days in small files, and a block; compaction removes what it replaced at once."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    made = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(made, 3, 4)
    write_events(made, 2, 4, day=1, stem="next")
    made.write(BLOCKS, [block(height) for height in (999, 1000)], stem="blocks")
    return made


def update(dataset: Dataset) -> dict[str, CatalogedTable]:
    """Bring the dataset's own catalogue up to date; return the tables by name."""
    return {table.name: table for table in bring_up_to_date(dataset, own_catalog(dataset))}


def loaded(dataset: Dataset, table: Table) -> Any:
    """Load a table of the dataset's own catalogue as a stranger would."""
    return own_catalog(dataset).load_table((dataset.chain, table.name))


def rows(dataset: Dataset, table: Table, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Return the rows that Iceberg gives, sorted by their text."""
    found = loaded(dataset, table).scan().to_arrow().to_pylist()
    return sorted((tuple(row[name] for name in columns or row) for row in found), key=repr)


def expected(dataset: Dataset, table: Table, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Return the rows that DuckDB reads from the files, sorted by their text."""
    found = seen(dataset, table)
    return sorted((tuple(row[name] for name in columns or row) for row in found), key=repr)


def test_every_table_has_the_rows_of_its_files(dataset: Dataset) -> None:
    """Values, hashes, nested lists and times are those of the files; an empty table is there too."""
    made = update(dataset)

    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)
    assert rows(dataset, BLOCKS) == expected(dataset, BLOCKS)
    assert (made["mempool_events"].n_rows, made["mempool_events"].n_files) == (20, 5)
    assert made["mempool_events"].n_added == 5
    assert rows(dataset, TRANSACTIONS) == []


@pytest.mark.parametrize("has_files", [False, True])
def test_a_table_that_a_kill_left_half_made_is_completed(dataset: Dataset, *, has_files: bool) -> None:
    """Without names of columns no engine reads our files, which have no ids."""
    catalog = own_catalog(dataset)
    catalog.create_namespace(dataset.chain)
    name, schema = (dataset.chain, BLOCKS.name), iceberg.arrow_schema(BLOCKS)
    made = catalog.create_table(name, schema=schema, properties=iceberg.TABLE_PROPERTIES)
    if has_files:
        iceberg._Listing(made, BLOCKS).bring_up_to_date(iceberg._files(dataset, BLOCKS))

    update(dataset)

    assert rows(dataset, BLOCKS) == expected(dataset, BLOCKS)
    assert [field.name for field in loaded(dataset, BLOCKS).spec().fields] == ["heights"]


def test_a_percent_sign_in_the_path_is_no_escape(tmp_path: Path) -> None:
    """The catalogue lies in the folder that was named."""
    made = Dataset.open(tmp_path / "a%20b", "regtest", create=True)
    made.write(BLOCKS, [block(1)], stem="blocks")
    update(made)
    assert (made.root / "iceberg" / "catalog.db").is_file()
    assert rows(made, BLOCKS) == expected(made, BLOCKS)


def test_the_words_of_columns_and_tables_are_kept(dataset: Dataset) -> None:
    """An engine shows what our dictionary says."""
    update(dataset)

    events = loaded(dataset, MEMPOOL_EVENTS)
    assert {field.name: field.doc for field in events.schema().fields} == {
        column.name: column.doc for column in MEMPOOL_EVENTS.columns
    }
    assert events.properties["comment"] == MEMPOOL_EVENTS.doc


def test_a_filter_opens_the_files_of_its_day_alone(dataset: Dataset) -> None:
    """The partitions are the days of the time column and thousands of heights."""
    update(dataset)

    assert len(list(loaded(dataset, MEMPOOL_EVENTS).scan(row_filter=FIRST_DAY).plan_files())) == 3
    assert len(list(loaded(dataset, BLOCKS).scan(row_filter="height >= 1000").plan_files())) == 1


def test_a_call_without_news_makes_no_snapshot(dataset: Dataset) -> None:
    """Nothing is added twice."""
    first = update(dataset)

    again = update(dataset)

    assert [(table.n_added, table.n_removed) for table in again.values()] == [(0, 0)] * len(again)
    assert again["mempool_events"].metadata == first["mempool_events"].metadata
    assert len(loaded(dataset, MEMPOOL_EVENTS).metadata.snapshots) == 1


def test_new_files_become_a_new_snapshot_and_the_old_one_stays(dataset: Dataset) -> None:
    """A reader of the older snapshot still has its rows."""
    update(dataset)
    before = loaded(dataset, MEMPOOL_EVENTS).current_snapshot().snapshot_id
    dataset.write(MEMPOOL_EVENTS, [event(900), event(901)], stem="later")

    assert update(dataset)["mempool_events"].n_added == 1

    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)
    assert len(loaded(dataset, MEMPOOL_EVENTS).scan(snapshot_id=before).to_arrow()) == 20


def test_compacted_files_take_the_place_of_their_parts(dataset: Dataset) -> None:
    """Rows are there once; snapshots that name removed files are gone."""
    update(dataset)
    assert [result.error for result in compact(dataset, today=TODAY)] == [""]

    made = update(dataset)["mempool_events"]

    assert (made.n_added, made.n_removed, made.n_files) == (1, 3, 3)
    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)
    assert len(loaded(dataset, MEMPOOL_EVENTS).metadata.snapshots) == 1


def test_values_that_are_filled_in_place_are_read_anew(dataset: Dataset) -> None:
    """`mend` puts a file of the same name in the place of another."""
    dataset.write(TRANSACTIONS, [mined(2)], stem="mined")
    dataset.write(MEMPOOL_TXS, [entry(1), entry(2)], stem="entries")
    update(dataset)
    list(mend(dataset))

    made = update(dataset)["mempool_txs"]

    assert (made.n_added, made.n_removed) == (1, 1)
    assert rows(dataset, MEMPOOL_TXS, ["txid", "fee_sat"]) == expected(
        dataset, MEMPOOL_TXS, ["txid", "fee_sat"]
    )
    assert loaded(dataset, MEMPOOL_TXS).scan(row_filter="fee_sat = 1002").to_arrow().num_rows == 1


def test_a_file_of_the_same_size_is_read_anew(dataset: Dataset) -> None:
    """A change that keeps path and size is told by the time of the rename."""
    update(dataset)
    path = dataset.paths(MEMPOOL_EVENTS)[0]
    os.utime(path, (1, 1))  # what a tool that keeps times would do

    assert update(dataset)["mempool_events"].n_added == 1
    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)


def test_columns_that_older_files_lack_are_null(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that has got a column since is extended; rows of old and new files are read together."""
    old = Table(
        name=TRANSACTIONS.name,
        doc=TRANSACTIONS.doc,
        grain=TRANSACTIONS.grain,
        sort=TRANSACTIONS.sort,
        columns=tuple(column for column in TRANSACTIONS.columns if column.name != "spent_types"),
    )
    with monkeypatch.context() as patch:
        patch.setitem(iceberg.TABLES, TRANSACTIONS.name, old)
        old_row = {name: value for name, value in transaction(5, 1).items() if name != "spent_types"}
        dataset.write(old, [old_row], stem="old")
        update(dataset)
    dataset.write(TRANSACTIONS, [transaction(6, 1)], stem="new")

    update(dataset)

    assert rows(dataset, TRANSACTIONS, ["height", "spent_types"]) == [(5, None), (6, ["pubkey"])]


def test_a_killed_call_leaves_whole_tables(dataset: Dataset) -> None:
    """After SIGKILL each table has all of its files or none, and the next call adds what is missing."""
    command = [sys.executable, "-P", "-c", KILLED, str(dataset.root), "blocks"]
    ended = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr

    assert rows(dataset, BLOCKS) == expected(dataset, BLOCKS)
    assert update(dataset)["mempool_events"].n_added == 5
    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)


def test_a_second_call_at_the_same_time_is_refused(dataset: Dataset) -> None:
    """Two calls would add the same files."""
    with (
        lock_taken(dataset.folder / iceberg.CATALOG_LOCK, "here"),
        pytest.raises(DatasetError, match="another call of `pool-collector catalog` works on"),
    ):
        update(dataset)


def test_metadata_that_no_snapshot_names_is_removed_after_an_hour(dataset: Dataset) -> None:
    """Whoever opened a snapshot can read it for an hour."""
    for number in range(3):
        dataset.write(MEMPOOL_EVENTS, [event(500 + number)], stem=f"more-{number}")
        update(dataset)
        list(compact(dataset, today=TODAY))
    update(dataset)
    folder = dataset.root / iceberg.OWN_FOLDER / "regtest" / "mempool_events" / "metadata"
    before = set(folder.iterdir())
    long_ago = time.time() - 2 * iceberg.UNUSED_AFTER_S
    for path in before:
        os.utime(path, (long_ago, long_ago))

    update(dataset)

    left = set(folder.iterdir())
    assert left < before
    assert rows(dataset, MEMPOOL_EVENTS) == expected(dataset, MEMPOOL_EVENTS)


def test_a_moved_dataset_is_told(dataset: Dataset, tmp_path: Path) -> None:
    """The catalogue names paths, so it is made anew when asked to be."""
    update(dataset)
    moved = Dataset.open(dataset.root.rename(tmp_path / "moved"), "regtest")

    with pytest.raises(DatasetError, match="Was the dataset moved\\? Remove its folder iceberg"):
        update(moved)


def test_a_path_that_iceberg_cannot_name_is_refused(tmp_path: Path) -> None:
    """An address ends at a number sign."""
    made = Dataset.open(tmp_path / "a#b", "regtest", create=True)

    with pytest.raises(SettingsError, match="which Iceberg cannot name"):
        own_catalog(made)


def test_the_command_takes_a_catalogue_of_the_users_settings(dataset: Dataset, tmp_path: Path) -> None:
    """Settings of pyiceberg name it; the dataset's folder gets no catalogue then."""
    settings = {
        "PYICEBERG_CATALOG__LAB__TYPE": "sql",
        "PYICEBERG_CATALOG__LAB__URI": f"sqlite:///{tmp_path / 'lab.db'}",
        "PYICEBERG_CATALOG__LAB__WAREHOUSE": f"file://{tmp_path / 'lab'}",
    }
    command = [sys.executable, "-m", "collector", "catalog", str(dataset.root), "--catalog", "lab", "--json"]

    ended = subprocess.run(
        command, capture_output=True, timeout=120, check=True, text=True, env={**os.environ, **settings}
    )

    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {line["name"]: line["n_rows"] for line in lines}["mempool_events"] == 20
    assert (tmp_path / "lab").is_dir()
    assert not (dataset.root / iceberg.OWN_FOLDER).exists()


def test_an_unknown_catalogue_is_one_sentence(dataset: Dataset) -> None:
    """The settings of pyiceberg do not have it."""
    ended = CliRunner().invoke(app, ["catalog", str(dataset.root), "--catalog", "nowhere"])

    assert isinstance(ended.exception, SettingsError)
    assert "'nowhere' cannot be opened" in str(ended.exception)


def test_the_command_says_what_it_did(dataset: Dataset) -> None:
    """A line per table; what changed comes last."""
    ended = CliRunner().invoke(app, ["catalog", str(dataset.root)])

    assert ended.exit_code == 0
    assert "mempool_events: 20 rows in 5 files; 5 added\n" in ended.output
    assert "blocks: 2 rows in 2 files; 2 added\n" in ended.output
