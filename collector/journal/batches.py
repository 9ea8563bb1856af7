"""Commit rows together with the mark that their messages are consumed, in the order of receipt.

A batch holds the messages that were received together, and the rows made of them. Its messages go to the
journal at once. Its rows go to the journal when all of them are complete, together with the mark that the
messages are consumed. A row may have to wait for a fee or a block, so several batches can be open at a time;
they are committed from the oldest on. After a kill the journal returns the messages of the batches that were
not committed, and no others.
"""

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from collector.dataset.rows import Row
from collector.journal.journal import Journal
from collector.receive.records import Message


class CommittedRows(Protocol):
    """Receives rows once they are in the journal, so that it never gets a row that a kill could undo."""

    @property
    def tables(self) -> Collection[str]:
        """Return the names of the tables whose committed rows this receiver wants; it gets no others."""

    def take(self, table: str, rows: Sequence[Row] | pa.RecordBatch) -> None:
        """Receive rows of one table that the journal has just committed."""


class Batch:
    """Holds messages received together, the rows made of them so far, and how many rows are still missing."""

    __slots__ = (
        "arrow_batches",
        "began_s",
        "first_by_topic",
        "is_committed",
        "n_bytes",
        "n_messages",
        "n_pending_rows",
        "rows",
    )

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.began_s = time.monotonic()
        self.n_messages = len(messages)
        self.n_bytes = sum(len(message.body) for message in messages)
        self.first_by_topic = _first_by_topic(messages)
        self.is_committed = False  # its rows are in the journal
        self.n_pending_rows = 0  # rows still to come; whoever adds one later counts it up now and down then
        self.rows: dict[str, list[Row]] = {}
        self.arrow_batches: list[tuple[str, pa.RecordBatch]] = []  # rows that were made many at once

    def add(self, table: str, rows: Iterable[Row] | pa.RecordBatch) -> None:
        """Add complete rows of a table to this batch of messages and their rows."""
        if isinstance(rows, pa.RecordBatch):
            self.arrow_batches.append((table, rows))
        else:
            self.rows.setdefault(table, []).extend(rows)


class Batches:
    """Holds the batches (messages and their rows) of one node that are not yet in its journal with all rows.

    `follower` receives the committed rows of the tables that it wants.
    """

    def __init__(self, journal: Journal, follower: CommittedRows | None = None) -> None:
        self._journal = journal
        self._follower = follower
        self._followed = frozenset() if follower is None else frozenset(follower.tables)
        self._open: deque[Batch] = deque()  # oldest first
        self._from_states: dict[str, Batch] = {}  # batches by the name of the state they are made of
        self._independent = Batch()  # rows that are made of no message and wait for no other row
        self._recovered: deque[Message] = deque()  # handed back by the journal, and in no batch yet
        self.current = self._next()

    def begin(self, messages: Sequence[Message]) -> Batch:
        """Write new messages to the journal, and return a batch of them, which becomes the current batch.

        The messages are safe from a kill when this returns.
        """
        self._journal.append_messages(messages)
        self._journal.flush()
        return self._next(messages)

    def keep_recovered(self, messages: deque[Message]) -> None:
        """Keep the messages that the journal recovered; `begin_recovered` takes them out of `messages`."""
        self._recovered = messages

    def begin_recovered(self, limit: int) -> tuple[list[Message], Batch]:
        """Return the next recovered messages, at most `limit`, and a batch of them."""
        messages = [self._recovered.popleft() for _ in range(min(limit, len(self._recovered)))]
        return messages, self._next(messages)

    def add_independent(self, table: str, rows: Iterable[Row]) -> None:
        """Add complete rows that are not made of messages; the next commit writes them to the journal.

        These rows wait for no open batch.
        """
        self._independent.add(table, rows)

    def begin_from_state(self, state_name: str, state: bytes) -> Batch:
        """Write a named state to the journal; return a batch for rows made of that state and not of messages.

        No other batch waits for this one. The commit that writes the rows also removes the state.
        """
        self._journal.set_state(state_name, state)
        batch = self._from_states[state_name] = Batch()
        return batch

    @property
    def n_messages(self) -> int:
        """Return the number of messages in batches that are not committed."""
        return sum(batch.n_messages for batch in self._open)

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the messages in batches that are not committed have."""
        return sum(batch.n_bytes for batch in self._open)

    @property
    def first_uncommitted(self) -> dict[str, Message]:
        """Return, by topic, the first message that is in a batch not yet committed, or in no batch yet."""
        first = _first_by_topic(self._recovered)
        for batch in reversed(self._open):
            first |= batch.first_by_topic
        return first

    @property
    def waiting_s(self) -> float:
        """Return for how many seconds the oldest open batch has waited for rows; 0 if it waits for none."""
        oldest = self._open[0] if self._open else None
        return time.monotonic() - oldest.began_s if oldest is not None and oldest.n_pending_rows else 0.0

    def commit(self) -> dict[str, int]:
        """Write to the journal the rows of complete batches with no open batch before them.

        Returns the number of rows written, by table. Raises RuntimeError when a batch got more rows than it
        waited for, because it could then never be committed.
        """
        if any(batch.n_pending_rows < 0 for batch in (*self._open, *self._from_states.values())):
            raise RuntimeError("a batch got a row that it did not wait for; its messages stay in the journal")
        complete, self._independent = [self._independent], Batch()
        while self._open and not self._open[0].n_pending_rows:
            complete.append(self._open.popleft())
        for name in [name for name, batch in self._from_states.items() if not batch.n_pending_rows]:
            complete.append(self._from_states.pop(name))
            self._journal.set_state(name, None)
        counts: dict[str, int] = {}
        for batch in complete:
            for table, rows in (*batch.rows.items(), *batch.arrow_batches):
                self._journal.append(table, rows)
                counts[table] = counts.get(table, 0) + len(rows)
            self._journal.mark_consumed(batch.n_messages)
            batch.is_committed = True
        if not self._open:
            self._next()  # later rows must not go into a batch that is committed
        self._journal.flush()
        self._pass_on(complete)
        return counts

    def _pass_on(self, committed: Iterable[Batch]) -> None:
        """Pass the rows of committed batches to the follower, of the tables that it wants."""
        if self._follower is None:
            return
        for batch in committed:
            for table, rows in (*batch.rows.items(), *batch.arrow_batches):
                if table in self._followed:
                    self._follower.take(table, rows)

    def _next(self, messages: Sequence[Message] = ()) -> Batch:
        """Begin a batch of `messages`, make it the current one and return it."""
        self.current = Batch(messages)
        self._open.append(self.current)
        return self.current


def _first_by_topic(messages: Sequence[Message]) -> dict[str, Message]:
    """Return the first message of each topic, keyed by topic."""
    return {message.topic: message for message in reversed(messages)}
