"""Keep what was received safe until it is sealed into Parquet.

Entries are messages as they came, the rows made of them, and named states (bytes that the next run needs).
`flush` writes all entries since the last flush as one frame that counts as a whole or not at all, so rows
cannot be parted from the mark that the messages they were made of are consumed. `seal` turns the rows of a
segment into Parquet files named after the segment and then removes it; a repeated seal writes nothing twice.
Hence after SIGKILL at any point `recover` seals exactly the rows that were flushed, once, and hands back
exactly the flushed messages that have no rows.

Messages come through a ring (`collector.receive.ring`) that keeps them until they are flushed, so that
SIGKILL costs nothing received: what is in the ring of a killed run and not in a segment follows in turns
(`take_left_in_ring`). Of other entries a kill costs those since the last `flush`; they are made anew from the
messages. A power cut costs at most `fsync_interval_s` of flushed entries (1 s by default; 0 forces every
flush to disk; None leaves it to the operating system, often half a minute) and the ring. Sealed rows are on
disk before their segment goes.

A full disk is waited out: `flush` tries again until there is space or `stop` is set. The ring fills
meanwhile, and when it is full the receiver says so. `seal` leaves what it could not write in the journal.

Damage to a segment costs the frames that it hits: they are named in the log and in `Journal.lost_bytes`, the
file is kept as `.damaged`, and `collector.journal.recovery` settles what is claimed by what is left. One
thread uses a Journal; one Journal uses a folder.
"""

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import structlog

from collector.dataset.atomic_write import sync_folder
from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, TABLES, Table
from collector.dataset.writer import to_batch
from collector.errors import DatasetError
from collector.journal.adoption import read_earlier_runs
from collector.journal.coverage_ledger import COVERAGE_STATE, Row
from collector.journal.disk_space import DiskSpace
from collector.journal.frames import (
    CONSUMED,
    MESSAGES,
    OWN_NAMES,
    SIZES,
    STATES,
    Waiting,
    consumed_batch,
    message_batch,
    size_batch,
    state_batch,
    update,
)
from collector.journal.recovery import CoverageClaims, end_lost_intervals, items_of_run, settled_state
from collector.journal.segment import Segment, explain_os_errors, lock_folder
from collector.receive.records import Message
from collector.receive.ring import CAPACITY_BYTES, SUFFIX, Item, Ring

DEFAULT_FSYNC_INTERVAL_S: Final = 1.0
VOUCHING: Final = {"blocks", "coverage"}  # sealed last: who finds their rows expects those of other tables
_RING_STATE: Final = "_ring/"  # + session: number of the last message from its ring that is in a segment
log = structlog.get_logger(__name__)


class Journal:
    """The journal in a folder, which it locks. Call `recover` before anything else.

    Raises DatasetError when the folder cannot be used or another process uses it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fsync_interval_s: float | None = DEFAULT_FSYNC_INTERVAL_S,
        stop: threading.Event | None = None,
        ring_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self.lost_bytes = 0  # of segments and rings, of earlier runs or this one, that could not be read
        self._space = DiskSpace(stop)
        self._ring: Ring | None = None
        self._late: Iterator[Item] = iter(())  # what a killed run left in it
        self._ring_bytes = ring_bytes
        self._folder = folder
        self._fsync_interval_s = fsync_interval_s
        self._fsynced_s = time.monotonic()
        self._is_synced = True
        self._lock = lock_folder(folder)
        with explain_os_errors(folder):
            self._unsealed = Segment.all_in(folder)
        self._is_carried = not self._unsealed  # what must outlive the unsealed segments stands in a newer one
        self._number = max((segment.number for segment in self._unsealed), default=0)
        self._current: Segment | None = None
        self._states: dict[str, bytes] = {}
        self._waiting: Waiting = deque()
        self._next_ordinal = 0
        self._coverage_sealed: set[str] = set()  # stems of segments whose coverage was being sealed
        # What the next flush will write.
        self._new_rows: dict[str, list[Sequence[Mapping[str, Any]] | pa.RecordBatch]] = {}
        self._n_new_messages = 0
        self._n_new_consumed = 0
        self._new_states: dict[str, bytes | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size_bytes(self) -> int:
        """Bytes in the segment that `seal` would turn into Parquet."""
        return self._current.size_bytes if self._current else 0

    @property
    def blocked(self) -> str:
        """Why something cannot be written now: the disk is full. Empty when all is well."""
        return self._space.blocked

    @property
    def states(self) -> Mapping[str, bytes]:
        """The named states, as last flushed by this run or found by `recover`."""
        return self._states

    def recover(self, dataset: Dataset) -> list[Message]:
        """Seal what earlier runs left; returns their messages that have not become rows, oldest first.

        The messages stay in the journal until `mark_consumed`. So does what earlier runs claim to have
        observed, as a state for each session (`recovery.settled_state`): it becomes rows of `coverage` with
        the session's messages. What the last run left in its ring follows by `take_left_in_ring`; where
        something is damaged it is among the messages. Raises DatasetError when the dataset does not take the
        rows; then nothing is lost, and the next run recovers.
        """
        claims = self._read_earlier_segments(dataset)
        self._take_over_rings(claims, dataset)
        self._seal_segments(dataset, is_recovery=True)
        return [message for _, message in self._waiting]

    def take_left_in_ring(self, session: str, limit: int) -> list[Item]:
        """Take what a killed run received, up to `limit` items, to be flushed; none end the ring."""
        if self._ring is None or self._ring.session != session:
            return []
        items = list(islice(self._late, limit))
        if not items:
            self.remove_ring()
        return items

    def make_ring(self, node: str, session: str, topics: Sequence[str]) -> Ring:
        """Make the ring through which the messages of a session come; it ends with `remove_ring`."""
        self.remove_ring()
        self._ring = self._space.retry_until_done("journal", lambda: self._new_ring(node, session, topics))
        return self._ring

    def _new_ring(self, node: str, session: str, topics: Sequence[str]) -> Ring:
        with explain_os_errors(self._folder):
            at = self._folder / (session + SUFFIX)
            return Ring.create(at, node=node, session=session, topics=topics, capacity_bytes=self._ring_bytes)

    def remove_ring(self) -> None:
        """Do without the ring: its session has ended, and all that is in it is journalled or not wanted."""
        if self._ring is not None:
            ring, self._ring = self._ring, None
            ring.close()
            with explain_os_errors(self._folder):
                ring.path.unlink()
            self.set_state(_RING_STATE + ring.session, None)

    def append(self, table_name: str, rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> None:
        """Add rows of a table, as `writer.to_batch` takes them."""
        name = _table(table_name).name
        if len(rows):
            self._new_rows.setdefault(name, []).append(rows)

    def append_messages(self, messages: Sequence[Message]) -> None:
        """Add messages as received, in order."""
        self._waiting.extend(enumerate(messages, self._next_ordinal))
        self._next_ordinal += len(messages)
        self._n_new_messages += len(messages)
        if messages and messages[-1].number:
            self.set_state(_RING_STATE + messages[-1].session, str(messages[-1].number).encode())

    def mark_consumed(self, count: int) -> None:
        """Say that the rows appended so far hold the `count` oldest messages not yet marked."""
        unmarked = len(self._waiting) - self._n_new_consumed
        if not 0 <= count <= unmarked:
            raise ValueError(f"cannot mark {count} messages as consumed: {unmarked} are waiting")
        self._n_new_consumed += count

    def set_state(self, name: str, value: bytes | None) -> None:
        """Keep bytes for the next run under a name, in place of what it had; None forgets the name."""
        self._new_states[name] = value

    def flush(self) -> None:
        """Write all new entries as one frame. After it, SIGKILL cannot cost them.

        Raises DatasetError when a row breaks the contract or the disk does not take the frame; the entries
        stay, and the next flush tries again. With `stop` a full disk is no error before that is set.
        """
        batches = {
            name: pa.concat_batches([to_batch(TABLES[name], rows) for rows in parts])
            for name, parts in self._new_rows.items()
        }
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
        if self._ring is not None and self._n_new_messages:
            self._ring.release(self._waiting[-1][1].number)
        for _ in range(self._n_new_consumed):
            self._waiting.popleft()
        update(self._states, self._new_states)
        self._new_rows, self._new_states = {}, {}
        self._n_new_messages = self._n_new_consumed = 0
        interval_s = self._fsync_interval_s
        if interval_s is not None and time.monotonic() - self._fsynced_s >= interval_s:
            self._space.try_once("journal", self._fsync)

    def seal(self, dataset: Dataset) -> list[Path]:
        """Flush, begin a new segment and turn every older one into Parquet; returns the files.

        Raises DatasetError when the dataset does not take the rows; they stay, and the next seal tries again.
        With `stop` a full disk is no error before that is set.
        """
        self.flush()
        self._end_current()
        files = self._space.try_once("dataset", lambda: self._seal_segments(dataset))
        return files or []

    def close(self) -> None:
        """Give up the folder. What was flushed is found by the next `recover`. May be called twice.

        What was not is dropped: after an error it may be half of a step, rows without their mark.
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
        """Take over what earlier runs left in segments; returns what they claim to have observed."""
        with explain_os_errors(self._folder):
            earlier = read_earlier_runs(self._unsealed, dataset, self._folder.name)
        self._unsealed, self._coverage_sealed = earlier.segments, earlier.coverage_sealed
        self._waiting.extend(earlier.messages)
        self._next_ordinal, self._states = earlier.next_ordinal, earlier.states
        for name in {each for each in self._states if each.startswith(_RING_STATE)}:
            if not (self._folder / (name.removeprefix(_RING_STATE) + SUFFIX)).exists():
                del self._states[name]  # a kill came between the end of a ring and that of its state
        return earlier.claims

    def _take_over_rings(self, claims: CoverageClaims, dataset: Dataset) -> None:
        """Flush the messages in rings of earlier runs that are in no segment, and what is claimed then."""
        with explain_os_errors(self._folder):
            paths = sorted(self._folder.glob(f"*{SUFFIX}"))
            if len(paths) == 1 and not claims.is_damaged and self._resume(paths[0], claims):
                return
            found = [Ring.read_left(path) for path in paths]
        late: dict[str, list[Item]] = {}
        cut: set[str] = set()
        for path, left in zip(paths, found, strict=True):
            done = int(self._states.get(_RING_STATE + left.session, b"0"))
            late[left.session] = list(items_of_run(left.items, done))
            self.append_messages([item for item in late[left.session] if isinstance(item, Message)])
            cut |= {left.session} if left.released > done else set()
            if left.lost_bytes:
                self.lost_bytes += left.lost_bytes
                log.warning("journal.damaged", ring=path.name, lost_bytes=left.lost_bytes)
        is_damaged = claims.is_damaged or bool(cut) or any(left.lost_bytes for left in found)
        self._settle(claims.close_all(late, cut), dataset if is_damaged else None)
        for path, left in zip(paths, found, strict=True):
            with explain_os_errors(self._folder):
                if left.lost_bytes:
                    path.replace(path.with_suffix(".damaged"))
                else:
                    path.unlink()
                sync_folder(self._folder)
            self.set_state(_RING_STATE + left.session, None)

    def _resume(self, path: Path, claims: CoverageClaims) -> bool:
        """Leave what is in a ring there, for `take_left_in_ring`; False when something of it is lost."""
        ring = Ring.resume(path)
        if ring is None:
            return False
        done = int(self._states.get(_RING_STATE + ring.session, b"0"))
        if ring.n_released > done:
            ring.close()
            return False
        self._ring, self._late = ring, items_of_run(ring.take_all(), done)
        self.set_state(COVERAGE_STATE + ring.session, claims.state_to_resume(ring.session))
        self._settle(claims.close_all({}, set()), None)
        return True

    def _settle(self, claims: dict[str, list[Row]], damaged: Dataset | None) -> None:
        """Flush what was observed by sessions that have ended, together with the last of their messages."""
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
        """Write the rows of every segment but the current one, oldest first, and remove it.

        What a segment of an earlier run claims is settled, unless its file was begun.
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
            for name in sorted(names, key=lambda name: (name in VOUCHING, name)):
                rows = pa.Table.from_batches(batches[name])
                written += dataset.write(_table(name), rows, stem=segment.stem)
            if content.lost_bytes:
                self.lost_bytes += content.lost_bytes
                log.warning("journal.damaged", segment=segment.stem, lost_bytes=content.lost_bytes)
            with explain_os_errors(self._folder):
                segment.remove(keep=content.lost_bytes > 0)
            del self._unsealed[0]
        return written

    def _carry_over(self) -> None:
        """Write what must outlive the unsealed segments into a newer one, and force it to disk."""
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
        self._space.retry_until_done("journal", lambda: self._write_once(batches))

    def _write_once(self, batches: Mapping[str, pa.RecordBatch]) -> int:
        """Write one frame; returns the bytes in the segment. Raises NoSpace when the disk is full."""
        with explain_os_errors(self._folder):
            if self._current is None:
                self._current = Segment.create(self._folder, self._number + 1)
                self._number += 1
            try:
                self._current.write(batches)
            except OSError as error:
                if error.errno != errno.EFBIG or not self._current.size_bytes:
                    raise
                self._end_current()  # each file has the limit for itself
                return self._write_once(batches)
            self._is_synced = False
            return self._current.size_bytes

    def _end_current(self) -> None:
        """Let the next frame begin a new segment."""
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
