"""Make the rows of `mempool_events`. Only a removal's row waits, until we know why the transaction left."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from collector.dataset.rows import MempoolEventRow
from collector.journal.batches import Batch, Batches
from collector.mempool.contents import MempoolContents
from collector.mempool.recent_txs import RecentTransactions
from collector.mempool.removals import Outpoints, Removals, Settled
from collector.mempool.sync import Event


class SpendingBlocks(Protocol):
    """Tells which outpoints a node's blocks spend, because a removal may be explained by a block."""

    def outpoints_spent_in(self, block_hash: bytes) -> list[bytes]:
        """Return the outpoints that a block spends; an empty list when the block was not parsed lately."""


class PendingEvents:
    """Holds the mempool events of one node and session that have no row yet, and makes their rows.

    To learn what a transaction spends, it looks in `recent_txs` first, then in `contents`.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        batches: Batches,
        *,
        contents: MempoolContents,
        recent_txs: RecentTransactions,
        blocks: SpendingBlocks,
    ) -> None:
        self._origin = origin  # node and session
        self._batches = batches
        self._contents = contents
        self._recent_txs = recent_txs
        self._blocks = blocks
        self._removals = Removals()
        self._owners: dict[int, Batch] = {}  # by counter: the batches of the events that have no row yet
        self._n_pulled = 0

    def __len__(self) -> int:
        return len(self._removals)

    def expect(self, sequence: int, batch: Batch) -> None:
        """Remember which batch waits for the row of the event with this counter of the `sequence` topic."""
        self._owners[sequence] = batch

    def add(self, event: Event, now_us: int) -> Batch:
        """Make the row of an event and the rows of the removals that it explains; return the event's batch.

        The row of a removal (R) waits until its reason is known. `expect` must have been called for the
        event. `now_us` is the present time on the monotonic clock.
        """
        batch = self._owners[event.sequence]
        if event.event == "R":
            self._settled(self._removals.removed(event, self._outpoints_of(event.hash), now_us))
            return batch
        self._give_out(event)
        if event.event == "C":
            self._settled(self._removals.connected(partial(self._blocks.outpoints_spent_in, event.hash)))
        elif event.event == "D":
            self._settled(self._removals.disconnected(event))
        else:
            spent = self._outpoints_of(event.hash) if self._removals else None
            self._settled(self._removals.added(event, spent))
        return batch

    def add_from_snapshot(self, letter: str, txid: bytes, at_us: int, reason: str | None = None) -> None:
        """Make the row of a transaction that entered (A) or left (R) the mempool as only a snapshot shows.

        The event had no message, so its row gets a negative counter. The row waits for no other row: the next
        flush writes it to the journal. `at_us` is the wall clock.
        """
        self._n_pulled += 1
        event = Event(letter, txid, None, -self._n_pulled, at_us)
        self._batches.add_independent("mempool_events", [self._row(event, "pulled", reason, None)])

    def tick(self, now_us: int) -> None:
        """Make the rows of removals that nothing has explained for more than a second before `now_us`."""
        self._settled(self._removals.tick(now_us))

    def flush(self) -> None:
        """Make the rows of all removals now, with the best reason found so far: no more events come."""
        self._settled(self._removals.flush())

    def _outpoints_of(self, txid: bytes) -> Outpoints | None:
        """Return the outpoints that a transaction spends; None when we do not have its bytes."""
        body = self._recent_txs.get(txid)
        return self._contents.outpoints(txid) if body is None else frozenset(body.outpoints)

    def _settled(self, settled: Iterable[Settled]) -> None:
        """Make the rows of removals whose reasons are now decided, and add them to their batches."""
        for event, reason, replaced_by in settled:
            self._give_out(event, reason, replaced_by)

    def _give_out(self, event: Event, reason: str | None = None, replaced_by: bytes | None = None) -> None:
        """Make the row of an event and add it to the batch that waits for it."""
        batch = self._owners.pop(event.sequence)
        batch.add("mempool_events", [self._row(event, "pushed", reason, replaced_by)])
        batch.n_pending_rows -= 1

    def _row(self, event: Event, kind: str, reason: str | None, replaced_by: bytes | None) -> MempoolEventRow:
        """Return the `mempool_events` row of an event."""
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
