"""Rows of `mempool_events`: each waits for nothing, except an R, which waits for its reason."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from collector.journal.batches import Batch, Batches
from collector.mempool.removals import Outpoints, Removals, Settled
from collector.mempool.sync import Event

Row = dict[str, Any]


class PendingEvents:
    """The events of one node and session on their way to a row.

    `spent_by` returns the outpoints that a transaction spends, None when they are unknown.
    """

    def __init__(
        self, origin: tuple[str, str], batches: Batches, spent_by: Callable[[bytes], Outpoints | None]
    ) -> None:
        self._origin = origin  # node and session
        self._batches = batches
        self._spent_by = spent_by
        self._removals = Removals()
        self._owners: dict[int, Batch] = {}  # by counter: events without a row
        self._n_pulled = 0

    def __len__(self) -> int:
        return len(self._removals)

    def expect(self, sequence: int, batch: Batch) -> None:
        """Say that a message is an event, whose row `batch` waits for."""
        self._owners[sequence] = batch

    def happened(self, event: Event, spent_in_block: Callable[[], Collection[bytes]], now_us: int) -> Batch:
        """Make the row of an event, and those of the removals that it explains; returns its batch."""
        batch = self._owners[event.sequence]
        if event.event == "R":
            self._settled(self._removals.removed(event, self._spent_by(event.hash), now_us))
            return batch
        self._give_out(event)
        if event.event == "C":
            self._settled(self._removals.connected(spent_in_block))
        elif event.event == "D":
            self._settled(self._removals.disconnected(event))
        else:
            spent = self._spent_by(event.hash) if self._removals else None
            self._settled(self._removals.added(event, spent))
        return batch

    def pulled(self, letter: str, txid: bytes, at_us: int, reason: str | None = None) -> None:
        """Make the row of an event that a snapshot implies; its counter is negative, for there was none.

        No message holds it, so it waits for no other row: it is in the journal with the next flush.
        """
        self._n_pulled += 1
        event = Event(letter, txid, None, -self._n_pulled, at_us)
        self._batches.add_independent("mempool_events", [self._row(event, "pulled", reason, None)])

    def tick(self, now_us: int) -> None:
        """Let time pass: give up on reasons that nothing tells."""
        self._settled(self._removals.tick(now_us))

    def flush(self) -> None:
        """Give out everything with what is known."""
        self._settled(self._removals.flush())

    def _settled(self, settled: Iterable[Settled]) -> None:
        for event, reason, replaced_by in settled:
            self._give_out(event, reason, replaced_by)

    def _give_out(self, event: Event, reason: str | None = None, replaced_by: bytes | None = None) -> None:
        batch = self._owners.pop(event.sequence)
        batch.add("mempool_events", [self._row(event, "pushed", reason, replaced_by)])
        batch.n_pending_rows -= 1

    def _row(self, event: Event, kind: str, reason: str | None, replaced_by: bytes | None) -> Row:
        return {
            "node": self._origin[0],
            "session": self._origin[1],
            "sequence": event.sequence,
            "kind": kind,
            "received_at": event.received_us,
            "event": event.event,
            "hash": event.hash,
            "mempool_sequence": event.mempool_sequence,
            "removal_reason": reason,
            "replaced_by": replaced_by,
        }
