"""The journal keeps on disk what was received until it is sealed, that is, written into Parquet files.

The journal holds three kinds of things: messages as they were received, the rows made of them, and named
states, which are bytes that the next run needs. `flush` writes all that was added since the last flush as one
frame, which counts as a whole or not at all. So rows and the mark that their messages are consumed are never
separated. `seal` writes the rows of a segment into Parquet files named after the segment, and then removes
the segment; a repeated seal writes nothing twice. So after SIGKILL at any point, `recover` seals exactly the
rows that were flushed, once, and returns exactly the flushed messages that have no rows.

What is lost when:

- SIGKILL loses no message. Messages come through a ring (`collector.receive.ring`), which keeps them until
  they are flushed; `take_left_in_ring` returns those that a killed run had not flushed. Rows and states added
  since the last flush are lost, and are made again from the messages.
- A power cut loses at most `fsync_interval_s` of what was flushed (1 s by default; 0 forces every flush to
  disk; None leaves it to the operating system, often half a minute), and the ring. Sealed rows are on disk
  before their segment is removed.
- A full disk loses nothing: `flush` tries again until there is space or `stop` is set. Meanwhile the ring
  fills, and when it is full the receiver notes each loss. `seal` leaves in the journal what it cannot write.
  The same holds for a folder that is read-only and for a process without a free descriptor.
- Damage to a segment loses the frames that it hits. `Journal.lost_bytes` and the log name them, the file is
  kept as `.damaged`, and `collector.journal.recovery` works out which coverage can still be claimed.

One thread uses a Journal, and one Journal uses a folder.
"""

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Self, TypeVar

import pyarrow as pa
import structlog

from collector.backoff import Backoff
from collector.dataset.files import sync_folder
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import RefusedRow, conform, split_refused, to_batch
from collector.dataset.rows import CoverageRow, Row
from collector.dataset.schema import COVERAGE, REJECTS, TABLES, Table
from collector.errors import DatasetError, NotWritable, RowRefused
from collector.journal.coverage_ledger import COVERAGE_STATE
from collector.journal.recovery import (
    CoverageClaims,
    end_lost_intervals,
    items_of_run,
    read_earlier_runs,
    settled_state,
)
from collector.journal.refused_rows import reject_rows
from collector.journal.segment import (
    CONSUMED,
    MESSAGES,
    OWN_NAMES,
    SIZES,
    STATES,
    NumberedMessages,
    Segment,
    apply_changes,
    consumed_batch,
    explain_os_errors,
    lock_folder,
    message_batch,
    size_batch,
    state_batch,
)
from collector.receive.records import Message
from collector.receive.ring import CAPACITY_BYTES, SUFFIX, Item, Ring

DEFAULT_FSYNC_INTERVAL_S: Final = 1.0
RETRY_S: Final = (0.1, 5.0)  # the first and the longest pause before a refused write is tried again
# Tables that are sealed last: a reader who finds one of their rows expects the rows of other tables there.
SEALED_LAST: Final = {"blocks", "coverage"}
_RING_STATE: Final = "_ring/"  # + session: the number of the last item of its ring that is in a segment
T = TypeVar("T")
log = structlog.get_logger(__name__)


class Journal:
    """Writes and recovers the journal, the log on disk of what is not in Parquet yet, in one locked folder.

    Call `recover` before anything else. With `stop`, a write to a full disk is repeated until `stop` is set;
    without it, a full disk is an error. Raises DatasetError when the folder cannot be used or another process
    uses it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fsync_interval_s: float | None = DEFAULT_FSYNC_INTERVAL_S,
        stop: threading.Event | None = None,
        ring_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self.lost_bytes = 0  # bytes of segments and rings that could not be read
        self._disk = DiskSpace(stop)
        self._ring: Ring | None = None
        self._left_in_ring: Iterator[Item] = iter(())  # what a killed run left in the ring
        self._ring_bytes = ring_bytes
        self._n_taken = 0  # the number of the last item of the ring that the next flush makes safe
        self._folder = folder
        self._fsync_interval_s = fsync_interval_s
        self._fsynced_s = time.monotonic()
        self._is_synced = True
        self._lock = lock_folder(folder)
        try:
            with explain_os_errors(folder):
                self._unsealed = Segment.all_in(folder)
        except BaseException:
            os.close(self._lock)  # or the next attempt would find the folder in use
            raise
        # Whether a newer segment holds what must remain when the unsealed segments are removed.
        self._is_carried = not self._unsealed
        self._number = max((segment.number for segment in self._unsealed), default=0)
        self._current: Segment | None = None
        self._states: dict[str, bytes] = {}
        self._waiting: NumberedMessages = deque()  # messages without rows, oldest first
        self._next_ordinal = 0
        self._coverage_sealed: set[str] = set()  # stems of segments of which the seal had reached `coverage`
        # What the next flush writes.
        self._new_rows: dict[str, list[Sequence[Row] | pa.RecordBatch]] = {}
        self._n_new_messages = 0
        self._n_new_consumed = 0
        self._new_states: dict[str, bytes | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """Return the size of the current journal file in bytes; 0 if there is none."""
        return self._current.size_bytes if self._current else 0

    @property
    def blocked(self) -> str:
        """Return why the journal or the dataset cannot be written now (full disk); empty when both can."""
        return self._disk.blocked

    @property
    def states(self) -> Mapping[str, bytes]:
        """Map the name of each state to its bytes, as `recover` found it or as this run last flushed it."""
        return self._states

    def recover(self, dataset: Dataset) -> list[Message]:
        """Write to Parquet what earlier runs left; return their messages that have no rows yet, oldest first.

        The messages stay in the journal until `mark_consumed`. What earlier runs claim to have observed stays
        too, as a state for each session (`recovery.settled_state`); the caller makes rows of `coverage` of
        it, together with the session's messages. `take_left_in_ring` returns what the last run left in its
        ring, the buffer file of received messages; where something is damaged, the returned list has that
        too. Raises DatasetError when the dataset does not take the rows; nothing is lost then, and the
        next run recovers.
        """
        claims = self._read_earlier_segments(dataset)
        self._take_over_rings(claims, dataset)
        self._seal_segments(dataset, is_recovery=True)
        return [message for _, message in self._waiting]

    def take_left_in_ring(self, session: str, limit: int) -> list[Item]:
        """Return up to `limit` messages and notices that a killed run left in its ring, the oldest first.

        The ring is the buffer file of received messages; a notice tells of a gap or restart. An empty list
        says that nothing is left; the ring file is then removed.
        """
        if self._ring is None or self._ring.session != session:
            return []
        items = list(islice(self._left_in_ring, limit))
        if not items:
            self.remove_ring()
        return items

    def make_ring(self, node: str, session: str, topics: Sequence[str]) -> Ring:
        """Create and return the ring, the buffer file through which a session's messages come.

        `remove_ring` removes it.
        """
        self.remove_ring()
        self._ring = self._disk.retry_until_done("journal", lambda: self._new_ring(node, session, topics))
        self._n_taken = 0
        return self._ring

    def _new_ring(self, node: str, session: str, topics: Sequence[str]) -> Ring:
        with explain_os_errors(self._folder):
            at = self._folder / (session + SUFFIX)
            return Ring.create(at, node=node, session=session, topics=topics, capacity_bytes=self._ring_bytes)

    def remove_ring(self) -> None:
        """Remove the ring file of a session that has ended; messages in it that were not flushed are lost."""
        if self._ring is not None:
            ring, self._ring = self._ring, None
            ring.close()
            with explain_os_errors(self._folder):
                ring.path.unlink(missing_ok=True)
            self.set_state(_RING_STATE + ring.session, None)

    def append(self, table_name: str, rows: Sequence[Row] | pa.RecordBatch) -> None:
        """Add rows of a table, in a form that `to_batch` takes; the journal's next flush writes them."""
        name = _table(table_name).name
        if len(rows):
            self._new_rows.setdefault(name, []).append(rows)

    def append_messages(self, messages: Sequence[Message]) -> None:
        """Add messages to the journal in the order of receipt; the next flush writes them to disk."""
        self._waiting.extend(enumerate(messages, self._next_ordinal))
        self._next_ordinal += len(messages)
        self._n_new_messages += len(messages)
        if messages and messages[-1].number:
            self._note_taken(messages[-1].session, messages[-1].number)

    @property
    def has_unread(self) -> bool:
        """Return whether the ring (buffer file) has items that `note_taken` has not counted yet."""
        return self._ring is not None and self._ring.n_put > self._n_taken

    def note_taken(self, number: int) -> None:
        """Count the items of the ring up to this number as journalled; the next flush frees their room.

        An item is a message or a notice. What must stay of them was added to the journal before.
        """
        if self._ring is not None:
            self._note_taken(self._ring.session, number)

    def _note_taken(self, session: str, number: int) -> None:
        is_ours = self._ring is not None and self._ring.session == session
        if is_ours and number <= self._n_taken:
            return
        self._n_taken = number if is_ours else self._n_taken
        self.set_state(_RING_STATE + session, str(number).encode())

    def mark_consumed(self, count: int) -> None:
        """Mark the journal's `count` oldest unmarked messages as consumed, because it has their rows.

        Raises ValueError when fewer messages are unmarked.
        """
        unmarked = len(self._waiting) - self._n_new_consumed
        if not 0 <= count <= unmarked:
            raise ValueError(f"cannot mark {count} messages as consumed: {unmarked} are waiting")
        self._n_new_consumed += count

    def set_state(self, name: str, value: bytes | None) -> None:
        """Keep a state (bytes) under a name in the journal, for the next run; None removes the state.

        The next flush writes them to disk.
        """
        self._new_states[name] = value

    def save_state(self, name: str, value: bytes) -> None:
        """Write one named state to disk at once, and nothing else of what was added since the last flush.

        This is for a run that an error ends: what it has added may be incomplete, and `close` drops it.
        """
        self._write({STATES: state_batch({name: value})})
        self._states[name] = value

    def flush(self) -> None:
        """Write all that was added to the journal since the last flush to disk as one unit.

        After that, SIGKILL cannot lose it. A row that does not fit its table is written to `rejects` instead.
        Raises DatasetError when the disk does not take the data; what was added stays, and the next flush
        tries again. With `stop`, a write to a full disk is repeated until `stop` is set.
        """
        batches = self._batches_of_rows()
        if self._n_new_messages:
            newest_first = list(islice(reversed(self._waiting), self._n_new_messages))
            batches[MESSAGES] = message_batch(newest_first[::-1])
        if self._n_new_consumed:
            oldest = islice(self._waiting, self._n_new_consumed)
            batches[CONSUMED] = consumed_batch([ordinal for ordinal, _ in oldest])
        if self._new_states:
            batches[STATES] = state_batch(self._new_states)
        if batches:
            self._write(batches)
        if self._ring is not None:
            self._ring.release(self._n_taken)
        for _ in range(self._n_new_consumed):
            self._waiting.popleft()
        apply_changes(self._states, self._new_states)
        self._new_rows, self._new_states = {}, {}
        self._n_new_messages = self._n_new_consumed = 0
        interval_s = self._fsync_interval_s
        if interval_s is not None and time.monotonic() - self._fsynced_s >= interval_s:
            self._disk.try_once("journal", self._fsync)

    def _batches_of_rows(self) -> dict[str, pa.RecordBatch]:
        """Map each table's name to one Arrow batch of the rows added since the last flush.

        A row that does not fit its table becomes a row of `rejects`. The rows stay in memory, so a flush that
        failed can be repeated.
        """
        made: dict[str, list[pa.RecordBatch]] = {}
        refused: list[RefusedRow] = []
        for name, parts in self._new_rows.items():
            for rows in parts:
                fitting, unfit = split_refused(TABLES[name], rows, to_batch)
                made.setdefault(name, []).extend(fitting)
                refused += unfit
        if refused:
            consumed = islice(self._waiting, self._n_new_consumed)
            made.setdefault(REJECTS.name, []).append(self._rejects(refused, [each for _, each in consumed]))
        return {name: pa.concat_batches(batches) for name, batches in made.items() if batches}

    def _rejects(self, refused: Sequence[RefusedRow], messages: Sequence[Message]) -> pa.RecordBatch:
        """Return rows of the table `rejects` for refused rows, and log the first reason for each table."""
        first = {each.table: each.reason for each in reversed(refused)}
        for table, reason in first.items():
            n_rows = sum(each.table == table for each in refused)
            log.error("rows.refused", table=table, n_rows=n_rows, reason=reason, kept_in=REJECTS.name)
        sessions = [each.session for each in messages] or [self._ring.session if self._ring else ""]
        rows = reject_rows(refused, messages, node=self._folder.name, session=sessions[-1])
        return to_batch(REJECTS, rows)

    def seal(self, dataset: Dataset) -> list[Path]:
        """Flush, begin a new journal file and write every older one to Parquet; return the Parquet files.

        Raises DatasetError when the dataset does not take the rows; they stay in the journal, and the next
        seal tries again. With `stop`, a full disk is an error only once `stop` is set.
        """
        self.flush()
        self._end_current()
        files = self._disk.try_once("dataset", lambda: self._seal_segments(dataset))
        return files or []

    def close(self) -> None:
        """Close the journal's files and unlock its folder; the next `recover` finds what was flushed.

        What was not flushed is dropped: after an error it may be incomplete, such as rows without the mark of
        their messages. A second call does nothing.
        """
        if self._lock < 0:
            return
        try:
            if self._fsync_interval_s is not None:
                self._fsync()
        finally:
            for part in (self._ring, self._current):
                if part is not None:
                    part.close()
            os.close(self._lock)
            self._lock = -1

    def _read_earlier_segments(self, dataset: Dataset) -> CoverageClaims:
        """Load the messages and states that earlier runs left in the journal's files.

        Return what those runs claim to have observed (coverage).
        """
        with explain_os_errors(self._folder):
            earlier = read_earlier_runs(self._unsealed, dataset, self._folder.name)
        self._unsealed, self._coverage_sealed = earlier.segments, earlier.coverage_sealed
        self._waiting.extend(earlier.messages)
        self._next_ordinal, self._states = earlier.next_ordinal, earlier.states
        for name in {each for each in self._states if each.startswith(_RING_STATE)}:
            if not (self._folder / (name.removeprefix(_RING_STATE) + SUFFIX)).exists():
                del self._states[name]  # a kill came after the ring was removed and before its state was
        return earlier.claims

    def _take_over_rings(self, claims: CoverageClaims, dataset: Dataset) -> None:
        """Take over the rings (buffer files) of earlier runs; settle what those runs claim to have observed.

        A single undamaged ring stays, for `take_left_in_ring`. Otherwise the messages of rings that are not
        in the journal's other files are written there, and the rings are removed.
        """
        with explain_os_errors(self._folder):
            paths = sorted(self._folder.glob(f"*{SUFFIX}"))
            if len(paths) == 1 and not claims.is_damaged and self._resume(paths[0], claims):
                return
            found = [Ring.read_left(path) for path in paths]
        left_in: dict[str, list[Item]] = {}
        cut: set[str] = set()  # sessions that lost messages between their segments and their ring
        for path, left in zip(paths, found, strict=True):
            n_journalled = int(self._states.get(_RING_STATE + left.session, b"0"))
            left_in[left.session] = list(items_of_run(left.items, n_journalled))
            self.append_messages([item for item in left_in[left.session] if isinstance(item, Message)])
            cut |= {left.session} if left.n_released > n_journalled else set()
            if left.lost_bytes:
                self.lost_bytes += left.lost_bytes
                log.warning("journal.damaged", ring=path.name, lost_bytes=left.lost_bytes)
        # A journal without any file was removed, or all of it is sealed; then no interval lacks its end.
        is_damaged = claims.is_damaged or bool(cut) or any(left.lost_bytes for left in found)
        is_damaged = is_damaged or not (paths or self._unsealed)
        self._settle(claims.close_all(left_in, cut), dataset if is_damaged else None)
        for path, left in zip(paths, found, strict=True):
            with explain_os_errors(self._folder):
                if left.lost_bytes:
                    path.replace(path.with_suffix(".damaged"))
                else:
                    path.unlink()
                sync_folder(self._folder)
            self.set_state(_RING_STATE + left.session, None)

    def _resume(self, path: Path, claims: CoverageClaims) -> bool:
        """Open an ended session's ring (buffer file) for `take_left_in_ring`; return whether that worked.

        It fails where the ring is damaged, or where it released messages to a journal file that is lost. If
        it works, the coverage that each session claims is written to the journal too, as a state.
        """
        ring = Ring.resume(path)
        if ring is None:
            return False
        n_journalled = int(self._states.get(_RING_STATE + ring.session, b"0"))
        if ring.n_released > n_journalled:  # the segment that held the difference is lost
            ring.close()
            return False
        self._ring, self._left_in_ring = ring, items_of_run(ring.take_all(), n_journalled)
        self._n_taken = n_journalled
        self.set_state(COVERAGE_STATE + ring.session, claims.state_to_resume(ring.session))
        self._settle(claims.close_all({}, set()), None)
        return True

    def _settle(self, claims: dict[str, list[CoverageRow]], damaged: Dataset | None) -> None:
        """Write the `coverage` rows of ended sessions to the journal, a state per session; force it to disk.

        Messages that were appended before are written with them. `claims` has these rows by session. Where
        parts of the journal may be lost, `damaged` is the dataset: an interval in it whose continuation is
        lost is then ended too.
        """
        if damaged is not None:
            for session, rows in end_lost_intervals(
                self._folder.name, damaged.read(COVERAGE), claims
            ).items():
                claims.setdefault(session, []).extend(rows)
        for session, rows in claims.items():
            if rows or COVERAGE_STATE + session in self._states:
                self.set_state(COVERAGE_STATE + session, settled_state(rows))
        if self._n_new_messages or self._new_states:
            self.flush()
            self._fsync()

    def _seal_segments(self, dataset: Dataset, *, is_recovery: bool = False) -> list[Path]:
        """Write the rows of every older journal file to Parquet and remove it, oldest first.

        Return the Parquet files. In a recovery a journal file's rows of `coverage` are left out, because the
        settled states hold them too. They are written again only if an earlier run had already begun to write
        them to Parquet.
        """
        if not self._is_carried:
            self._carry_over()
        written: list[Path] = []
        while self._unsealed:
            segment = self._unsealed[0]
            with explain_os_errors(self._folder):
                content = segment.read()
            batches = content.batches
            names = batches.keys() - OWN_NAMES
            if is_recovery and segment.stem not in self._coverage_sealed:
                names -= {"coverage"}
            for name in sorted(names, key=lambda name: (name in SEALED_LAST, name)):
                rows = pa.Table.from_batches(batches[name])
                written += self._write_fitting(dataset, _table(name), rows, segment.stem)
            if content.lost_bytes:
                self.lost_bytes += content.lost_bytes
                log.warning("journal.damaged", segment=segment.stem, lost_bytes=content.lost_bytes)
            with explain_os_errors(self._folder):
                segment.remove(keep=content.lost_bytes > 0)
            del self._unsealed[0]
        return written

    def _write_fitting(self, dataset: Dataset, table: Table, rows: pa.Table, stem: str) -> list[Path]:
        """Write rows of a journal file to Parquet and return the files; rows that do not fit become rejects.

        Rows that an older version wrote may not fit the table as it is now.
        """
        try:
            return dataset.write(table, rows, stem=stem)
        except RowRefused:
            fitting, refused = split_refused(table, rows, conform)
        rejects = pa.Table.from_batches([self._rejects(refused, ())])
        written = dataset.write(REJECTS, rejects, stem=f"{stem}-{table.name}")
        return written + (dataset.write(table, pa.concat_tables(fitting), stem=stem) if fitting else [])

    def _carry_over(self) -> None:
        """Copy the messages without rows and the states into a newer journal file, and force it to disk.

        The older journal files can then be removed.
        """
        batches = {}
        if self._waiting:
            batches[MESSAGES] = message_batch(self._waiting)
        if self._states:
            batches[STATES] = state_batch(self._states)
        if batches:
            with explain_os_errors(self._folder):
                batches[SIZES] = size_batch(self._unsealed)
            self._write_once(batches)
            self._fsync()
        self._is_carried = True

    def _write(self, batches: Mapping[str, pa.RecordBatch]) -> None:
        self._disk.retry_until_done("journal", lambda: self._write_once(batches))

    def _write_once(self, batches: Mapping[str, pa.RecordBatch]) -> int:
        """Append one unit of data to the current journal file; return the file's size in bytes.

        Raises NotWritable when the system refuses to write.
        """
        with explain_os_errors(self._folder):
            if self._current is None:
                self._current = Segment.create(self._folder, self._number + 1)
                self._number += 1
            try:
                self._current.write(batches)
            except OSError as error:
                if error.errno != errno.EFBIG or not self._current.size_bytes:
                    raise
                self._end_current()  # the limit on a file's size (RLIMIT_FSIZE) holds for each file
                return self._write_once(batches)
            self._is_synced = False
            return self._current.size_bytes

    def _end_current(self) -> None:
        """Close the current journal file, so that the next write begins a new one."""
        if self._current is not None:
            self._current.close()
            self._unsealed.append(self._current)
            self._current = None
            self._is_carried = False

    def _fsync(self) -> None:
        if self._current is not None and not self._is_synced:
            with explain_os_errors(self._folder):
                self._current.fsync()
            self._is_synced = True
        self._fsynced_s = time.monotonic()


def _table(name: str) -> Table:
    if name not in TABLES:
        raise DatasetError(f"no table {name!r} in the contract of this version: {', '.join(TABLES)}")
    return TABLES[name]


class DiskSpace:
    """Repeats writes of a journal and its dataset that the system refuses, and knows which are refused now.

    The pauses between two tries grow. The log gets the first refusal and the end of the trouble. Setting
    `stop` ends the repetition. Without `stop`, a refused write raises NotWritable at once.
    """

    def __init__(self, stop: threading.Event | None) -> None:
        self._stop = stop
        self._full: dict[str, str] = {}  # by what cannot be written now: why

    @property
    def blocked(self) -> str:
        """Return why the journal or the dataset cannot be written now; an empty text when both can."""
        return "; ".join(self._full.values())

    def retry_until_done(self, what: str, act: Callable[[], T]) -> T:
        """Call `act` until its write succeeds, and return its result. Raises NotWritable once `stop` is set.

        `what` names in the log what cannot be written. `act` must not return None.
        """
        done = self.try_once(what, act)
        if done is None:
            pauses = Backoff(*RETRY_S)
            while done is None:
                assert self._stop is not None  # noqa: S101 - else `try_once` raises
                pauses.wait(self._stop)
                done = self.try_once(what, act)
        return done

    def try_once(self, what: str, act: Callable[[], T]) -> T | None:
        """Call `act` once; return its result, or None when its write was refused.

        `what` names in the log what cannot be written. Raises NotWritable when there is no `stop` or it is
        set.
        """
        try:
            done = act()
        except NotWritable as error:
            if self._stop is None or self._stop.is_set():
                raise
            if what not in self._full:
                log.error("disk.full", what=what, reason=str(error))  # noqa: TRY400 - no mistake of the program
            self._full[what] = str(error)
            return None
        if self._full.pop(what, None) is not None:
            log.info("disk.goes_on", what=what)
        return done
