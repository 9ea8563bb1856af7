"""Rows and the messages they were made of, committed together and in order.

A batch is what was received between two looks at the queue. Its messages go to the journal at once; its rows
go there, with the mark that the messages are consumed, when all of them are complete. A fee or a block may
be on its way for some while, so several batches can be open; they are committed from the oldest on. After a
kill the journal hands back the messages of the batches that were not committed, and of no other.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from collector.journal.journal import Journal
from collector.receive.records import Message

Row = dict[str, Any]


class Batch:
    """Messages received together, the rows made of them so far, and how many are still to come."""

    __slots__ = ("began_s", "columns", "first", "n_bytes", "n_messages", "n_open", "rows")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.began_s = time.monotonic()
        self.n_messages = len(messages)
        self.n_bytes = sum(len(message.body) for message in messages)
        self.first = _first_of(messages)
        self.n_open = 0
        self.rows: dict[str, list[Row]] = {}
        self.columns: list[tuple[str, pa.RecordBatch]] = []  # rows too: those that were made many at once

    def add(self, table: str, rows: Iterable[Row] | pa.RecordBatch) -> None:
        """Add complete rows."""
        if isinstance(rows, pa.RecordBatch):
            self.columns.append((table, rows))
        else:
            self.rows.setdefault(table, []).extend(rows)


class Batches:
    """The batches of one node that are not committed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: deque[Batch] = deque()
        self._aside: dict[str, Batch] = {}
        self._free = Batch()  # rows that wait for no other
        self._left: deque[Message] = deque()  # handed back by the journal, and in no batch yet
        self.current = self._next()

    def begin(self, messages: Sequence[Message]) -> Batch:
        """Journal messages, safe from a kill when this returns, as a batch that becomes the current one."""
        self._journal.append_messages(messages)
        self._journal.flush()
        return self._next(messages)

    def adopt(self, messages: deque[Message]) -> None:
        """Take messages that the journal handed back, for `again`, which takes them out of `messages`."""
        self._left = messages

    def again(self, limit: int) -> tuple[list[Message], Batch]:
        """Begin a batch of the next messages that were handed back, up to so many."""
        messages = [self._left.popleft() for _ in range(min(limit, len(self._left)))]
        return messages, self._next(messages)

    def at_once(self, table: str, rows: Iterable[Row]) -> None:
        """Add complete rows that no message implies, for the next commit: no open batch holds them up."""
        self._free.add(table, rows)

    def aside(self, state_name: str, state: bytes) -> Batch:
        """Begin a batch of rows that no message implies, and journal what they are to be made of.

        It holds up no other batch; the state goes when the rows are there.
        """
        self._journal.set_state(state_name, state)
        batch = self._aside[state_name] = Batch()
        return batch

    @property
    def n_messages(self) -> int:
        """Messages whose rows are not complete."""
        return sum(batch.n_messages for batch in self._open)

    @property
    def n_bytes(self) -> int:
        """Bytes of the messages whose rows are not complete."""
        return sum(batch.n_bytes for batch in self._open)

    @property
    def unfinished(self) -> dict[str, Message]:
        """The first message of each topic in a batch that is not committed, or in none yet."""
        unfinished = _first_of(self._left)
        for batch in reversed(self._open):
            unfinished |= batch.first
        return unfinished

    @property
    def waiting_s(self) -> float:
        """For how long the oldest batch has been open; 0 when it waits for nothing."""
        return time.monotonic() - self._open[0].began_s if self._open and self._open[0].n_open else 0.0

    def commit(self) -> dict[str, int]:
        """Journal the rows of all complete batches at the head; returns how many per table.

        Raises RuntimeError when a batch got more rows than were to come: it could never be committed.
        """
        if any(batch.n_open < 0 for batch in (*self._open, *self._aside.values())):
            raise RuntimeError("a batch got a row that it did not wait for; its messages stay in the journal")
        complete, self._free = [self._free], Batch()
        while self._open and not self._open[0].n_open:
            complete.append(self._open.popleft())
        for name in [name for name, batch in self._aside.items() if not batch.n_open]:
            complete.append(self._aside.pop(name))
            self._journal.set_state(name, None)
        counts: dict[str, int] = {}
        for batch in complete:
            for table, rows in (*batch.rows.items(), *batch.columns):
                self._journal.append(table, rows)
                counts[table] = counts.get(table, 0) + len(rows)
            self._journal.mark_consumed(batch.n_messages)
        if not self._open:
            self._next()  # what comes next must not go into a batch that is committed
        self._journal.flush()
        return counts

    def _next(self, messages: Sequence[Message] = ()) -> Batch:
        self.current = Batch(messages)
        self._open.append(self.current)
        return self.current


def _first_of(messages: Sequence[Message]) -> dict[str, Message]:
    """Return the first message of each topic."""
    return {message.topic: message for message in reversed(messages)}
