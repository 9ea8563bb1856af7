"""Test the journal: after any crash, what was flushed is in the dataset once or comes back once."""

import errno
import fcntl
import os
import random
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from collector.dataset.files import is_lock_held
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import MEMPOOL_EVENTS, REJECTS
from collector.errors import DatasetError, NotWritable
from collector.journal.journal import Journal
from collector.journal.segment import Segment
from tests.collector.journal.journal_files import message, one_descriptor_left, row, sealed, segments


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of the journal's folder."""
    return tmp_path / "journal"


def test_a_run_without_a_crash_seals_every_row_once(folder: Path, dataset: Dataset) -> None:
    """Rows of several flushes and seals are in the dataset, and the journal is empty."""
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
    """Rows given one by one and as an Arrow batch, in one flush for one table, are all in the dataset."""
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
    """A recovery after a stop seals the rows and returns the messages, until these are marked consumed."""
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


def test_messages_without_rows_survive_a_seal(folder: Path, dataset: Dataset) -> None:
    """A seal removes the segment that contains a waiting message, but not the message."""
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


def test_states_are_kept_until_they_are_removed(folder: Path, dataset: Dataset) -> None:
    """The next run finds the last value that was set under a name, also after a seal."""
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


def test_what_was_not_flushed_is_not_recovered(folder: Path, dataset: Dataset, tmp_path: Path) -> None:
    """A copy of the folder, as a crash leaves it, holds what was flushed and nothing else."""
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
    """A segment that was sealed and not yet removed adds nothing to the dataset."""
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


def test_a_row_that_breaks_the_contract_is_kept_as_a_reject(folder: Path, dataset: Dataset) -> None:
    """The reject names the column; other rows are not affected. An unknown table is an error."""
    journal = Journal(folder)
    journal.recover(dataset)
    journal.append("mempool_events", [row(message(1))])
    journal.flush()
    journal.append("mempool_events", [row(message(2)) | {"event": "Z"}])
    journal.flush()
    with pytest.raises(DatasetError, match="no table 'blox'"):
        journal.append("blox", [])
    journal.close()

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
    assert sealed(dataset) == [1]
    (kept,) = dataset.read(REJECTS).to_pylist()
    assert "mempool_events.event is 'Z'" in kept["reason"]


def test_an_unflushed_step_is_dropped_as_a_whole(folder: Path, dataset: Dataset) -> None:
    """After an error between rows and the mark of their messages, closing the journal writes neither."""
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
    """Append one row of a table that exists, then one of a table that does not, which raises an error."""
    journal.append("mempool_events", [row(message(1))])
    journal.append("blox", [])
    journal.mark_consumed(1)


def test_rows_of_an_unknown_table_are_kept(folder: Path, dataset: Dataset) -> None:
    """A seal refuses a segment with a table of a newer version, and the segment stays."""
    folder.mkdir()
    segment = Segment.create(folder, 1)
    segment.write({"sightings": pa.record_batch({"node": ["n"]})})
    segment.close()

    with Journal(folder) as journal, pytest.raises(DatasetError, match="no table 'sightings'"):
        journal.recover(dataset)
    assert segments(folder) == [segment.path]


def test_more_messages_than_wait_cannot_be_consumed(folder: Path, dataset: Dataset) -> None:
    """Marking more messages as consumed than are waiting raises an error."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1), message(2)])
        journal.mark_consumed(1)
        with pytest.raises(ValueError, match="1 are waiting"):
            journal.mark_consumed(2)


def test_a_journal_has_one_owner(folder: Path, dataset: Dataset) -> None:
    """A second journal on the folder is refused, with an error that names the folder."""
    with Journal(folder) as journal:
        journal.recover(dataset)
        with pytest.raises(DatasetError, match="in use by another process"):
            Journal(folder)
    Journal(folder).close()


def test_a_file_system_without_locks_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be locked, as on some network disks, no other process is made up."""

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DatasetError, match=r"cannot be locked \(No locks available\); use a file system"):
        Journal(folder)
    assert not is_lock_held(next(folder.glob("*lock*")))


def test_a_journal_that_cannot_be_opened_stays_free(folder: Path) -> None:
    """Without a descriptor for its list of files a journal is opened later, by the same process too."""
    Journal(folder).close()
    with one_descriptor_left(), pytest.raises(NotWritable, match="Too many open files"):
        Journal(folder)
    Journal(folder).close()


def test_a_segment_that_cannot_be_begun_leaves_nothing(folder: Path) -> None:
    """An attempt that fails keeps no descriptor and no file, or repeating it would never succeed."""
    folder.mkdir()
    with one_descriptor_left():
        with pytest.raises(OSError, match="Too many open files"):
            Segment.create(folder, 1)
        os.close(os.dup(0))
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """A file in the place of a folder gives an error that names the path, and says to move the file."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "journal"):
        with pytest.raises(DatasetError, match=f"cannot use the journal {folder}: .* is a file.*; move that"):
            Journal(folder)


@pytest.mark.parametrize("fsync_interval_s", [None, 0.0, 3600.0])
def test_every_fsync_interval_writes_the_same(
    folder: Path, dataset: Dataset, fsync_interval_s: float | None
) -> None:
    """Each fsync interval gives the same rows and messages; it matters only for a power cut."""
    with Journal(folder, fsync_interval_s=fsync_interval_s) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)])
        journal.flush()
        journal.flush()
    with Journal(folder) as journal:
        assert journal.recover(dataset) == [message(1)]


def test_a_dataset_that_takes_no_rows_loses_none(folder: Path, dataset: Dataset) -> None:
    """While sealing fails, old and new rows stay in the journal; a later seal writes all of them."""
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
    """A block of several megabytes passes through the journal into a reject row, byte for byte."""
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


def test_a_second_close_closes_no_other_file(folder: Path, dataset: Dataset) -> None:
    """A second close closes no file that was opened since the first and got the same handle."""
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


@pytest.mark.parametrize("is_sealing", [False, True])
def test_a_removed_folder_is_not_called_safe(folder: Path, dataset: Dataset, *, is_sealing: bool) -> None:
    """After the folder is removed, a flush or seal raises an error that names the loss.

    A new journal works.
    """
    journal = Journal(folder)
    journal.recover(dataset)
    journal.make_ring("n", "s", ("sequence",))
    journal.append("mempool_events", [row(message(1))])
    journal.flush()
    shutil.rmtree(folder)
    journal.append("mempool_events", [row(message(2))])
    act = partial(journal.seal, dataset) if is_sealing else journal.flush
    with pytest.raises(DatasetError, match=r"journal.*was removed.*not sealed is lost") as raised:
        act()
    assert "safe" not in str(raised.value)
    journal.close()

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
        journal.append("mempool_events", [row(message(3))])
        journal.seal(dataset)
    assert sealed(dataset) == [3]
