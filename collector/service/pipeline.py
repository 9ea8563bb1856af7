"""Turn one node's messages into rows: the copy of the mempool, removal reasons, fees and blocks together.

One thread owns a pipeline. Messages, notices, answers of the node and the passing of time go in. Rows go into
batches. Requests go to the node's request threads, and the answers come back through the same queue as the
messages.

The `sequence` topic says what happened; `rawtx` and `rawblock` bring the transactions and blocks themselves.
No order holds between two topics, so an event is held for a moment in which its transaction can arrive.

Timers run on the monotonic clock. Whether all messages until some moment were received, read and passed on is
judged by their stamps, which are of the wall clock.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import structlog

from collector.blocks.fetcher import BlockFetcher
from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import reject_row
from collector.clock import monotonic_us
from collector.codec.transaction import RecentTransactions, Transaction
from collector.config import Settings
from collector.dataset.rows import CoverageRow
from collector.errors import DecodeError
from collector.journal.batches import Batch, Batches
from collector.journal.coverage_ledger import CoverageLedger
from collector.mempool.bodies import KeptBodies
from collector.mempool.entries import PendingEntry
from collector.mempool.events import PendingEvents
from collector.mempool.fee_lookup import FeeLookup
from collector.mempool.snapshot import SnapshotAnswer, ask_snapshot
from collector.mempool.sync import (
    Event,
    InStep,
    MempoolContents,
    MempoolSnapshot,
    MempoolSync,
    OutOfStep,
    Output,
    TxEntered,
    TxLeft,
    WantBlock,
    WantSnapshot,
    parse_event,
)
from collector.node.preflight import NodeFacts
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.receive.records import Message, Notice
from collector.service.watchdog import OurState

Item = Message | Notice | FinishedRequest
HOLD_US: Final = 50_000  # how much later than its event a transaction may come, as another topic brings it
FILL_WAIT_US: Final = 5_000_000  # how long a snapshot waits for older events and missed blocks
log = structlog.get_logger(__name__)


class MessageName(NamedTuple):
    """Names one message of a session, by its topic and the counter of that topic."""

    topic: str
    sequence: int


class _Held(NamedTuple):
    """Holds a message or notice of the `sequence` topic until `due_us` (monotonic clock, microseconds).

    Payload that comes a little later than its event is thus known when the event is processed.
    """

    due_us: int
    item: Message | Notice
    batch: Batch


class _WaitingSnapshot(NamedTuple):
    """Holds a mempool snapshot until older events are passed on and missed blocks are fetched.

    So the transactions of these blocks count as mined, and those of the events as seen to enter.
    """

    request: int
    snapshot: MempoolSnapshot


class Pipeline:
    """Makes the rows of one session of one node from its messages and from the node's answers."""

    def __init__(
        self,
        origin: tuple[str, str],
        settings: Settings,
        *,
        requests: NodeRequests,
        batches: Batches,
        stored: StoredBlocks,
        ledger: CoverageLedger,
        bodies: KeptBodies,
    ) -> None:
        self.origin = origin  # names of the node and of the session
        self.contents, self._sync = MempoolContents(), MempoolSync()
        self._recent_blocks = RecentBlocks()
        self._blocks = BlockFetcher(
            origin,
            settings.chain,
            requests=requests,
            batches=batches,
            stored=stored,
            recent=self._recent_blocks,
            on_resolved=self._block_resolved,
        )
        self.processed: MessageName | None = None  # the message that rows are being made of now
        self.restarted = ""  # what showed that the node has restarted; empty while it has not
        self._coverage_rows: list[CoverageRow] = []
        self._requests, self._batches, self._ledger, self._bodies = requests, batches, ledger, bodies
        self._recent_txs = RecentTransactions()
        self._events = PendingEvents(
            origin, batches, contents=self.contents, recent_txs=self._recent_txs, blocks=self._blocks
        )
        self._fees = FeeLookup(
            origin,
            self.contents,
            self._recent_blocks,
            requests=requests.mempool,
            batches=batches,
            bodies=bodies,
            n_per_request=settings.fee_batch,
            interval_s=settings.fee_interval_s,
        )
        self._sync_wants: set[bytes] = set()  # blocks that the mempool sync waits for
        self._held: deque[_Held] = deque()
        self._has_unread, self._read_ns = False, 0  # as `tick` says; receipt of the last item taken (wall)
        self._event_batch = batches.current  # of the event that the sync gave out last
        self._snapshot: _WaitingSnapshot | None = None
        self._is_followed = False  # the sync's last report was InStep, and the clock was not set since
        self._is_cut = False  # the sequence topic's connection is down
        self._node_began_before_s = math.inf
        self._listed: list[PendingEntry] = []  # entries of the snapshot that is being applied

    @property
    def n_mempool(self) -> int:
        """Return the number of transactions in our copy of the mempool."""
        return len(self.contents)

    @property
    def in_step(self) -> bool:
        """Return whether our copy of the mempool equals the node's, as far as the stream shows."""
        return self._sync.in_step

    @property
    def tip_hash(self) -> bytes | None:
        """Return the node's tip as the stream announced it; None right after a block was disconnected."""
        return self._blocks.tip_hash

    @property
    def our_state(self) -> OurState:
        """Return our tip and how many transactions our copy of the mempool has, to compare with the node's.

        The number is None while our copy may differ, or while events are not applied to it yet.
        """
        is_settled = self._sync.in_step and not self.n_undecided
        return OurState(self._blocks.tip_hash, len(self._sync.txids) if is_settled else None)

    @property
    def is_filling(self) -> bool:
        """Return whether missing blocks are being looked for or fetched."""
        return self._blocks.is_filling

    @property
    def n_undecided(self) -> int:
        """Return the number of events that are not applied to our copy of the mempool yet."""
        return len(self._held) + self._sync.n_waiting

    @property
    def is_behind(self) -> bool:
        """Return whether requests for fees lag so much that new messages should stay in the ring if possible.

        The ring is the buffer file between receiver and collector.
        """
        return self._fees.is_behind

    @property
    def n_open(self) -> int:
        """Return how many events, mempool entries and blocks wait for an answer or for an explanation."""
        return self.n_undecided + len(self._events) + len(self._fees) + len(self._blocks)

    # --- input

    def start(self, facts: NodeFacts, at_us: int) -> None:
        """Begin a session: take the tip from `facts`, fetch missing blocks below it, ask for a snapshot."""
        self._node_began_before_s = facts.node_began_before_s
        self._blocks.start(facts.row["tip_hash"], facts.row["tip_height"], at_us)
        self._apply(self._sync.start())

    def begin_behind(self, tip_height: int) -> None:
        """Store every block above `tip_height`, the height of the node's tip when a killed run began.

        If the dataset already stores all blocks from some height on, that height stays.
        """
        self._blocks.want_above(tip_height)

    def take(self, items: Sequence[Item], batch: Batch) -> None:
        """Process messages, notices and answers of the node in their order.

        `batch` holds the messages, already journalled. The messages of `rawtx` are taken first, all decoded
        together.
        """
        rawtx = [item for item in items if isinstance(item, Message) and item.topic == "rawtx"]
        self._take_transactions(rawtx, batch)
        for item in items:
            if isinstance(item, FinishedRequest):
                item.deliver()
                continue
            self._read_ns = item.received_ns
            if isinstance(item, Notice):
                self.notice(item)
            elif item.topic == "sequence":
                batch.n_pending_rows += 1
                self._held.append(_Held(monotonic_us() + HOLD_US, item, batch))
            elif item.topic == "rawblock":
                self._take_block(item, batch)

    def set_aside(
        self, messages: Iterable[Message], reasons: Mapping[MessageName, str], batch: Batch
    ) -> list[Message]:
        """Make rows of `rejects` of the messages that `reasons` names, and return the other messages."""
        others = []
        for message in messages:
            reason = reasons.get(MessageName(message.topic, message.sequence))
            if reason is None:
                others.append(message)
            else:
                self._reject(message, reason, batch)
        return others

    def notice(self, notice: Notice) -> None:
        """Process a notice on the stream of messages, such as a gap or a reconnection.

        A notice on `sequence` waits in line with that topic's events. A notice on `rawblock` makes us fetch
        the blocks that are missing.
        """
        if notice.topic == "sequence":
            self._held.append(_Held(monotonic_us() + HOLD_US, notice, self._batches.current))
        elif notice.topic == "rawblock":
            self._blocks.fetch_missing()

    def take_listed(self, state_name: str, state: bytes) -> None:
        """Restore the mempool entries that a killed run's snapshot had listed, from a journal state."""
        self._fees.restore(state_name, state)

    def fill_blocks(self) -> None:
        """Compare the node's tip with the dataset, and fetch the blocks that no message announced."""
        self._blocks.fetch_missing()

    def clock_stepped(self, step_us: int) -> None:
        """Tolerate that the node's start seems shifted by `step_us` microseconds, as the wall clock was set.

        Without this, the shift would look like a restart of the node.
        """
        self._node_began_before_s += abs(step_us) / 1e6
        self._is_followed = False  # until the next snapshot, which is stamped by the new clock

    def tick(self, now_us: int, *, hold_us: int = HOLD_US, has_unread: bool = False) -> None:
        """Do what is due at `now_us` (monotonic): release held events, send requests, give up overdue ones.

        With `hold_us` 0, as at the end of a session, nothing is held back and requests are sent at once.
        `has_unread` says that messages were received which the next `take` brings. An event then waits for
        those that were received a little after it, because its transaction may be among them.
        """
        self._has_unread = has_unread
        self._release_held(now_us, hold_us)
        self._apply_snapshot_when_ready(now_us)
        until_us = self._given_until_us
        given_until_us = until_us if has_unread or self._held else None
        self._apply(self._sync.tick(now_us, given_until_us))
        if not self._sync.n_waiting:  # else the block that it waits for may explain a removal
            self._events.tick(now_us, given_until_us)
        self._blocks.tick(now_us, at_once=not hold_us)
        self._fees.tick(now_us, self._blocks, given_until_us, at_once=not hold_us)
        waiting_us = self._sync.waiting_since_us
        self._recent_txs.forget(until_us if waiting_us is None else min(until_us, waiting_us))
        self.contents.forget(now_us)

    def release(self, *, hold_us: int = 0, has_unread: bool = False) -> None:
        """Apply the mempool events that wait for a snapshot or a block which will not come any more.

        The pipeline's clock does not advance, so that no wait for an explanation of these events runs out.
        `hold_us` and `has_unread` mean what they mean for `tick`.
        """
        self._has_unread = has_unread
        self._release_held(monotonic_us(), hold_us)
        self._apply(self._sync.flush(self._blocks.txids_of))

    def finish(self) -> None:
        """Complete every pending row of the session with the facts at hand; wait for no more answers."""
        self.release()
        self._events.flush()
        self._blocks.flush()
        self._fees.flush()

    def pop_coverage_rows(self) -> list[CoverageRow]:
        """Return and forget the coverage rows of `mempool` that were made since the last call."""
        rows, self._coverage_rows = self._coverage_rows, []
        return rows

    # --- events and the copy of the mempool

    @property
    def _given_until_us(self) -> int:
        """Return the wall clock until which every received event has been passed on."""
        # Where the wall clock was set, the stamps of what is held are not in order.
        ends = (self._held[0], self._held[-1]) if self._held else ()
        return min([self._read_ns, *(held.item.received_ns for held in ends)]) // 1000

    def _release_held(self, now_us: int, hold_us: int) -> None:
        """Pass on, to the copy of the mempool, messages of `sequence` that have been held for `hold_us`.

        While messages are unread, those received so little before the last message taken go on waiting.
        """
        while self._held and self._held[0].due_us <= now_us + HOLD_US - hold_us:
            received_ns = self._held[0].item.received_ns
            if self._has_unread and received_ns <= self._read_ns < received_ns + hold_us * 1000:
                return
            _, item, batch = self._held.popleft()
            if isinstance(item, Notice):
                self._broken(item)
            else:
                self._event(item, batch, now_us)

    def _broken(self, notice: Notice) -> None:
        """Process a notice that the stream `sequence` broke, or that its connection is back.

        In both cases missing blocks are fetched and a mempool snapshot is requested. While the connection is
        down, snapshots are ignored, because events after them would be lost.
        """
        if notice.reason in ("reconnect", "connected"):
            self._is_cut = notice.reason == "reconnect"
        self._blocks.fetch_missing()
        reason = "reconnect" if notice.reason == "connected" else notice.reason
        self._apply(self._sync.lose_step(reason, notice.detail))

    def _event(self, message: Message, batch: Batch, now_us: int) -> None:
        """Decode a message of `sequence` and pass the event to the copy of the mempool.

        A message that cannot be decoded becomes a row of `rejects`.
        """
        self.processed = MessageName(message.topic, message.sequence)
        try:
            event = parse_event(message.body, message.sequence, message.received_ns // 1000)
        except DecodeError as error:
            self._reject(message, str(error), batch)
            batch.n_pending_rows -= 1
            self.processed = None
            return
        self._events.expect(event.sequence, batch)
        self._apply(self._sync.event(event, now_us))
        self.processed = None

    def _apply(self, outputs: Iterable[Output]) -> None:
        """Carry out in order what MempoolSync reports (events, entries, exits) and asks for."""
        before = self.processed
        for output in outputs:
            match output:
                case Event():
                    self.processed = MessageName("sequence", output.sequence)
                    self._happened(output)
                case TxEntered():
                    self._entered(output)
                case TxLeft():
                    self._left(output)
                case WantSnapshot():
                    self._snapshot = None
                    self._requests.mempool.insist(
                        ask_snapshot, partial(self._on_snapshot, output.request), lambda _: None
                    )
                case WantBlock():
                    self._find_block(output.block_hash)
                case InStep():
                    self._take_all_listed()
                    self._bodies.compare(self.contents, self._is_in_recent_block, output.at_us)
                    self._is_followed = True
                    self._cover_mempool(output.at_us)
                    log.info("mempool.in_step", node=self.origin[0], n_tx=len(self._sync.txids))
                case OutOfStep():
                    self._is_followed = False
                    self._coverage_rows += self._ledger.close("mempool", output.reason, output.detail)
                    log.warning("mempool.out_of_step", node=self.origin[0], **output._asdict())
        self.processed = before

    def _cover_mempool(self, at_us: int) -> None:
        """Start a coverage interval of `mempool` if our copy equals the node's and `sequence` is covered."""
        if self._is_followed and self._ledger.is_open("sequence"):
            self._ledger.open("mempool", at_us, is_exact=True)

    def _happened(self, event: Event) -> None:
        """Make the row of a mempool event, and record the block that the event connects or disconnects."""
        self._cover_mempool(event.received_us)
        if self._ledger.is_open("mempool"):
            self._ledger.count("mempool", event.sequence, event.received_us)
        batch = self._event_batch = self._events.add(event, monotonic_us())
        if event.event == "C":
            self._blocks.add_event(event.hash, "connected", event.received_us, batch)
            self._look_into_block(event, batch)
        elif event.event == "D":
            self._blocks.add_event(event.hash, "disconnected", event.received_us, batch)

    def _entered(self, entered: TxEntered) -> None:
        """Add a transaction to our copy of the mempool, and begin its row of `mempool_txs`."""
        body = self._recent_txs.pop(entered.txid)
        parents = None if body is None else self.contents.parents(body)
        self.contents.enter(entered.txid, body)
        event = entered.event
        if event is None:
            if entered.kind == "pulled":
                self._events.add_from_snapshot("A", entered.txid, entered.at_us)
            self._listed.append(PendingEntry(entered.txid, entered.kind, entered.at_us, None, body, parents))
        else:
            number = event.mempool_sequence
            entry = PendingEntry(entered.txid, entered.kind, event.received_us, number, body, parents)
            self._fees.add(entry, self._event_batch)

    def _take_all_listed(self) -> None:
        """Look up the fees of the transactions that a mempool snapshot listed and our copy lacked.

        After the next flush a kill does not lose them.
        """
        listed, self._listed = self._listed, []
        self._fees.add_from_snapshot(listed)

    def _left(self, left: TxLeft) -> None:
        """Remove a transaction from our copy of the mempool; make its removal row if a snapshot showed it."""
        self.contents.leave(left.txid, monotonic_us())
        self._fees.note_left(left)
        is_mined = left.cause == "mined" or self._is_in_recent_block(left.txid)
        if left.txid not in self._fees:
            batch = self._event_batch if left.event is not None else None
            self._bodies.left(left, batch, is_mined=is_mined)
        if left.cause == "resync":
            self._events.add_from_snapshot("R", left.txid, left.at_us, "mined" if is_mined else "unknown")

    def _is_in_recent_block(self, txid: bytes) -> bool:
        """Return whether a transaction is in one of the last 12 blocks, and that one is still connected."""
        return self._recent_blocks.connected_block_with(txid) is not None

    def _look_into_block(self, event: Event, batch: Batch) -> None:
        """Use a connected block's transactions: one never seen before gets a row of kind `in_block`.

        Mempool entries whose raw transaction had not arrived get it from the block.
        """
        block = self._blocks.block(event.hash)
        recent = self._recent_blocks
        if block is None or not recent.look_into(event.hash):
            return
        for body in block.transactions[1:]:
            self._fees.learn_body(body.txid, body)
            is_new = body.txid not in self.contents and recent.block_with(body.txid) in (None, event.hash)
            if self._sync.in_step and is_new:
                entry = PendingEntry(body.txid, "in_block", event.received_us, None, body, None)
                self._fees.add_from_block(entry, batch, event.hash)

    def _on_snapshot(self, request: int, answer: SnapshotAnswer) -> None:
        """Take a mempool snapshot and the node's uptime, which shows whether the node has restarted."""
        if answer.node_began_after_s > self._node_began_before_s:
            self.restarted = "the node began to run after this session did"
        elif not self._is_cut:
            self._snapshot = _WaitingSnapshot(request, answer.snapshot)
            self._apply_snapshot_when_ready(monotonic_us())

    def _apply_snapshot_when_ready(self, now_us: int) -> None:
        """Apply the waiting mempool snapshot, once the events received before it have been passed on.

        After a loss it waits for the missed blocks too. It waits for some seconds at most.
        """
        if self._snapshot is None:
            return
        request, snapshot = self._snapshot
        is_filling = request > 1 and bool(self._requests.blocks.n_open or len(self._blocks))
        is_early = (self._has_unread or self._held) and self._given_until_us < snapshot.taken_wall_us
        if (is_filling or is_early) and now_us - snapshot.taken_us < FILL_WAIT_US:
            return
        self._snapshot = None
        self._apply(self._sync.snapshot(request, snapshot))

    # --- transactions and blocks

    def _take_transactions(self, messages: Sequence[Message], batch: Batch) -> None:
        """Decode messages of `rawtx`, and pass each transaction to the mempool entry that still lacks it."""
        received_us = messages[-1].received_ns // 1000 if messages else 0
        try:
            found = self._recent_txs.decode_new([message.body for message in messages], received_us)
        except Exception:  # noqa: BLE001 - raised again for the message that causes it, if there is one
            found = [self._decode_alone(message) for message in messages]
        for message, transaction in zip(messages, found, strict=True):
            if isinstance(transaction, DecodeError):
                self._reject(message, str(transaction), batch)
            elif transaction is not None:
                self._fees.learn_body(transaction.txid, transaction)

    def _decode_alone(self, message: Message) -> Transaction | DecodeError | None:
        """Decode one message of `rawtx`; return the transaction, the error, or None if it came before."""
        self.processed = MessageName(message.topic, message.sequence)
        (found,) = self._recent_txs.decode_new([message.body], message.received_ns // 1000)
        self.processed = None
        return found

    def _take_block(self, message: Message, batch: Batch) -> None:
        """Decode a message of `rawblock`, and record when the block was first seen.

        A message that cannot be decoded becomes a row of `rejects`. The txids of the block go to the copy of
        the mempool.
        """
        self.processed = MessageName(message.topic, message.sequence)
        try:
            block = self._blocks.take_raw(message.body, message.received_ns // 1000, batch)
        except DecodeError as error:
            self._reject(message, str(error), batch)
        else:
            self._offer_block(block.block_hash, self._blocks.txids_of(block.block_hash))
        self.processed = None

    def _reject(self, message: Message, reason: str, batch: Batch) -> None:
        """Keep a message that cannot be decoded as a row of the table `rejects`, with the reason."""
        row = reject_row(self.origin, message.topic, message.received_ns // 1000, reason, message.body)
        batch.add("rejects", [{**row, "sequence": message.sequence}])
        log.warning("message.rejected", node=self.origin[0], topic=message.topic, reason=reason)

    def _block_resolved(self, block_hash: bytes, block: RecentBlock | None, txids: list[bytes]) -> None:
        """Pass a block from the node (None if refused) to rows that wait for fees and to the mempool copy."""
        self._fees.block_resolved(block_hash, block)
        self._offer_block(block_hash, txids)

    def _find_block(self, block_hash: bytes) -> None:
        """Get a block that the copy of the mempool waits for, from the recent blocks or from the node."""
        self._sync_wants.add(block_hash)
        if self._blocks.block(block_hash) is None:
            self._blocks.want(block_hash)
        else:
            self._offer_block(block_hash, self._blocks.txids_of(block_hash))

    def _offer_block(self, block_hash: bytes, txids: list[bytes]) -> None:
        """Pass a block's txids to the copy of the mempool if it waits for this block."""
        if block_hash in self._sync_wants:
            self._sync_wants.discard(block_hash)
            self._apply(self._sync.block(block_hash, txids))
