"""Make the rows of `mempool_events`, and find out why each transaction left the mempool.

The node does not say why a transaction left: `Removals` derives it from the events that follow. Only the row
of a removal waits for that; every other row is made at once.

Events are named by the node's letters: A a transaction was added, R one was removed, C a block was connected,
D a block was disconnected. The node sends an R before the event that caused it: the A of a replacing
transaction follows the R of what it replaces, and the C of a block follows the R of what conflicts with it.
So an R waits until the events after it explain it, or until a second has passed. In a reorganisation the
order is D, R, A, then C. When an operator invalidates the tip, no C may follow; a removal that comes more
than a minute after the D then has another cause.

Nothing here has a socket or a clock. `Removals` takes events, the outpoints that their transactions spend,
the present monotonic time, and the wall clock until which all events were given. It returns the removals that
it could explain.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from collector.codec.format import TXID_BYTES
from collector.codec.transaction import RecentTransactions
from collector.dataset.rows import MempoolEventRow
from collector.journal.batches import Batch, Batches
from collector.mempool.sync import Event, MempoolContents

QUIET_US: Final = 1_000_000  # after its R, a removal that nothing explains is given the reason that remains
REORGANISATION_US: Final = 60_000_000  # by then after a D, the other branch is connected or there is none
TRUC_VERSION: Final = 3  # transactions that are "topologically restricted until confirmation"
ADDITIONS_SEEN: Final = 2  # a replacing package has two transactions, and either may conflict

Outpoints = frozenset[bytes]  # 36 bytes each: txid in internal byte order, index little-endian


class Settled(NamedTuple):
    """Holds a transaction's removal (R), its reason (one of schema.REMOVAL_REASONS), any replacing txid."""

    event: Event
    reason: str
    replaced_by: bytes | None = None


@dataclass(slots=True)
class _OpenRemoval:
    """Holds a removal (R) whose reason is not known yet."""

    event: Event
    spent: Outpoints | None  # None: we never had the bytes of this transaction
    since_us: int
    n_additions: int = 0


class Removals:
    """Finds the reasons why transactions left one node's mempool.

    It needs every event of the node, in order.
    """

    def __init__(self) -> None:
        self._open: list[_OpenRemoval] = []
        self._reorganising = False
        self._disconnected_us = (0, 0)  # the last D: its receipt (wall clock), its processing (monotonic)
        self._connecting = False  # a C was the last event: the next block may explain what is still open

    def __len__(self) -> int:
        return len(self._open)

    def removed(self, event: Event, spent: Outpoints | None, now_us: int) -> list[Settled]:
        """Take a removal (R) and the outpoints that its transaction spends (None when unknown).

        The reason is found by later events. Returns the earlier removals that are explained now.
        """
        settled = self._end_of_blocks()
        if self._reorganising and self._since_disconnected_us(event, now_us) > REORGANISATION_US:
            settled += self._settle(lambda _: True)
            self._reorganising = False
        self._open.append(_OpenRemoval(event, spent, now_us))
        return settled

    def added(
        self, event: Event, spent: Outpoints | None, only_child_of: Collection[bytes] = ()
    ) -> list[Settled]:
        """Take an addition (A): it replaced those removed transactions that spend its outpoints.

        Descendants of these were replaced too. `spent` are the outpoints that the added transaction spends,
        None when unknown. `only_child_of` are the txids of those that may have no other child in the mempool:
        a removed child of them was replaced too. Returns the removals that are explained now.
        """
        settled = self._end_of_blocks()
        if not self._open:
            return settled
        replaced = self._take(spent or frozenset(), only_child_of)
        settled += [Settled(gone.event, "replaced", event.hash) for gone in replaced]
        for gone in self._open:
            gone.n_additions += 1
        if self._reorganising:  # the additions are then transactions of the disconnected block
            return settled
        return settled + self._settle(lambda gone: gone.n_additions >= ADDITIONS_SEEN)

    def connected(self, spent_in_block: Callable[[], Collection[bytes]]) -> list[Settled]:
        """Take a connected block (C): removed transactions that spend the block's outpoints were conflicts.

        `spent_in_block` returns the outpoints that the block spends. Returns the removals that are explained
        now. When a node connects several blocks in one step, their Cs come after the Rs of all conflicts.
        """
        self._connecting = True
        if not self._open:
            return []
        return [Settled(gone.event, "conflict") for gone in self._take(frozenset(spent_in_block()))]

    def disconnected(self, event: Event, now_us: int) -> list[Settled]:
        """Take a disconnected block (D): later removals are due to a reorganisation.

        Returns all earlier removals, which are explained now. `now_us` is of the monotonic clock.
        """
        settled = self._end_of_blocks() + self._settle(lambda _: True)
        self._reorganising = True
        self._disconnected_us = (event.received_us, now_us)
        return settled

    def _since_disconnected_us(self, event: Event, now_us: int) -> int:
        """Return how long after the last D an event was received.

        Where the wall clock was set back meanwhile, return how long ago the D was processed.
        """
        received_us, taken_us = self._disconnected_us
        since_us = event.received_us - received_us
        return since_us if since_us >= 0 else now_us - taken_us

    def tick(self, now_us: int, given_until_us: int | None = None) -> list[Settled]:
        """Return, with a reason, the removals that no event has explained for a second before `now_us`.

        Where received events have not been given yet, `given_until_us` says until when (wall clock) all have
        been given. A removal then waits for the events of the second after it.
        """

        def is_over(gone: _OpenRemoval) -> bool:
            if given_until_us is not None and given_until_us - gone.event.received_us <= QUIET_US:
                return False
            return now_us - gone.since_us > QUIET_US

        return self._settle(is_over)

    def flush(self) -> list[Settled]:
        """Return every unexplained removal with the reason that remains, because no more events come."""
        return self._settle(lambda _: True)

    def _take(self, spent: Outpoints, parents: Collection[bytes] = ()) -> list[_OpenRemoval]:
        """Remove and return unexplained removals that spend an outpoint of `spent`, and their descendants.

        So are those that spend any output of the transactions `parents`.
        """
        taken: list[_OpenRemoval] = []
        txids: set[bytes] = set(parents)
        while True:
            found = [
                gone
                for gone in self._open
                if gone.spent is not None
                and (
                    not gone.spent.isdisjoint(spent)
                    or any(spent_[:TXID_BYTES] in txids for spent_ in gone.spent)
                )
            ]
            if not found:
                return taken
            taken += found
            hashes = {gone.event.hash for gone in found}
            txids |= hashes
            self._open = [gone for gone in self._open if gone.event.hash not in hashes]

    def _end_of_blocks(self) -> list[Settled]:
        """If the last event was a connected block (C), return the unexplained removals and their reasons.

        Such a removal was not caused by the block. Returns an empty list after any other event.
        """
        if not self._connecting:
            return []
        settled = self._settle(lambda _: True)
        self._connecting = self._reorganising = False
        return settled

    def _settle(self, ready: Callable[[_OpenRemoval], bool]) -> list[Settled]:
        """Take the unexplained removals for which `ready` is true; return them with the reason that remains.

        The reason is `unknown` without the transaction's bytes,
        `reorged` in a reorganisation, else `expired_or_evicted`.
        """
        settled = []
        for gone in self._open:
            if ready(gone):
                reason = "reorged" if self._reorganising else "expired_or_evicted"
                settled.append(Settled(gone.event, "unknown" if gone.spent is None else reason))
        if settled:
            self._open = [gone for gone in self._open if not ready(gone)]
        return settled


class SpendingBlocks(Protocol):
    """Knows which outpoints a node's blocks spend, because a block may explain why a transaction left."""

    def outpoints_spent_in(self, block_hash: bytes) -> list[bytes]:
        """Return the outpoints that a block spends; an empty list when the block was not parsed lately."""


class PendingEvents:
    """Holds the mempool events of one node and session that have no row yet, and makes their rows.

    The outpoints that a transaction spends are looked up in `recent_txs` first, then in `contents`.
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
        """Remember `batch` as the one that waits for the row of the event with this `sequence` counter."""
        self._owners[sequence] = batch

    def add(self, event: Event, now_us: int) -> Batch:
        """Make the rows of an event and of the earlier removals that it explains; return the event's batch.

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
            self._settled(self._removals.disconnected(event, now_us))
        else:
            spent = self._outpoints_of(event.hash) if self._removals else None
            self._settled(self._removals.added(event, spent, self._only_child_of(event.hash)))
        return batch

    def add_from_snapshot(self, letter: str, txid: bytes, at_us: int, reason: str | None = None) -> None:
        """Make the row of a transaction that entered (A) or left (R) the mempool as only a snapshot shows.

        The event had no message, so its row gets a negative counter. The row waits for no other row: the next
        flush writes it to the journal. `at_us` is the wall clock.
        """
        self._n_pulled += 1
        event = Event(letter, txid, None, -self._n_pulled, at_us)
        self._batches.add_independent("mempool_events", [self._row(event, "pulled", reason, None)])

    def tick(self, now_us: int, given_until_us: int | None = None) -> None:
        """Make the rows of removals that nothing has explained for more than a second before `now_us`.

        `given_until_us` means what it means for `Removals.tick`.
        """
        self._settled(self._removals.tick(now_us, given_until_us))

    def flush(self) -> None:
        """Make the rows of all removals now, with the best reason found so far: no more events come."""
        self._settled(self._removals.flush())

    def _outpoints_of(self, txid: bytes) -> Outpoints | None:
        """Return the outpoints that a transaction spends; None when we do not have its bytes."""
        body = self._recent_txs.get(txid)
        return self._contents.outpoints(txid) if body is None else frozenset(body.outpoints)

    def _only_child_of(self, txid: bytes) -> set[bytes]:
        """Return those parents of a transaction that may have no other child in the mempool; often none.

        Those are the parents of a transaction of version 3 (BIP 431). Since Bitcoin Core 28 it may take the
        place of another child of its parent, though both spend different outputs.
        """
        body = self._recent_txs.get(txid) if self._removals else None
        if body is None or body.version != TRUC_VERSION:
            return set()
        parents = {outpoint[:TXID_BYTES] for outpoint in body.outpoints}
        return {parent for parent in parents if self._contents.outpoints(parent) is not None}

    def _settled(self, settled: Iterable[Settled]) -> None:
        """Make the `mempool_events` rows of removals with their reasons, and add each row to its batch."""
        for event, reason, replaced_by in settled:
            self._give_out(event, reason, replaced_by)

    def _give_out(self, event: Event, reason: str | None = None, replaced_by: bytes | None = None) -> None:
        """Make the `mempool_events` row of an event, and add it to the batch that waits for it."""
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
