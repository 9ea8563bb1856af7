"""Test that what a kill leaves in the ring is recovered once, and only what belongs to the killed run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.dataset.open import Dataset
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.receive.records import Message, Notice
from collector.receive.ring import MIN_CAPACITY_BYTES, Ring
from tests.collector.journal.journal_files import recovered, row, sealed

TOPICS = ("sequence", "rawtx")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


class Run:
    """Holds a journal with its ring, and the ring as the receiver opens it to put messages."""

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder = folder
        self.journal = Journal(folder, ring_bytes=MIN_CAPACITY_BYTES)
        self.journal.recover(dataset)
        self.ledger = CoverageLedger("n", "s1")
        self.taking = self.journal.make_ring("n", "s1", TOPICS)
        self.putting = Ring.open(self.taking.path)

    def put(self, *counters: int) -> None:
        """Put events with these counters into the ring, as the receiver does."""
        for counter in counters:
            assert self.putting.put("sequence", counter, counter * 1000, counter.to_bytes(33, "big"))

    def journalled(self, count: int) -> list[Message]:
        """Take messages from the ring and flush them to the journal; return them."""
        messages = [item for item in self.taking.take(count) if isinstance(item, Message)]
        for each in messages:
            self.ledger.count(each.topic, each.sequence, each.received_ns // 1000)
        self.journal.set_state("coverage/s1", self.ledger.state())
        self.journal.append_messages(messages)
        self.journal.flush()
        return messages

    def killed(self) -> Path:
        """Copy the folder as a kill would leave it, close journal and ring, and return the copy."""
        copy = self.folder.with_name("killed")
        shutil.copytree(self.folder, copy)
        return copy

    def close(self) -> None:
        """Close the journal and the ring."""
        self.putting.close()
        self.journal.close()


@pytest.fixture
def run(tmp_path: Path, dataset: Dataset) -> Iterator[Run]:
    """Make a run, and close it at the end."""
    begun = Run(tmp_path / "journal", dataset)
    yield begun
    begun.close()


def sequences(messages: list[Message]) -> list[int]:
    """Return the counters of messages."""
    return [message.sequence for message in messages]


def claims(journal: Journal) -> list[tuple[int, int, str]]:
    """Return the intervals of the killed session: first counter, last counter and end reason."""
    rows = CoverageLedger("n", "s1").close_after_kill(journal.states["coverage/s1"])
    return [(row["first_sequence"], row["last_sequence"], row["end_reason"]) for row in rows]


def test_what_is_only_in_the_ring_is_recovered(run: Run, dataset: Dataset) -> None:
    """Each received message comes back or is a row, once, in order, whether or not it was flushed."""
    run.put(0, 1, 2, 3, 4, 5)
    first = run.journalled(4)
    run.journal.append("mempool_events", [row(message) for message in first[:2]])
    run.journal.mark_consumed(2)
    run.journal.flush()
    run.taking.take(1)  # on its way to the session
    with Journal(run.killed()) as journal:
        assert sequences(recovered(journal, dataset)) == [2, 3, 4, 5]
        assert claims(journal) == [(0, 5, "killed")]
        assert list(journal._folder.glob("*.ring")) == []
    assert sealed(dataset) == [0, 1]


def test_a_kill_before_the_room_is_free_doubles_nothing(run: Run, dataset: Dataset, tmp_path: Path) -> None:
    """Messages that are both in the ring and in a segment are recovered once."""
    run.put(0, 1, 2)
    before = tmp_path / "before.ring"
    shutil.copy(run.taking.path, before)
    run.journalled(2)
    killed = run.killed()
    shutil.copy(before, killed / run.taking.path.name)
    with Journal(killed) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 1, 2]
    with Journal(killed) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 1, 2]


def test_messages_released_from_the_ring_and_lost_are_noted(run: Run, dataset: Dataset) -> None:
    """A journal that ends before the last message that the ring has released counts as cut."""
    run.put(0, 1, 2, 3, 4)
    run.journalled(2)
    (segment,) = run.folder.glob("*.journal")
    size = segment.stat().st_size
    run.journalled(2)
    killed = run.killed()
    cut = shutil.copytree(killed, killed.with_name("cut"))
    with (cut / segment.name).open("r+b") as file:
        file.truncate(size)
    whole, parted = [(0, 4, "killed")], [(0, 1, "killed"), (4, 4, "killed")]
    for folder, counters, spans in ((killed, [0, 1, 2, 3, 4], whole), (cut, [0, 1, 4], parted)):
        with Journal(folder) as journal:
            assert sequences(recovered(journal, dataset)) == counters
            assert claims(journal) == spans


def test_a_kill_while_recovering_doubles_nothing(run: Run, dataset: Dataset) -> None:
    """A ring that was recovered and not yet removed adds nothing."""
    run.put(0, 1, 2)
    killed = run.killed()
    with Journal(killed) as journal:
        journal.recover(dataset)
    shutil.copy(run.taking.path, killed / run.taking.path.name)
    with Journal(killed) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 1, 2]


def test_notices_are_recovered_and_a_restart_of_the_node_ends_the_session(run: Run, dataset: Dataset) -> None:
    """Messages after a restart belong to no session; a loss before it ends an interval."""
    run.put(0, 1)
    run.journalled(1)
    run.putting.put_notice(Notice("gap", "sequence", 5, "counter is 9, expected 2"))
    run.put(9)
    run.putting.put_notice(Notice("node_restart", "sequence", 6, "counter is 0, expected 10"))
    run.put(0)
    with Journal(run.killed()) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 1, 9]
        assert claims(journal) == [(0, 1, "gap"), (9, 9, "node_restart")]


def test_a_notice_that_was_released_is_not_a_loss(run: Run, dataset: Dataset) -> None:
    """What the journal holds of a notice ends the interval; the notice itself need not be in the ring."""
    run.put(0, 1)
    run.putting.put_notice(Notice("gap", "sequence", 5, "counter is 9, expected 2"))
    *messages, notice = run.taking.take(3)
    assert isinstance(notice, Notice)
    for each in messages:
        assert isinstance(each, Message)
        run.ledger.count(each.topic, each.sequence, each.received_ns // 1000)
    run.ledger.hold_back(run.ledger.close("sequence", "gap", notice.detail))
    run.journal.set_state("coverage/s1", run.ledger.state())
    run.journal.note_taken(notice.number)
    run.journal.append_messages([each for each in messages if isinstance(each, Message)])
    before = run.killed().rename(run.folder.with_name("before"))
    run.journal.flush()
    assert run.putting.n_waiting == 0
    for folder in (before, run.killed()):
        with Journal(folder) as journal:
            assert sequences(recovered(journal, dataset)) == [0, 1]
            assert claims(journal) == [(0, 1, "gap")]
            assert not list(folder.glob("*.damaged"))


def test_a_restart_is_noticed_without_its_notice(run: Run, dataset: Dataset) -> None:
    """When the notice of a restart is damaged, a counter that steps back shows the restart."""
    run.put(0, 1, 2, 0, 1)
    with Journal(run.killed()) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 1, 2]
        assert claims(journal) == [(0, 2, "killed")]


def test_a_second_kill_loses_nothing_of_the_ring(run: Run, dataset: Dataset) -> None:
    """When a recovered ring has been removed, its messages and their coverage are in one frame."""
    run.put(0, 1, 2)
    run.journalled(1)
    killed = run.killed()
    for _ in range(3):
        with Journal(killed) as journal:
            assert sequences(recovered(journal, dataset)) == [0, 1, 2]
            assert claims(journal) == [(0, 2, "killed")]


def test_a_session_that_ended_leaves_no_ring(run: Run, dataset: Dataset) -> None:
    """Messages left in a removed ring are not recovered."""
    run.put(0, 1)
    run.journalled(1)
    run.journal.remove_ring()
    with Journal(run.killed()) as journal:
        assert sequences(recovered(journal, dataset)) == [0]
        assert claims(journal) == [(0, 0, "killed")]


def test_a_kill_after_the_ring_was_removed_leaves_no_state(run: Run, dataset: Dataset) -> None:
    """After a kill between the removals of a ring and of its state, a recovery removes the state."""
    run.put(0)
    run.journalled(1)
    run.journal.mark_consumed(1)
    run.journal.set_state("coverage/s1", None)
    run.journal.flush()
    run.journal.remove_ring()
    killed = run.killed()
    assert list(killed.glob("*.journal"))
    with Journal(killed) as journal:
        assert recovered(journal, dataset) == []
        journal.seal(dataset)
    assert list(killed.glob("*.journal")) == []


def test_a_damaged_ring_is_kept_and_logged(run: Run, dataset: Dataset) -> None:
    """The whole records of a damaged ring are recovered, and the file is kept as `.damaged`."""
    run.put(0, 1, 2)
    killed = run.killed()
    path = killed / run.taking.path.name
    content = bytearray(path.read_bytes())
    content[4096 + 80 + 50] ^= 1
    path.write_bytes(content)
    with Journal(killed) as journal:
        assert sequences(recovered(journal, dataset)) == [0, 2]
        assert journal.lost_bytes == 80
    assert [each.name for each in killed.glob("*.damaged")] == ["s1.damaged"]
