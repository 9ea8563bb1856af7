"""Test that raw bytes wait on disk until they are lost, and that a kill at any moment keeps them."""

import resource
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from collector.codec.transaction import Transaction, decode_transaction
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_BODIES
from collector.errors import NotWritable
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.mempool.bodies import FILE_NAME, Choice, KeptBodies, WaitingBodies, raw_of
from collector.mempool.entries import PendingEntries, PendingEntry
from collector.mempool.sync import Event, MempoolContents, TxLeft
from collector.regtest.transaction import FINAL, RegtestTransaction, TxInput, TxOutput

ORIGIN = ("alpha", "s")


def transaction(number: int) -> Transaction:
    """Return a transaction that differs from others by its number."""
    spent = (TxInput(number.to_bytes(32, "little"), 0, b"", (), FINAL),)
    return decode_transaction(RegtestTransaction(spent, (TxOutput(900, b"\x51"),)).raw)


def pending(body: Transaction, left: TxLeft | None = None, kind: str = "pushed") -> PendingEntry:
    """Return the entry of a transaction whose row is complete."""
    return PendingEntry(body.txid, kind, 1000, 5, body, [], left=left)


def removal(body: Transaction, at_us: int = 2000) -> TxLeft:
    """Return that a transaction left by an event R."""
    return TxLeft(body.txid, "removed", Event("R", body.txid, 9, 9, at_us))


class Rig:
    """Holds the bodies of one session, with a journal and a dataset; made again, it is the next run."""

    def __init__(self, folder: Path, choice: Choice = "lost") -> None:
        self.dataset = Dataset.open(folder / "dataset", "regtest", create=True)
        self.journal = Journal(folder / "journal")
        self.journal.recover(self.dataset)
        self.batches = Batches(self.journal)
        self.waiting = WaitingBodies(folder)
        self.bodies = KeptBodies(ORIGIN, choice, self.waiting, self.batches)

    def commit(self) -> None:
        """Commit as a session does."""
        self.bodies.before_commit()
        self.batches.commit()
        self.bodies.after_commit()

    def kill(self) -> None:
        """Give the files free, and write nothing."""
        self.waiting._connection.close()
        self.journal.close()

    def rows(self) -> list[tuple[bytes, str, bytes]]:
        """Seal, and return what is in the dataset."""
        self.journal.seal(self.dataset)
        found: pa.Table = self.dataset.read(MEMPOOL_BODIES)
        return [(row["txid"], row["kept_because"], row["raw"]) for row in found.to_pylist()]


@pytest.mark.parametrize("is_complete_first", [True, False])
def test_the_bytes_of_a_lost_transaction_become_a_row(tmp_path: Path, *, is_complete_first: bool) -> None:
    """It makes no difference whether its row of mempool_txs was complete when it left."""
    rig, lost, mined = Rig(tmp_path), transaction(1), transaction(2)
    if is_complete_first:
        rig.bodies.entry_finished(pending(lost), rig.batches.current)
        rig.bodies.entry_finished(pending(mined), rig.batches.current)
        rig.commit()
        rig.bodies.left(removal(lost), rig.batches.current, is_mined=False)
        rig.bodies.left(TxLeft(mined.txid, "mined", None), None, is_mined=True)
    else:
        rig.bodies.entry_finished(pending(lost, removal(lost)), rig.batches.current)
        rig.bodies.entry_finished(pending(mined, TxLeft(mined.txid, "mined", None)), rig.batches.current)
    rig.commit()
    rig.commit()

    assert rig.rows() == [(lost.txid, "left", raw_of(lost))]
    assert rig.waiting.txids() == set()


def test_a_kill_before_the_commit_loses_no_bytes(tmp_path: Path) -> None:
    """Until the row is in the journal the bytes stay in their file, and the next run makes the row."""
    rig, lost, there, mined = Rig(tmp_path), transaction(1), transaction(2), transaction(3)
    for each in (lost, there, mined):
        rig.bodies.entry_finished(pending(each), rig.batches.current)
    rig.commit()
    rig.batches.current.n_pending_rows += 1  # another row of the batch is not complete
    rig.bodies.left(removal(lost), rig.batches.current, is_mined=False)
    rig.commit()
    rig.kill()

    again, contents = Rig(tmp_path), MempoolContents()
    contents.enter(there.txid, there)
    again.bodies.compare(contents, lambda txid: txid == mined.txid, 7000)
    again.commit()
    again.commit()

    assert again.rows() == [(lost.txid, "left_unseen", raw_of(lost))]
    assert again.waiting.txids() == {there.txid}


def test_a_transaction_that_comes_back_is_not_forgotten(tmp_path: Path) -> None:
    """Its bytes wait again, although the row of its first stay is committed afterwards."""
    rig, body = Rig(tmp_path), transaction(1)
    rig.bodies.entry_finished(pending(body), rig.batches.current)
    rig.bodies.left(removal(body), rig.batches.current, is_mined=False)
    rig.bodies.entry_finished(pending(body), rig.batches.current)
    rig.commit()

    assert rig.waiting.get(body.txid) == raw_of(body)
    assert [reason for _, reason, _ in rig.rows()] == ["left"]


def test_a_transaction_that_comes_back_before_its_fee_is_known_is_not_forgotten(tmp_path: Path) -> None:
    """Both rows are complete at once; the first stay becomes a row, and the bytes wait for the second."""
    rig, body, contents = Rig(tmp_path), transaction(1), MempoolContents()
    rows = PendingEntries(*ORIGIN, contents)
    rows.add(pending(body))
    rows.note_left(removal(body))
    rows.add(pending(body))
    for done in rows.flush():
        rig.bodies.entry_finished(done.entry, rig.batches.current)
    rig.commit()

    assert rig.waiting.get(body.txid) == raw_of(body)
    assert [reason for _, reason, _ in rig.rows()] == ["left"]


def test_bytes_that_cannot_be_read_now_are_kept_for_the_next_session(tmp_path: Path) -> None:
    """While SQLite refuses reads, a lost transaction keeps its bytes, and a later session makes the row."""
    rig, lost, unseen = Rig(tmp_path), transaction(1), transaction(2)
    for body in (lost, unseen):
        rig.bodies.entry_finished(pending(body), rig.batches.current)
    rig.commit()
    sound = rig.waiting._connection
    rig.waiting._connection = sqlite3.connect(":memory:")  # it has no such table
    rig.bodies.left(removal(lost), rig.batches.current, is_mined=False)
    rig.bodies.compare(MempoolContents(), lambda _: False, 7000)
    rig.commit()
    assert rig.waiting.txids() == {lost.txid, unseen.txid}
    rig.waiting._connection = sound
    rig.kill()

    again = Rig(tmp_path)
    again.bodies.compare(MempoolContents(), lambda _: False, 8000)
    again.commit()

    assert {(txid, reason) for txid, reason, _ in again.rows()} == {
        (lost.txid, "left_unseen"),
        (unseen.txid, "left_unseen"),
    }
    assert again.waiting.txids() == set()


@pytest.mark.parametrize(("choice", "reasons"), [("all", ["entered"]), ("none", [])])
def test_the_other_choices_let_nothing_wait(choice: Choice, reasons: list[str], tmp_path: Path) -> None:
    """`all` makes a row when a transaction entered, and none for one first seen in a block."""
    rig, body = Rig(tmp_path, choice), transaction(1)
    rig.bodies.entry_finished(pending(body), rig.batches.current)
    rig.bodies.entry_finished(pending(transaction(2), kind="in_block"), rig.batches.current)
    rig.bodies.left(removal(body), rig.batches.current, is_mined=False)
    rig.commit()

    assert [reason for _, reason, _ in rig.rows()] == reasons
    assert rig.waiting.txids() == set()


@pytest.mark.parametrize(("choice", "lost_later"), [("all", True), ("none", False)])
def test_another_choice_leaves_no_bytes_behind(choice: Choice, tmp_path: Path, *, lost_later: bool) -> None:
    """What waited under `lost` is dropped; with `all`, first what left unseen becomes a row."""
    rig, there, gone = Rig(tmp_path), transaction(1), transaction(2)
    for body in (there, gone):
        rig.bodies.entry_finished(pending(body), rig.batches.current)
    rig.commit()
    rig.kill()

    other, contents = Rig(tmp_path, choice), MempoolContents()
    contents.enter(there.txid, there)
    other.bodies.compare(contents, lambda _: False, 7000)
    other.commit()

    rows = [(gone.txid, "left_unseen", raw_of(gone))] if lost_later else []
    assert other.rows() == rows
    other.commit()
    other.kill()
    assert WaitingBodies(tmp_path).txids() == set()


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    """What is no database is renamed, and collecting goes on."""
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    waiting = WaitingBodies(tmp_path)
    waiting.put(b"a", b"raw")
    waiting.flush()

    assert waiting.get(b"a") == b"raw"
    assert (tmp_path / f"{FILE_NAME}.damaged").exists()


def test_a_file_that_cannot_be_opened_now_is_not_damaged(tmp_path: Path) -> None:
    """Without a free descriptor the file stays as it is, and has its bytes when it can be opened."""
    waiting = WaitingBodies(tmp_path)
    waiting.put(b"a", b"raw")
    waiting.close()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
    try:
        with pytest.raises(NotWritable, match="unable to open"):
            WaitingBodies(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)

    assert WaitingBodies(tmp_path).get(b"a") == b"raw"
    assert not (tmp_path / f"{FILE_NAME}.damaged").exists()


def test_what_the_disk_refuses_is_kept_in_memory(tmp_path: Path) -> None:
    """While the file cannot be written, bytes stay in memory, and a later flush writes them."""
    waiting = WaitingBodies(tmp_path)
    waiting._connection.execute("PRAGMA query_only = ON")
    waiting.put(b"a", b"raw")
    waiting.flush()
    assert waiting.get(b"a") == b"raw"

    waiting._connection.execute("PRAGMA query_only = OFF")
    waiting.close()
    assert WaitingBodies(tmp_path).get(b"a") == b"raw"
