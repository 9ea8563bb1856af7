"""Exactly once: whatever was flushed becomes rows or comes back as a message, after any crash."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS, REJECTS
from collector.dataset.writer import to_batch
from collector.errors import DatasetError
from collector.journal.journal import Journal
from collector.journal.segment import Segment
from tests.collector.journal.journal_files import message, row, sealed, segments


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Name the journal's folder."""
    return tmp_path / "journal"


def test_a_run_without_a_crash_seals_every_row_once(folder: Path, dataset: Dataset) -> None:
    """Rows appended in several flushes and seals lie in the dataset; the journal is empty."""
    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
        for first in range(0, 30, 10):
            messages = [message(number) for number in range(first, first + 10)]
            journal.append_messages(messages)
            journal.flush()
            journal.append("mempool_events", [row(one) for one in messages])
            journal.mark_consumed(10)
            journal.flush()
            assert journal.size_bytes > 0
            journal.seal(dataset)
            assert journal.size_bytes == 0

    assert sealed(dataset) == list(range(30))
    assert segments(folder) == []


def test_rows_come_one_by_one_or_as_columns(folder: Path, dataset: Dataset) -> None:
    """Both kinds, in one flush and for one table, are one frame and lie in the dataset."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [row(message(1))])
        columns = [row(message(2)), row(message(3))]
        journal.append("mempool_events", to_batch(MEMPOOL_EVENTS, columns))
        journal.append("mempool_events", [row(message(4))])
        journal.append("mempool_events", [])
        journal.flush()

    with Journal(folder) as journal:
        journal.recover(dataset)
    assert sealed(dataset) == [1, 2, 3, 4]


def test_messages_without_rows_come_back_in_order(folder: Path, dataset: Dataset) -> None:
    """After a stop, the rows are sealed and the unconsumed messages handed out, until they are consumed."""
    messages = [message(number) for number in range(5)]
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages(messages)
        journal.append("mempool_events", [row(one) for one in messages[:2]])
        journal.mark_consumed(2)
        journal.flush()

    for _ in range(3):  # each run that does not consume them passes them on
        with Journal(folder) as journal:
            assert journal.recover(dataset) == messages[2:]
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [row(one) for one in messages[2:]])
        journal.mark_consumed(3)
        journal.flush()
    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
    assert sealed(dataset) == [0, 1, 2, 3, 4]


def test_messages_waiting_at_a_seal_outlive_their_segment(folder: Path, dataset: Dataset) -> None:
    """A seal removes the segment that a waiting message was written to, but not the message."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1), message(2)])
        journal.append("mempool_events", [row(message(1))])
        journal.mark_consumed(1)
        journal.seal(dataset)
        journal.seal(dataset)

    with Journal(folder) as journal:
        assert journal.recover(dataset) == [message(2)]
    assert sealed(dataset) == [1]


def test_states_are_kept_until_they_are_forgotten(folder: Path, dataset: Dataset) -> None:
    """The last value set under a name is what the next run finds, across seals."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.set_state("a", b"1")
        journal.set_state("b", b"2")
        journal.flush()
        journal.seal(dataset)
        journal.set_state("a", b"\x00\xff")
        journal.set_state("b", None)
        journal.seal(dataset)
    with Journal(folder) as journal:
        journal.recover(dataset)
        assert journal.states == {"a": b"\x00\xff"}
        journal.set_state("a", None)
        journal.seal(dataset)
    with Journal(folder) as journal:
        journal.recover(dataset)
        assert journal.states == {}


def test_what_was_not_flushed_is_not_there(folder: Path, dataset: Dataset, tmp_path: Path) -> None:
    """A copy of the folder, as a crash leaves it, holds the flushed entries and no others."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)])
        journal.flush()
        journal.append_messages([message(2)])
        crashed = copy_of(folder, tmp_path / "crashed")

    with Journal(crashed) as journal:
        assert journal.recover(dataset) == [message(1)]


def copy_of(folder: Path, target: Path) -> Path:
    """Copy a journal folder as a crash at this moment would leave it."""
    target.mkdir()
    for segment in folder.glob("*.journal"):
        (target / segment.name).write_bytes(segment.read_bytes())
    return target


def test_a_crash_between_sealing_and_removing_writes_nothing_twice(
    folder: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """A segment that was sealed but is still there, beside its successor, changes nothing."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1), message(2)])
        journal.append("mempool_events", [row(message(1))])
        journal.mark_consumed(1)
        journal.flush()
        crashed = copy_of(folder, tmp_path / "crashed")
        journal.seal(dataset)
        for segment in segments(folder):
            (crashed / segment.name).write_bytes(segment.read_bytes())

    assert len(segments(crashed)) == 2
    with Journal(crashed) as journal:
        assert journal.recover(dataset) == [message(2)]
    assert sealed(dataset) == [1]


def test_a_row_that_breaks_the_contract_costs_no_other(folder: Path, dataset: Dataset) -> None:
    """The flush is refused with the column's name; earlier flushes stand."""
    journal = Journal(folder)
    journal.recover(dataset)
    journal.append("mempool_events", [row(message(1))])
    journal.flush()
    journal.append("mempool_events", [row(message(2)) | {"event": "Z"}])
    with pytest.raises(DatasetError, match=r"mempool_events\.event is 'Z'"):
        journal.flush()
    with pytest.raises(DatasetError, match="no table 'blox'"):
        journal.append("blox", [])
    journal.close()

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
    assert sealed(dataset) == [1]


def test_half_a_step_is_not_kept(folder: Path, dataset: Dataset) -> None:
    """When something fails between rows and their mark, leaving the journal does not part the two."""
    journal = Journal(folder)
    journal.recover(dataset)
    journal.append_messages([message(1)])
    journal.flush()
    with pytest.raises(DatasetError, match="no table 'blox'"), journal:
        append_rows_of_two_tables(journal)

    with Journal(folder) as journal:
        assert journal.recover(dataset) == [message(1)]
    assert sealed(dataset) == []


def append_rows_of_two_tables(journal: Journal) -> None:
    """Take a step that fails in its middle."""
    journal.append("mempool_events", [row(message(1))])
    journal.append("blox", [])
    journal.mark_consumed(1)


def test_rows_of_a_newer_version_are_not_thrown_away(folder: Path, dataset: Dataset) -> None:
    """A segment with a table that this version does not know is refused, and stays."""
    folder.mkdir()
    segment = Segment.create(folder, 1)
    segment.write({"sightings": pa.record_batch({"node": ["n"]})})
    segment.close()

    with Journal(folder) as journal, pytest.raises(DatasetError, match="no table 'sightings'"):
        journal.recover(dataset)
    assert segments(folder) == [segment.path]


def test_more_messages_than_wait_cannot_be_consumed(folder: Path, dataset: Dataset) -> None:
    """A count beyond the waiting messages, flushed or not, is the caller's mistake."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1), message(2)])
        journal.mark_consumed(1)
        with pytest.raises(ValueError, match="1 are waiting"):
            journal.mark_consumed(2)


def test_a_journal_has_one_owner(folder: Path, dataset: Dataset) -> None:
    """A second process, or a second journal in this one, is told what holds the folder."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        with pytest.raises(DatasetError, match="in use by another process"):
            Journal(folder)
    Journal(folder).close()


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """A file where the folder should be gives one sentence with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="cannot use the journal"):
        Journal(tmp_path / "file" / "journal")


@pytest.mark.parametrize("fsync_interval_s", [None, 0.0, 3600.0])
def test_every_fsync_policy_keeps_the_same_entries(
    folder: Path, dataset: Dataset, fsync_interval_s: float | None
) -> None:
    """The policy decides about power cuts, not about what is written."""
    with Journal(folder, fsync_interval_s=fsync_interval_s) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)])
        journal.flush()
        journal.flush()
    with Journal(folder) as journal:
        assert journal.recover(dataset) == [message(1)]


def test_a_dataset_that_takes_no_rows_loses_none(folder: Path, dataset: Dataset) -> None:
    """While sealing fails, entries stay in the journal, new ones are taken, and a later seal has all."""
    blocker = dataset.folder / "mempool_events"
    dataset.folder.mkdir()
    blocker.write_text("in the way")
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1), message(2), message(3)])
        for number in (1, 2):
            journal.append("mempool_events", [row(message(number))])
            journal.mark_consumed(1)
            with pytest.raises(DatasetError, match="cannot write"):
                journal.seal(dataset)
        assert len(segments(folder)) >= 2
        blocker.unlink()
        journal.seal(dataset)
    with Journal(folder) as journal:
        assert journal.recover(dataset) == [message(3)]
    assert sealed(dataset) == [1, 2]


def test_large_bodies_pass(folder: Path, dataset: Dataset) -> None:
    """A block of several megabytes goes through journal and reject row byte for byte."""
    body = random.Random(1).randbytes(4_000_000)  # noqa: S311 - test data
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)._replace(body=body)])
        journal.flush()
    with Journal(folder) as journal:
        (one,) = journal.recover(dataset)
        assert one.body == body
        reject = {"node": "n", "session": "s", "received_at": 1, "topic": "rawblock", "reason": "r"}
        journal.append("rejects", [reject | {"body": one.body}])
        journal.mark_consumed(1)
        journal.seal(dataset)
    assert dataset.read(REJECTS).column("body").to_pylist() == [body]


def test_a_second_close_touches_no_file_of_others(folder: Path, dataset: Dataset) -> None:
    """What was opened meanwhile may have the same number; and a node that failed is closed again."""
    journal = Journal(folder)
    journal.recover(dataset)
    journal.append_messages([message(1)])
    journal.flush()
    journal.close()
    with Journal(folder) as later:
        journal.close()
        assert later.recover(dataset) == [message(1)]
        with pytest.raises(DatasetError, match="in use by another process"):
            Journal(folder)
