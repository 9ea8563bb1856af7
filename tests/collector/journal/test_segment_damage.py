"""Test damaged segments: whole frames are read, and what is lost is counted and logged."""

import os
from bisect import bisect_right
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from collector.dataset.open import Dataset
from collector.journal.journal import Journal
from collector.receive.records import Message
from tests.collector.journal.journal_files import message, row, sealed, segments

FRAMES = 6


class Written(NamedTuple):
    """Holds a segment of 6 frames, each with a message and (after the first) the row of the one before."""

    name: str
    content: bytes
    ends: list[int]  # where each frame ends


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Write one segment of 6 frames."""
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
    """Recover from one segment; return sealed counters, messages and lost bytes. A loss must be logged."""
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


def test_a_disk_that_takes_little_at_once_gets_whole_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a write that takes fewer bytes than it was given, the rest is written, wherever it stopped."""
    sizes = cycle([1, 7, 8, 400])
    monkeypatch.setattr(os, "writev", lambda handle, parts: os.write(handle, b"".join(parts)[: next(sizes)]))
    with Journal(tmp_path / "journal") as journal:
        for number in range(3):
            journal.append_messages([message(number)])
            journal.flush()

    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    with Journal(tmp_path / "journal") as journal:
        assert journal.recover(dataset) == [message(number) for number in range(3)]
        assert journal.lost_bytes == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_journal_cut_at_any_byte_keeps_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, written: Written, data: st.DataObject
) -> None:
    """With k whole frames, k - 1 rows and the last message come back; the bytes after them count as lost."""
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
    """A message whose row was in the damaged frame comes back; the damaged frame's own message is lost."""
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
    """Arbitrary bytes in a segment file give no rows and count as lost."""
    assert recovered(tmp_path_factory.mktemp("noise"), written.name, content) == ([], [], len(content))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of the journal's folder."""
    return tmp_path / "journal"


def test_a_frame_inside_a_message_is_not_a_frame(folder: Path, dataset: Dataset, tmp_path: Path) -> None:
    """A message body that looks like a frame of another journal adds no rows."""
    with Journal(tmp_path / "other") as journal:
        journal.recover(dataset)
        journal.append("mempool_events", [row(message(99))])
        journal.flush()
    (frame,) = (segment.read_bytes() for segment in segments(tmp_path / "other"))
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([message(1)._replace(body=frame)])
        journal.flush()
    (segment,) = segments(folder)
    content = bytearray(segment.read_bytes())
    content[10] ^= 1  # so that reading scans the frame for others
    segment.write_bytes(content)

    with Journal(folder) as journal:
        assert journal.recover(dataset) == []
        assert journal.lost_bytes == len(content)
    assert sealed(dataset) == []
