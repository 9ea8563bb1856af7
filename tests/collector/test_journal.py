"""Exactly once: whatever was flushed becomes rows or comes back as a message, after any crash."""

import random
from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from collector.errors import DatasetError
from collector.journal import Journal
from collector.records import Message
from collector.schema import MEMPOOL_EVENTS, REJECTS
from collector.writer import Dataset


def message(number: int) -> Message:
    """Make a message that can be told from every other."""
    return Message("n", "s", "sequence", number, number * 1000, number.to_bytes(33, "big"))


def row(made_of: Message) -> dict[str, Any]:
    """Make the row that this message becomes."""
    return {
        "node": made_of.node,
        "session": made_of.session,
        "sequence": made_of.sequence,
        "kind": "pushed",
        "received_at": made_of.received_ns // 1000,
        "event": "A",
        "hash": made_of.body[:32],
    }


def sealed(dataset: Dataset) -> list[int]:
    """List the sequences in the dataset, in order, repeated if a row is there twice."""
    return sorted(dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist())


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Name the journal's folder."""
    return tmp_path / "journal"


def segments(folder: Path) -> list[Path]:
    """List the segments in a journal's folder, oldest first."""
    return sorted(folder.glob("*.journal"))


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


def test_messages_without_rows_come_back_in_order(folder: Path, dataset: Dataset) -> None:
    """After a stop, the rows are sealed and the unconsumed messages handed out, until they are consumed."""
    messages = [message(number) for number in range(5)]
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages(messages)
        journal.append("mempool_events", [row(one) for one in messages[:2]])
        journal.mark_consumed(2)

    for _ in range(3):  # each run that does not consume them passes them on
        with Journal(folder) as journal:
            assert journal.recover(dataset) == messages[2:]
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [row(one) for one in messages[2:]])
        journal.mark_consumed(3)
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
    with pytest.raises(DatasetError):
        journal.close()

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
    assert sealed(dataset) == [1]


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


FRAMES = 6


class Written(NamedTuple):
    """A segment of 6 frames, each with a message and, from the second on, the row of the message before."""

    name: str
    content: bytes
    ends: list[int]  # where each frame ends


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Write one segment."""
    folder = tmp_path_factory.mktemp("written")
    ends = []
    with Journal(folder / "journal") as journal:
        for number in range(FRAMES):
            journal.append_messages([message(number)])
            if number:
                journal.append("mempool_events", [row(message(number - 1))])
                journal.mark_consumed(1)
            journal.flush()
            ends.append(journal.size_bytes)
    (segment,) = segments(folder / "journal")
    return Written(segment.name, segment.read_bytes(), ends)


def recovered(folder: Path, name: str, content: bytes) -> tuple[list[int], list[Message], int]:
    """Recover from one segment: sealed sequences, messages, lost bytes; and check that losses are named."""
    (folder / "journal").mkdir()
    (folder / "journal" / name).write_bytes(content)
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    with capture_logs() as logs, Journal(folder / "journal") as journal:
        messages = journal.recover(dataset)
        lost_bytes = journal.lost_bytes
    named = [entry["lost_bytes"] for entry in logs if entry["event"] == "journal.damaged"]
    assert named == ([lost_bytes] if lost_bytes else [])
    assert len(list((folder / "journal").glob("*.damaged"))) == len(named)
    return sealed(dataset), messages, lost_bytes


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_journal_cut_at_any_byte_keeps_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, written: Written, data: st.DataObject
) -> None:
    """Of k whole frames come k - 1 rows and the last message; the bytes after them are named as lost."""
    cut = data.draw(st.integers(0, len(written.content)) | st.sampled_from(written.ends))
    whole = [0, *(end for end in written.ends if end <= cut)]

    rows, messages, lost_bytes = recovered(
        tmp_path_factory.mktemp("cut"), written.name, written.content[:cut]
    )

    assert rows == list(range(len(whole) - 2))
    assert messages == [message(number) for number in range(max(0, len(whole) - 2), len(whole) - 1)]
    assert lost_bytes == cut - whole[-1]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_flipped_bits_cost_their_frame_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, written: Written, data: st.DataObject
) -> None:
    """The message whose row was in the damaged frame comes back; the damaged frame's own message is lost."""
    position = data.draw(st.integers(0, len(written.content) - 1))
    damaged = bytearray(written.content)
    damaged[position] ^= data.draw(st.integers(1, 255))
    lost = bisect_right(written.ends, position)

    rows, messages, lost_bytes = recovered(tmp_path_factory.mktemp("bits"), written.name, bytes(damaged))

    waiting = {lost - 1, FRAMES - 1} - {-1, lost}
    assert rows == [number for number in range(FRAMES - 1) if number != lost - 1]
    assert messages == [message(number) for number in sorted(waiting)]
    assert lost_bytes == written.ends[lost] - (written.ends[lost - 1] if lost else 0)


@settings(max_examples=30, deadline=None)
@given(content=st.binary(max_size=2000))
def test_bytes_that_are_no_journal_are_no_rows(
    tmp_path_factory: pytest.TempPathFactory, written: Written, content: bytes
) -> None:
    """Arbitrary bytes under a segment's name give nothing and are named as lost."""
    assert recovered(tmp_path_factory.mktemp("noise"), written.name, content) == ([], [], len(content))


def test_a_frame_inside_a_message_is_not_a_frame(folder: Path, dataset: Dataset, tmp_path: Path) -> None:
    """A stranger's body that looks like a frame of another journal cannot smuggle rows in."""
    with Journal(tmp_path / "other") as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [row(message(99))])
    (frame,) = (segment.read_bytes() for segment in segments(tmp_path / "other"))
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)._replace(body=frame)])
    (segment,) = segments(folder)
    content = bytearray(segment.read_bytes())
    content[10] ^= 1  # so that reading scans the frame for others
    segment.write_bytes(content)

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
        assert journal.lost_bytes == len(content)
    assert sealed(dataset) == []


def test_large_bodies_pass(folder: Path, dataset: Dataset) -> None:
    """A block of several megabytes goes through journal and reject row byte for byte."""
    body = random.Random(1).randbytes(4_000_000)  # noqa: S311 - test data
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)._replace(body=body)])
    with Journal(folder) as journal:
        (one,) = journal.recover(dataset)
        assert one.body == body
        reject = {"node": "n", "session": "s", "received_at": 1, "topic": "rawblock", "reason": "r"}
        journal.append("rejects", [reject | {"body": one.body}])
        journal.mark_consumed(1)
        journal.seal(dataset)
    assert dataset.read(REJECTS).column("body").to_pylist() == [body]
