"""Test that many files become one with the same rows, in the contract's order and with its metadata."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from collector.check.model import BREACH
from collector.check.run import check
from collector.cli import app
from collector.compaction import replacement
from collector.compaction.run import PartitionResult, compact
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import read_file
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS, REJECTS, TRANSACTIONS, Table
from collector.errors import DatasetError
from collector.journal.journal import Journal
from tests.collector.compaction.made_files import (
    MIDNIGHT_US,
    block,
    event,
    files,
    flip_a_bit_unseen_by_duckdb,
    seen,
    transaction,
    write_events,
)

TODAY = dt.date(2024, 10, 5)
DAY = "date=2024-10-04"


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Make an empty dataset; compaction removes its replaced folders without a wait."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def compacted(dataset: Dataset) -> dict[str, PartitionResult]:
    """Compact a dataset; return the results by partition."""
    return {outcome.partition: outcome for outcome in compact(dataset, today=TODAY)}


def test_the_files_of_a_closed_day_become_one_with_the_same_rows(dataset: Dataset) -> None:
    """Every row is there once, sorted; schema, metadata and compression are the contract's."""
    n_rows = write_events(dataset, 12, 20)
    before = seen(dataset, MEMPOOL_EVENTS)

    outcome = compacted(dataset)[f"mempool_events/{DAY}"]

    assert outcome.merged is not None
    assert (outcome.n_files, outcome.merged.n_rows, outcome.merged.n_removed) == (12, n_rows, 0)
    assert outcome.merged.bytes_after < outcome.merged.bytes_before
    (path,) = dataset.paths(MEMPOOL_EVENTS)
    assert seen(dataset, MEMPOOL_EVENTS) == before
    file = pq.ParquetFile(path, page_checksum_verification=True)
    assert file.schema_arrow.equals(MEMPOOL_EVENTS.arrow, check_metadata=True)
    rows = file.read().select(list(MEMPOOL_EVENTS.sort)).to_pylist()
    assert rows == sorted(rows, key=lambda row: tuple(row.values()))
    group = file.metadata.row_group(0)
    assert group.column(0).compression == "ZSTD"
    assert [file.schema_arrow.names[key.column_index] for key in group.sorting_columns] == [
        *MEMPOOL_EVENTS.sort
    ]
    assert files(dataset.root / ".compaction" / "regtest") == ["lock"]


def test_every_kind_of_column_survives(dataset: Dataset) -> None:
    """Lists, structs, nulls, times and hashes have the same values after compaction."""
    for height in range(1000):
        dataset.write(TRANSACTIONS, [transaction(height, index) for index in (1, 0)], stem=f"s{height % 9}")
    for part in range(3):
        rows = [block(height) for height in range(part, 1000, 3)]
        dataset.write(BLOCKS, rows, stem=f"b{part}")
    before = dataset.read(BLOCKS).sort_by("height"), dataset.read(TRANSACTIONS).num_rows

    compacted(dataset)

    assert len(dataset.paths(BLOCKS)) == 1
    assert dataset.read(BLOCKS).equals(before[0], check_metadata=True)
    assert dataset.read(TRANSACTIONS).num_rows == before[1]


def test_a_large_day_has_row_groups_of_one_size(dataset: Dataset) -> None:
    """Row groups have the writer's size whatever batches DuckDB gives, so that readers can skip them."""
    numbers = pa.array(range(150_000))
    row = {name: pa.repeat(pa.scalar(value), 150_000) for name, value in event(1).items()}
    rows = pa.table(
        {**row, "sequence": numbers, "received_at": pa.array(MIDNIGHT_US + i for i in range(150_000))}
    )
    rows = rows.set_column(rows.column_names.index("hash"), "hash", pa.repeat(pa.scalar(bytes(32)), 150_000))
    dataset.write(MEMPOOL_EVENTS, rows.slice(0, 70_000), stem="a")
    dataset.write(MEMPOOL_EVENTS, rows.slice(70_000), stem="b")

    compacted(dataset)

    metadata = pq.read_metadata(dataset.paths(MEMPOOL_EVENTS)[0])
    assert [metadata.row_group(at).num_rows for at in range(3)] == [65_536, 65_536, 18_928]


def test_the_day_that_goes_on_and_the_span_that_fills_are_left(dataset: Dataset) -> None:
    """Only days before today and spans that are full or not the last are merged."""
    write_events(dataset, 2, 5, day=1)
    for height in (5, 1005):
        for stem in ("a", "b"):
            dataset.write(BLOCKS, [block(height + (stem == "b"))], stem=stem)

    assert set(compacted(dataset)) == {"blocks/heights=0-999"}
    assert len(list((dataset.folder / "mempool_events" / "date=2024-10-05").iterdir())) == 2


def test_a_second_compaction_takes_in_what_came_late(dataset: Dataset) -> None:
    """A late file of a past day is merged by the next compaction; a third one does nothing."""
    write_events(dataset, 3, 5)
    compacted(dataset)
    dataset.write(MEMPOOL_EVENTS, [event(1000)], stem="late")
    before = seen(dataset, MEMPOOL_EVENTS)

    assert set(compacted(dataset)) == {f"mempool_events/{DAY}"}
    assert seen(dataset, MEMPOOL_EVENTS) == before
    assert compacted(dataset) == {}


def test_a_copy_of_a_row_goes_and_a_differing_one_stays(dataset: Dataset) -> None:
    """Of equal rows one stays; rows of a block with and without fees both stay and are counted."""
    dataset.write(BLOCKS, [block(1), block(2)], stem="live")
    dataset.write(BLOCKS, [block(1), block(2, fees_sat=7, source="blkfile")], stem="backfill")
    dataset.write(BLOCKS, [block(1001)], stem="next")

    merged = compacted(dataset)["blocks/heights=0-999"].merged

    assert merged is not None
    assert (merged.n_rows, merged.n_removed, merged.n_differing) == (3, 1, 1)
    assert [row["fees_sat"] for row in dataset.read(BLOCKS).slice(0, 3).to_pylist()].count(7) == 1


def test_a_file_that_its_journal_may_seal_again_is_not_merged(dataset: Dataset) -> None:
    """A file whose segment still exists is not merged, so that a repeated seal doubles no row."""
    folder = dataset.root / "journal" / "regtest" / "n"
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [event(number) for number in range(5)])
        journal.flush()
        (segment,) = folder.glob("*.journal")
        kept = segment.read_bytes()
        journal.seal(dataset)
    segment.write_bytes(kept)  # as a kill just before its removal leaves it
    for number in range(100, 104):
        dataset.write(MEMPOOL_EVENTS, [event(number)], stem=f"other-{number}")
    before = seen(dataset, MEMPOOL_EVENTS)

    assert compacted(dataset)[f"mempool_events/{DAY}"].n_files == 4
    assert segment.with_suffix(".parquet").name in files(dataset.folder / "mempool_events" / DAY)
    with Journal(folder) as journal:
        journal.recover(dataset)

    assert seen(dataset, MEMPOOL_EVENTS) == before
    assert compacted(dataset)[f"mempool_events/{DAY}"].n_files == 2
    assert seen(dataset, MEMPOOL_EVENTS) == before


def test_a_folder_that_cannot_be_read_is_left_and_named(dataset: Dataset) -> None:
    """A truncated file keeps its own partition from being merged, and no other."""
    write_events(dataset, 3, 5)
    write_events(dataset, 3, 5, day=-1)
    broken = dataset.folder / "mempool_events" / DAY / "seal-1.parquet"
    broken.write_bytes(broken.read_bytes()[:-9])
    before = {path.name: path.read_bytes() for path in broken.parent.iterdir()}

    outcomes = compacted(dataset)

    assert "seal-1" in outcomes[f"mempool_events/{DAY}"].error
    assert not outcomes["mempool_events/date=2024-10-03"].error
    assert {path.name: path.read_bytes() for path in broken.parent.iterdir()} == before
    assert files(dataset.root / ".compaction" / "regtest") == ["lock"]


def test_a_file_whose_checksum_is_wrong_is_left_and_named(dataset: Dataset) -> None:
    """DuckDB reads its wrong values without an error; a merged file would have right checksums of them."""
    write_events(dataset, 3, 5)
    write_events(dataset, 3, 5, day=-1)
    damaged = dataset.folder / "mempool_events" / DAY / "seal-1.parquet"
    flip_a_bit_unseen_by_duckdb(damaged, "hash")
    before = {path.name: path.read_bytes() for path in damaged.parent.iterdir()}

    outcomes = compacted(dataset)

    assert f"cannot read {damaged}: " in outcomes[f"mempool_events/{DAY}"].error
    assert not outcomes["mempool_events/date=2024-10-03"].error
    assert {path.name: path.read_bytes() for path in damaged.parent.iterdir()} == before
    with pytest.raises(DatasetError, match=f"cannot read {damaged}: .*checksum.*; move it away"):
        read_file(damaged, verify=True)
    assert len(dataset.read(MEMPOOL_EVENTS)) == 30  # a reader that writes nothing goes on


def test_heights_wait_while_a_backfill_writes(dataset: Dataset) -> None:
    """Spans are not merged during a backfill, which finds its transactions by file name."""
    for stem in ("a", "b"):
        dataset.write(BLOCKS, [block(5), block(1005)], stem=stem)
    write_events(dataset, 2, 3)

    with dataset.backfill_lock():
        outcomes = compacted(dataset)

    assert "backfill" in outcomes["blocks/heights=0-999"].error
    assert not outcomes[f"mempool_events/{DAY}"].error


@pytest.mark.parametrize("n_live", [0, 1])
def test_transactions_stay_while_their_blocks_are_away(dataset: Dataset, tmp_path: Path, n_live: int) -> None:
    """They may be on a disk that is not mounted, though a collector has stored another block since."""
    for number in range(2):
        stem = f"backfill-0-999-{number:016x}"
        dataset.write(BLOCKS, [block(number)], stem=stem)
        dataset.write(TRANSACTIONS, [transaction(number, 0)], stem=stem)
    dataset.write(TRANSACTIONS, [transaction(1000, 0)], stem="later")
    before = dataset.paths(TRANSACTIONS)
    folder = dataset.folder / BLOCKS.name
    folder.rename(tmp_path / "elsewhere")
    if n_live:
        dataset.write(BLOCKS, [block(900)], stem="live")

    (result,) = compact(dataset, today=TODAY)

    assert "has transactions of blocks that are not there; mount the disk" in result.error
    assert dataset.paths(TRANSACTIONS) == before


def test_journals_that_are_away_hold_unsealed_rows(dataset: Dataset, tmp_path: Path) -> None:
    """Where nobody can tell which files a journal will seal again, none is merged."""
    write_events(dataset, 2, 2)
    before = dataset.paths(MEMPOOL_EVENTS)
    journals = dataset.root / "journal"
    journals.symlink_to(tmp_path / "no-disk")

    (result,) = compact(dataset, today=TODAY)

    assert f"{journals} is a link to a folder that is not there" in result.error
    assert dataset.paths(MEMPOOL_EVENTS) == before


def test_one_compaction_at_a_time(dataset: Dataset) -> None:
    """A second compaction at the same time raises an error and changes nothing."""
    for day in (0, -1):
        write_events(dataset, 2, 3, day=day)
    first = compact(dataset, today=TODAY)
    next(first)
    with pytest.raises(DatasetError, match="another compaction"):
        compacted(dataset)
    assert len(list(first)) == 1


def test_without_a_swap_in_one_step_nothing_is_done(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system cannot exchange folders, an error says so and every file stays."""
    from collector.compaction import replacement

    def refuse(one: Path, _other: Path) -> None:
        raise OSError(22, "Invalid argument", str(one))

    monkeypatch.setattr(replacement, "exchange", refuse)
    write_events(dataset, 3, 2)
    with pytest.raises(DatasetError, match="cannot change places"):
        compacted(dataset)
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 3


def test_the_command_says_what_it_did_and_fails_where_it_could_not(dataset: Dataset) -> None:
    """Exit status 0 with a line per merged partition, 1 if one was left out."""
    write_events(dataset, 3, 5)
    write_events(dataset, 2, 5, day=-1)
    done = CliRunner().invoke(app, ["compact", str(dataset.root)])
    assert done.exit_code == 0
    assert "3 files are now one; 15 rows" in done.stdout
    dataset.write(REJECTS, [reject(0)], stem="a")
    dataset.write(REJECTS, [reject(1)], stem="b")
    (dataset.folder / "rejects" / DAY / "b.parquet").write_bytes(b"PAR1")
    failed = CliRunner().invoke(app, ["compact", str(dataset.root), "--json"])
    assert failed.exit_code == 1
    assert '"error": "cannot read' in failed.stdout
    none = CliRunner().invoke(app, ["compact", str(dataset.root.parent)])
    assert isinstance(none.exception, DatasetError)


def reject(number: int) -> dict[str, object]:
    """Make a row of rejects."""
    row = {"node": "n", "session": "s", "received_at": MIDNIGHT_US + number, "topic": "rpc"}
    return row | {"reason": "x", "body": bytes([number])}


def in_old_layout(dataset: Dataset, table: Table) -> list[str]:
    """Rename the folders by height of a table as earlier versions named them; return their names."""
    for folder in sorted((dataset.folder / table.name).iterdir()):
        folder.rename(folder.with_name(folder.name.replace("heights=", "height=")))
    return sorted(folder.name for folder in (dataset.folder / table.name).iterdir())


def test_folders_of_the_old_name_are_renamed_with_all_rows(dataset: Dataset) -> None:
    """Rows of old and new folders are read alike; compact moves every file, and a second run does nothing."""
    dataset.write(BLOCKS, [block(height) for height in (5, 1005, 2005)], stem="old")
    assert in_old_layout(dataset, BLOCKS) == ["height=0-999", "height=1000-1999", "height=2000-2999"]
    dataset.write(BLOCKS, [block(height) for height in (6, 1006)], stem="new")
    before = seen(dataset, BLOCKS)
    assert [row["height"] for row in dataset.read(BLOCKS).sort_by("height").to_pylist()] == [
        5,
        6,
        1005,
        1006,
        2005,
    ]
    assert "folders" not in {each.name for each in check(dataset) if each.status == BREACH}

    outcomes = compacted(dataset)

    moved = {name: outcome.moved_to for name, outcome in outcomes.items() if outcome.moved_to}
    assert moved == {
        "blocks/height=0-999": "heights=0-999",
        "blocks/height=1000-1999": "heights=1000-1999",
        "blocks/height=2000-2999": "heights=2000-2999",
    }
    assert files(dataset.folder / "blocks") == ["heights=0-999", "heights=1000-1999", "heights=2000-2999"]
    assert seen(dataset, BLOCKS) == before
    assert compacted(dataset) == {}


def test_a_file_that_is_written_again_stays_in_the_old_folder(dataset: Dataset) -> None:
    """A journal that seals a segment again after a kill finds its file under the old name of the folder."""
    dataset.write(BLOCKS, [block(5)], stem="seal-1")
    in_old_layout(dataset, BLOCKS)

    (path,) = dataset.write(BLOCKS, [block(5)], stem="seal-1")

    assert path.parent.name == "height=0-999"
    assert dataset.read(BLOCKS).num_rows == 1


def test_a_kill_while_files_move_loses_and_doubles_nothing(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each single move every row can be read once; the next run moves the rest."""
    for height in range(3):
        dataset.write(BLOCKS, [block(height)], stem=f"s{height}")
    in_old_layout(dataset, BLOCKS)
    before = seen(dataset, BLOCKS)
    move, moves = Path.rename, 0

    def killed(self: Path, target: Path) -> Path:
        nonlocal moves
        assert seen(dataset, BLOCKS) == before
        moves += 1
        if moves == 2:
            raise KeyboardInterrupt
        return move(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        compacted(dataset)
    monkeypatch.undo()
    assert len(files(dataset.folder / "blocks")) == 2
    assert seen(dataset, BLOCKS) == before
    compacted(dataset)
    assert files(dataset.folder / "blocks") == ["heights=0-999"]
    assert seen(dataset, BLOCKS) == before


def test_two_files_of_one_name_are_left_and_named(dataset: Dataset) -> None:
    """A file that is in both folders is never replaced: the folder stays, and the result says what to do."""
    dataset.write(BLOCKS, [block(1)], stem="same")
    in_old_layout(dataset, BLOCKS)
    other = Dataset.open(dataset.root.with_name("other"), "regtest", create=True)
    (path,) = other.write(BLOCKS, [block(2)], stem="same")
    path.parent.rename(dataset.folder / "blocks" / path.parent.name)

    outcome = compacted(dataset)["blocks/height=0-999"]

    assert "has a file same.parquet too; move one of them" in outcome.error
    assert len(seen(dataset, BLOCKS)) == 2
