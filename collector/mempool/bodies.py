"""Keep the raw bytes of transactions: by default of those that left the mempool and were not mined.

Nobody can ask for the bytes of such a transaction later, because no block has them. Whether a transaction is
lost is known only when it leaves, often days after it came. Until then its bytes wait in a file beside the
journal (`WaitingBodies`): no kill or stop loses them, and they take little memory.

The order of writing makes this safe. Bytes are in the file before the rows of their messages are committed,
and they are deleted from it after the row of `mempool_bodies` is committed. A kill between the two may write
a body twice, each time with another moment.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeVar

import structlog

from collector.codec.transaction import Transaction
from collector.dataset.rows import MempoolBodyRow
from collector.errors import NotWritable
from collector.journal.batches import Batch, Batches
from collector.mempool.entries import PendingEntry
from collector.mempool.sync import MempoolContents, TxLeft

Choice = Literal["lost", "all", "none"]  # whose bytes are kept
FILE_NAME: Final = "bodies.sqlite"  # in the folder of the node's journal
# What SQLite answers when the bytes of a file are wrong; any other error may pass.
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_SHORT_READ})
T = TypeVar("T")
log = structlog.get_logger(__name__)


class WaitingBodies:
    """Holds the raw bytes of transactions by txid in one SQLite file; one thread uses it at a time.

    The constructor raises NotWritable when the system refuses the file now, as when it has no descriptor.
    `flush` writes what was added or dropped. What the disk refuses stays in memory until a later `flush`. A
    damaged file is kept under another name, and a new one begun. Rows are numbered as they come, because
    appending to a table costs a third of what an index by txid costs.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._new: dict[int, tuple[bytes, bytes]] = {}  # txid and bytes, by number
        self._dropped: list[int] = []
        self._is_refused = False
        self._numbers: dict[bytes, int] = {}
        try:
            self._connection, self._numbers = _open(self._path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in DAMAGED:
                raise NotWritable(f"cannot open {self._path} now: {error}") from None
            damaged = self._path.with_name(FILE_NAME + ".damaged")
            self._path.rename(damaged)
            self._connection, self._numbers = _open(self._path)
            log.error("bodies.damaged", path=str(damaged), reason=str(error))  # noqa: TRY400 - no traceback helps
        self._last = max(self._numbers.values(), default=0)

    def close(self) -> None:
        """Write the bodies that are not written yet, and close the SQLite file of bodies."""
        self.flush()
        self._connection.close()

    def put(self, txid: bytes, raw: bytes) -> None:
        """Store the raw bytes of a transaction under its txid, in place of earlier ones."""
        self.drop(txid)
        self._last += 1
        self._numbers[txid] = self._last
        self._new[self._last] = txid, raw

    def drop(self, txid: bytes) -> None:
        """Remove the stored bytes of a transaction, if there are any."""
        number = self._numbers.pop(txid, None)
        if number is not None and self._new.pop(number, None) is None:
            self._dropped.append(number)

    def get(self, txid: bytes) -> bytes | None:
        """Return the raw bytes of a transaction by its txid, or None when they are not stored.

        None also while SQLite cannot read them: they stay stored then, and may be had later.
        """
        number = self._numbers.get(txid)
        if number is None:
            return None
        if number in self._new:
            return self._new[number][1]
        query = "SELECT raw FROM bodies WHERE number = ?"
        row = self._tried(lambda: self._connection.execute(query, (number,)).fetchone())
        return None if row is None else bytes(row[0])

    def txids(self) -> set[bytes]:
        """Return the txids of all transactions whose bytes are stored."""
        return set(self._numbers)

    def flush(self) -> None:
        """Write to disk the bodies that were added and removed since the last successful call."""
        if self._new or self._dropped:
            self._tried(self._write)

    def _write(self) -> None:
        with self._connection:
            self._connection.execute("BEGIN")
            delete = "DELETE FROM bodies WHERE number = ?"
            self._connection.executemany(delete, [(number,) for number in sorted(self._dropped)])
            rows = [(number, txid, raw) for number, (txid, raw) in self._new.items()]
            self._connection.executemany("INSERT INTO bodies VALUES (?, ?, ?)", rows)
        self._new.clear()
        self._dropped.clear()

    def _tried(self, do: Callable[[], T]) -> T | None:
        """Call `do` and return its result; None, with one line in the log, while SQLite refuses it."""
        try:
            done = do()
        except sqlite3.Error as error:
            if not self._is_refused:
                log.error("bodies.refused", path=str(self._path), reason=str(error))  # noqa: TRY400 - the disk's fault
            self._is_refused = True
            return None
        self._is_refused = False
        return done


def _open(path: Path) -> tuple[sqlite3.Connection, dict[bytes, int]]:
    """Open the SQLite file of transaction bytes, or make it; return it and the number of each txid in it.

    Raises sqlite3.DatabaseError when the file is damaged or cannot be opened.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # A kill loses nothing that was written. A power cut may lose the last writes, and damages nothing.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 8000")  # pages; most bodies are dropped before
        columns = "number INTEGER PRIMARY KEY, txid BLOB NOT NULL, raw BLOB NOT NULL"
        connection.execute(f"CREATE TABLE IF NOT EXISTS bodies ({columns})")
        numbers = dict(connection.execute("SELECT txid, number FROM bodies ORDER BY number"))
    except BaseException:
        connection.close()
        raise
    return connection, numbers


class KeptBodies:
    """Makes the rows of `mempool_bodies` (raw transactions) of one session.

    `choice` says for which transactions: all, or those that left the mempool and were not mined.
    """

    def __init__(
        self, origin: tuple[str, str], choice: Choice, waiting: WaitingBodies, batches: Batches
    ) -> None:
        self._origin = origin  # node and session
        self._choice = choice
        self._waiting = waiting
        self._batches = batches
        self._given: dict[bytes, Batch | None] = {}  # by lost txid, the batch that has the row
        self._is_compared = False
        if choice == "none":  # what an earlier setting let wait is not wanted any more
            for txid in waiting.txids():
                waiting.drop(txid)

    def entry_finished(self, entry: PendingEntry, owner: Batch) -> None:
        """Keep the raw bytes of a transaction whose row of `mempool_txs` is complete, as the setting says.

        With the setting `all` they become a row of `mempool_bodies` at once. With `lost` they become a row
        only if the transaction leaves the mempool unmined. The batch `owner` has the row of `mempool_txs`.
        """
        if entry.body is None or entry.kind == "in_block":
            return
        if self._choice == "all":
            owner.add(
                "mempool_bodies", [self._row(entry.txid, raw_of(entry.body), entry.entered_us, "entered")]
            )
        elif self._choice == "lost" and entry.left is None:
            self._given.pop(entry.txid, None)  # it is back
            self._waiting.put(entry.txid, raw_of(entry.body))
        elif self._choice == "lost" and entry.left is not None and entry.left.cause != "mined":
            self._give(entry.left, raw_of(entry.body), owner)

    def left(self, left: TxLeft, batch: Batch | None, *, is_mined: bool) -> None:
        """Use or drop the kept bytes of a transaction that left the mempool after its row was complete.

        If it was not mined, its raw bytes become a row of `mempool_bodies`. `batch` has the row of the
        removal event; None when only a snapshot shows that the transaction left. Bytes that cannot be read
        now stay, and `compare` of the next session finds them.
        """
        if self._choice != "lost":
            return
        if is_mined:
            self._waiting.drop(left.txid)
        elif (raw := self._waiting.get(left.txid)) is not None:
            self._give(left, raw, batch)

    def compare(self, contents: MempoolContents, is_mined: Callable[[bytes], bool], at_us: int) -> None:
        """Make rows of `mempool_bodies` for transactions that left the mempool while no collector ran.

        `contents` is the mempool now, and `is_mined` says whether a recent block has a txid. An older block
        may have others of these transactions. Only the first call does anything. `at_us` is the wall clock.
        Bytes that cannot be read now stay for the next session. With the setting `all`, this ends what an
        earlier setting let wait: what is in the mempool gets its row by its entry.
        """
        if self._is_compared:
            return
        self._is_compared = True
        for txid in sorted(self._waiting.txids()):
            if self._choice == "lost" and txid in contents:
                continue
            if txid in contents or is_mined(txid):
                self._waiting.drop(txid)
            elif (raw := self._waiting.get(txid)) is not None:
                rows = [self._row(txid, raw, at_us, "left_unseen")]
                self._batches.add_independent("mempool_bodies", rows)
                self._given[txid] = None

    def before_commit(self) -> None:
        """Write the bodies that wait in memory to disk, because the batches are about to be committed."""
        self._waiting.flush()

    def after_commit(self) -> None:
        """Forget the bytes of lost transactions whose rows have been committed."""
        for txid, batch in list(self._given.items()):
            if batch is None or batch.is_committed:
                self._waiting.drop(txid)
                del self._given[txid]

    def _give(self, left: TxLeft, raw: bytes, batch: Batch | None) -> None:
        """Make the row of `mempool_bodies` for a transaction that left the mempool and was not mined."""
        at_us = left.at_us if left.event is None else left.event.received_us
        rows = [self._row(left.txid, raw, at_us, "left")]
        if batch is None:
            self._batches.add_independent("mempool_bodies", rows)
        else:
            batch.add("mempool_bodies", rows)
        self._given[left.txid] = batch

    def _row(self, txid: bytes, raw: bytes, at_us: int, reason: str) -> MempoolBodyRow:
        node, session = self._origin
        return {
            "node": node,
            "session": session,
            "txid": txid,
            "kept_at": at_us,
            "kept_because": reason,
            "raw": raw,
        }


def raw_of(body: Transaction) -> bytes:
    """Return the bytes of a decoded transaction, with witness."""
    return body.source[body.begin : body.begin + body.size_bytes]
