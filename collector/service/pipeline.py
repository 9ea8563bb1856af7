"""From one node's messages to rows: the spine, the reasons, the fees and the blocks, put together.

One thread owns a pipeline. Messages, notices, answers and the passing of time go in; rows go into batches,
and questions to the node into lanes, whose answers come back through the same thread. The `sequence` topic
says what happened; `rawtx` and `rawblock` only bring bodies, because no order holds between two topics. An
event is therefore kept back for a moment, in which the body it speaks of arrives.

The wall clock stamps; every wait is on the monotonic clock.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from collector.blocks.fetcher import BlockFetcher
from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import reject_row
from collector.clock import monotonic_us
from collector.config import Settings
from collector.errors import DecodeError
from collector.journal.batches import Batch, Batches
from collector.journal.coverage_ledger import CoverageLedger
from collector.mempool import told
from collector.mempool.contents import MempoolContents
from collector.mempool.entries import PendingEntry
from collector.mempool.events import PendingEvents
from collector.mempool.fee_lookup import FeeLookup
from collector.mempool.recent_txs import RecentTransactions
from collector.mempool.snapshot import MempoolSnapshot, ask_snapshot
from collector.mempool.sync import (
    Event,
    InStep,
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
from collector.node.request_threads import NodeRequests, raise_unless_stopped
from collector.receive.records import Message
from collector.receive.source import Notice

Row = dict[str, Any]
HOLD_US: Final = 50_000  # the body of an event travels on another connection
FILL_WAIT_US: Final = 5_000_000  # how long a snapshot waits for the blocks that were missed
log = structlog.get_logger(__name__)


class _Held(NamedTuple):
    """What the `sequence` topic brought, until a moment later."""

    due_us: int
    item: Message | Notice
    batch: Batch


class _Kept(NamedTuple):
    """A snapshot that waits for missed blocks: what they took is then known to be mined."""

    request: int
    snapshot: MempoolSnapshot


class Pipeline:
    """One node and session."""

    def __init__(
        self,
        origin: tuple[str, str],
        settings: Settings,
        *,
        lanes: NodeRequests,
        batches: Batches,
        stored: StoredBlocks,
        ledger: CoverageLedger,
    ) -> None:
        self.origin = origin  # names of the node and of the session
        self.contents = MempoolContents()
        self.sync = MempoolSync()
        self._recent_blocks = RecentBlocks()
        self.blocks = BlockFetcher(
            origin,
            settings.chain,
            requests=lanes,
            batches=batches,
            stored=stored,
            recent=self._recent_blocks,
            on_resolved=self._block_resolved,
        )
        self.coverage_rows: list[Row] = []  # the session journals them together with the ledger's state
        self.restarted = ""  # what showed that the node is another process than the one watched
        self._lanes = lanes
        self._batches = batches
        self._ledger = ledger
        self._bodies = RecentTransactions()
        self._events = PendingEvents(origin, batches, self._outpoints)
        self._fees = FeeLookup(
            origin,
            self.contents,
            self._recent_blocks,
            lanes.mempool,
            batch=settings.fee_batch,
            interval_s=settings.fee_interval_s,
        )
        self._spine_wants: set[bytes] = set()
        self._held: deque[_Held] = deque()
        self._event_batch = batches.current  # of the event that the spine gave out last
        self._kept: _Kept | None = None
        self._is_followed = False  # the spine said that it is in step, in the order of what it gives out
        self._is_cut = False  # the sequence topic's connection is down
        self._node_began_before_s = math.inf
        self._told: list[PendingEntry] = []  # by the snapshot that is being applied
        self._n_told = 0

    # --- what comes in

    def start(self, facts: NodeFacts, at_us: int) -> None:
        """Begin with the node's tip, the blocks before it that are missing, and a snapshot of its mempool."""
        self._node_began_before_s = facts.node_began_before_s
        self.blocks.start(facts.row["tip_hash"], facts.row["tip_height"], at_us)
        self._apply(self.sync.start())

    def message(self, message: Message, batch: Batch) -> None:
        """Take one message of another topic than `rawtx`, which is in the journal as part of `batch`."""
        now_us = monotonic_us()
        if message.topic == "sequence":
            batch.n_pending_rows += 1
            self._held.append(_Held(now_us + HOLD_US, message, batch))
            return
        try:
            block = self.blocks.take_raw(message.body, message.received_ns // 1000, batch)
        except DecodeError as error:
            self._reject(message, str(error), batch)
            return
        self._offer_block(block.block_hash, self.blocks.txids_of(block.block_hash))

    def bodies(self, messages: Sequence[Message], batch: Batch) -> None:
        """Take the messages of `rawtx` among those of `batch`, before the others: all decoded together."""
        bodies = self._bodies.received([message.body for message in messages], monotonic_us())
        for message, body in zip(messages, bodies, strict=True):
            if isinstance(body, DecodeError):
                self._reject(message, str(body), batch)
            elif body is not None:
                self._fees.learn_body(body.txid, body)

    def notice(self, notice: Notice) -> None:
        """Take what was noticed about the stream, in its order."""
        if notice.topic == "sequence":
            self._held.append(_Held(monotonic_us() + HOLD_US, notice, self._batches.current))
        elif notice.topic == "rawblock":
            self.blocks.fetch_missing()

    def clock_stepped(self, step_us: int) -> None:
        """Allow for a wall clock that was set: the node's may be the same, and tell another uptime."""
        self._node_began_before_s += abs(step_us) / 1e6
        self._is_followed = False  # until the next snapshot, whose stamp is the new clock's

    def tick(self, now_us: int, *, hold_us: int = HOLD_US) -> None:
        """Let time pass: release events, ask what is due, give up what is overdue; 0: the end is near."""
        self._let_go(now_us, hold_us)
        self._take_kept(now_us)
        self._apply(self.sync.tick(now_us))
        if not self.sync.n_waiting:  # what waits may be the reason: a block that is asked for
            self._events.tick(now_us)
        self.blocks.tick(now_us, at_once=not hold_us)
        self._fees.tick(now_us, self.blocks, at_once=not hold_us)
        self._bodies.forget(now_us)
        self.contents.forget(now_us)

    @property
    def n_undecided(self) -> int:
        """Events that our copy of the mempool does not reflect yet."""
        return len(self._held) + self.sync.n_waiting

    @property
    def is_behind(self) -> bool:
        """Whether it is better to take no more messages for now, if they can wait."""
        return self._fees.is_behind

    @property
    def n_open(self) -> int:
        """How much waits for an answer or an explanation."""
        return self.n_undecided + len(self._events) + len(self._fees) + len(self.blocks)

    def release(self, *, hold_us: int = 0) -> None:
        """Let go of the events that wait for a snapshot or a block: none will come.

        No time passes in it for what these events may explain.
        """
        self._let_go(monotonic_us(), hold_us)
        self._apply(self.sync.flush(self.blocks.txids_of))

    def finish(self) -> None:
        """Give out everything with what is known."""
        self.release()
        self._events.flush()
        self.blocks.flush()
        self._fees.flush()

    # --- the spine

    def _let_go(self, now_us: int, hold_us: int) -> None:
        """Give the spine the events that were held back for so long."""
        while self._held and self._held[0].due_us <= now_us + HOLD_US - hold_us:
            _, item, batch = self._held.popleft()
            if isinstance(item, Notice):
                self._broken(item)
            else:
                self._event(item, batch, now_us)

    def _broken(self, notice: Notice) -> None:
        """Take a break of the sequence topic, or its end: only then will a snapshot be kept up."""
        if notice.reason in ("reconnect", "connected"):
            self._is_cut = notice.reason == "reconnect"
        self.blocks.fetch_missing()
        reason = "reconnect" if notice.reason == "connected" else notice.reason
        self._apply(self.sync.lose_step(reason, notice.detail))

    def _event(self, message: Message, batch: Batch, now_us: int) -> None:
        try:
            event = parse_event(message.body, message.sequence, message.received_ns // 1000)
        except DecodeError as error:
            self._reject(message, str(error), batch)
            batch.n_pending_rows -= 1
            return
        self._events.expect(event.sequence, batch)
        self._apply(self.sync.event(event, now_us))

    def _apply(self, outputs: Iterable[Output]) -> None:
        """Act on what the spine gives out. What an event led to follows the event."""
        for output in outputs:
            match output:
                case Event():
                    self._happened(output)
                case TxEntered():
                    self._entered(output)
                case TxLeft():
                    self._left(output)
                case WantSnapshot():
                    self._kept = None
                    self._lanes.mempool.ask(
                        ask_snapshot, partial(self._on_snapshot, output.request), raise_unless_stopped
                    )
                case WantBlock():
                    self._find_block(output.block_hash)
                case InStep():
                    self._keep_told()
                    self._is_followed = True
                    self._cover_mempool(output.at_us)
                    log.info("mempool.in_step", node=self.origin[0], n_tx=len(self.sync.txids))
                case OutOfStep():
                    self._is_followed = False
                    self.coverage_rows += self._ledger.close("mempool", output.reason, output.detail)
                    log.warning("mempool.out_of_step", node=self.origin[0], **output._asdict())

    def _cover_mempool(self, at_us: int) -> None:
        """Claim that our copy is the node's, but not while the topic that keeps it so is silent."""
        if self._is_followed and self._ledger.is_open("sequence"):
            self._ledger.open("mempool", at_us)

    def _happened(self, event: Event) -> None:
        """Have the row of an event made, and take what it says of a block."""
        self._cover_mempool(event.received_us)
        if self._ledger.is_open("mempool"):
            self._ledger.count("mempool", event.sequence, event.received_us)
        batch = self._event_batch = self._events.happened(
            event, partial(self.blocks.outpoints_spent_in, event.hash), monotonic_us()
        )
        if event.event == "C":
            self.blocks.add_event(event.hash, "connected", event.received_us, batch)
            self._look_into_block(event, batch)
        elif event.event == "D":
            self.blocks.add_event(event.hash, "disconnected", event.received_us, batch)

    def _entered(self, entered: TxEntered) -> None:
        body = self._bodies.take(entered.txid)
        parents = None if body is None else self.contents.parents(body)
        self.contents.enter(entered.txid, body)
        event = entered.event
        if event is None:
            if entered.kind == "pulled":
                self._events.pulled("A", entered.txid, entered.at_us)
            self._told.append(PendingEntry(entered.txid, entered.kind, entered.at_us, None, body, parents))
        else:
            number = event.mempool_sequence
            entry = PendingEntry(entered.txid, entered.kind, event.received_us, number, body, parents)
            self._fees.entered(entry, self._event_batch)

    def _keep_told(self) -> None:
        """Take the entries of a snapshot, safe from a kill with the next flush."""
        waiting, self._told = self._told, []
        for at in range(0, len(waiting), told.PER_STATE):
            entries = waiting[at : at + told.PER_STATE]
            self._n_told += 1
            self.take_told(told.name(self.origin[1], self._n_told), told.packed(entries), entries)

    def take_told(self, state_name: str, state: bytes, entries: Iterable[PendingEntry]) -> None:
        """Take entries that a snapshot told of, and the state of the journal that says so."""
        owner = self._batches.begin_from_state(state_name, state)
        for entry in entries:
            self._fees.entered(entry, owner)

    def _left(self, left: TxLeft) -> None:
        self.contents.leave(left.txid, monotonic_us())
        self._fees.left(left)
        if left.cause == "resync":
            is_mined = self._recent_blocks.block_with(left.txid) is not None
            self._events.pulled("R", left.txid, left.at_us, "mined" if is_mined else "unknown")

    def _look_into_block(self, event: Event, batch: Batch) -> None:
        """Note the transactions of a block that were never seen to wait; complete those that had no body."""
        block = self.blocks.block(event.hash)
        if block is None:
            return
        recent = self._recent_blocks
        for body in block.transactions[1:]:
            self._fees.learn_body(body.txid, body)
            is_new = body.txid not in self.contents and recent.block_with(body.txid) in (None, event.hash)
            if self.sync.in_step and is_new:
                entry = PendingEntry(body.txid, "in_block", event.received_us, None, body, None)
                self._fees.entered_in_block(entry, batch, event.hash)

    def _on_snapshot(self, request: int, snapshot: MempoolSnapshot) -> None:
        if snapshot.node_began_after_s > self._node_began_before_s:
            self.restarted = "the node began to run after this session did"
        elif not self._is_cut:
            self._kept = _Kept(request, snapshot)
            self._take_kept(monotonic_us())

    def _take_kept(self, now_us: int) -> None:
        """Apply a snapshot; one after a loss waits for the blocks that were missed, but not for ever."""
        if self._kept is None:
            return
        request, snapshot = self._kept
        is_filling = self._lanes.blocks.n_open or len(self.blocks)
        if request > 1 and is_filling and now_us - snapshot.taken_us < FILL_WAIT_US:
            return
        self._kept = None
        number, txids, taken_us, taken_wall_us, _ = snapshot
        self._apply(self.sync.snapshot(request, number, txids, taken_us, taken_wall_us))

    # --- bodies and blocks

    def _reject(self, message: Message, reason: str, batch: Batch) -> None:
        row = reject_row(self.origin, message.topic, message.received_ns // 1000, reason, message.body)
        batch.add("rejects", [{**row, "sequence": message.sequence}])
        log.warning("message.rejected", node=self.origin[0], topic=message.topic, reason=reason)

    def _outpoints(self, txid: bytes) -> frozenset[bytes] | None:
        body = self._bodies.get(txid)
        if body is None:
            return self.contents.outpoints(txid)
        return frozenset(body.outpoints)

    def _block_resolved(self, block_hash: bytes, block: RecentBlock | None, txids: list[bytes]) -> None:
        self._fees.block_resolved(block_hash, block)
        self._offer_block(block_hash, txids)

    def _find_block(self, block_hash: bytes) -> None:
        self._spine_wants.add(block_hash)
        if self.blocks.block(block_hash) is None:
            self.blocks.want(block_hash)
        else:
            self._offer_block(block_hash, self.blocks.txids_of(block_hash))

    def _offer_block(self, block_hash: bytes, txids: list[bytes]) -> None:
        if block_hash in self._spine_wants:
            self._spine_wants.discard(block_hash)
            self._apply(self.sync.block(block_hash, txids))
