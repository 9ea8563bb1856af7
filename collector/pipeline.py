"""From one node's messages to rows: the spine, the reasons, the fees and the blocks, put together.

One thread owns a pipeline. Messages, notices, answers and the passing of time go in; rows go into batches,
and questions to the node into lanes, whose answers come back through the same thread. The `sequence` topic
says what happened; `rawtx` and `rawblock` only bring bodies, because no order holds between two topics. An
event is therefore kept back for a moment, in which the body it speaks of arrives.
"""

import math
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import structlog

from collector import told
from collector.batches import Batch, Batches
from collector.blockflow import BlockAnswer, BlockFlow, StoredBlocks, reject_row
from collector.bodies import Bodies
from collector.coverage import Ledger
from collector.entries import Entry
from collector.errors import DecodeError, NodeError
from collector.fees import FeeDesk
from collector.lane import Lane, stopped_or_fatal
from collector.live import LiveSet, outpoint
from collector.mempool import (
    Entered,
    Event,
    InStep,
    Left,
    MempoolSync,
    OutOfStep,
    Output,
    WantBlock,
    WantSnapshot,
    parse_event,
)
from collector.preflight import NodeFacts
from collector.questions import Snapshot, ask_block, ask_chain, ask_snapshot
from collector.records import Message
from collector.removals import Removals, Settled
from collector.schema import hash_bytes, hash_hex
from collector.zmq_source import Notice

Row = dict[str, Any]
HOLD_US: Final = 50_000  # the body of an event travels on another connection
FILL_DEPTH: Final = 1008  # blocks; what is further back is for the backfill
log = structlog.get_logger(__name__)


class Pipeline:
    """One node and session. `quick` answers about the mempool, `slow` about blocks."""

    def __init__(
        self,
        origin: tuple[str, str],
        chain: str,
        *,
        quick: Lane,
        slow: Lane,
        batches: Batches,
        stored: StoredBlocks,
        ledger: Ledger,
        fee_batch: int,
        fee_interval_s: float,
    ) -> None:
        self.origin = origin  # names of the node and of the session
        self.live = LiveSet()
        self.spine = MempoolSync()
        self.coverage_rows: list[Row] = []  # the session journals them together with the ledger's state
        self.tip_changed = False
        self.restarted = ""  # what showed that the node is another process than the one watched
        self._chain = chain
        self._quick = quick
        self._slow = slow
        self._batches = batches
        self._stored = stored
        self._ledger = ledger
        self._bodies = Bodies()
        self._removals = Removals()
        self._fees = FeeDesk(origin, self.live, quick, batch=fee_batch, interval_s=fee_interval_s)
        self._blocks = BlockFlow(origin, chain, stored, self._ask_block)
        self._spine_wants: set[bytes] = set()
        self._held: deque[tuple[Message | Notice, Batch]] = deque()
        self._owners: dict[int, Batch] = {}  # by counter: events that the spine or `removals` has
        self._event_batch = batches.current  # of the event that the spine gave out last
        self._is_cut = False  # the sequence topic's connection is down
        self._node_began_before_s = math.inf
        self._start_height: int | None = None
        self._n_pulled = 0
        self._told: list[Entry] = []  # by the snapshot that is being applied
        self._n_told = 0

    # --- what comes in

    def start(self, facts: NodeFacts, at_us: int) -> None:
        """Begin with the node's tip, the blocks before it that are missing, and a snapshot of its mempool."""
        self._node_began_before_s = facts.node_began_before_s
        self._start_height = facts.row["tip_height"]
        tip = facts.row["tip_hash"]
        self._blocks.happened(tip, "connected", at_us, "at_start", self._batches.current)
        self.fill()
        self._apply(self.spine.start())

    def message(self, message: Message, batch: Batch) -> None:
        """Take one message, which is in the journal as part of `batch`."""
        if message.topic == "sequence":
            batch.n_open += 1
            self._held.append((message, batch))
            return
        received_us = message.received_ns // 1000
        try:
            if message.topic == "rawtx":
                body = self._bodies.received(message.body, received_us)
                if body is not None:
                    self._fees.learn_body(body.txid, body)
            else:
                block = self._blocks.received(message.body)
                self._blocks.happened(block.block_hash, "seen", received_us, "pushed", batch)
                self._offer_block(block.block_hash, self._txids_of(block.block_hash))
        except DecodeError as error:
            self._reject(message, str(error), batch)

    def notice(self, notice: Notice) -> None:
        """Take what was noticed about the stream, in its order."""
        if notice.topic == "sequence":
            self._held.append((notice, self._batches.current))
        elif notice.topic == "rawblock":
            self.fill()

    def tick(self, now_us: int, *, hold_us: int = HOLD_US) -> None:
        """Let time pass: release events, ask what is due, give up what is overdue; 0: the end is near."""
        while self._held:
            item, batch = self._held[0]
            if item.received_ns // 1000 > now_us - hold_us:
                break
            self._held.popleft()
            if isinstance(item, Notice):
                # Back again is a reason to take a snapshot as much as the loss: only now will it be kept up.
                self._is_cut = item.reason == "reconnect"
                self.fill()
                reason = "reconnect" if item.reason == "connected" else item.reason
                self._apply(self.spine.lose_step(reason, item.detail))
            else:
                self._event(item, batch)
        self._apply(self.spine.tick(now_us))
        self._settled(self._removals.tick(now_us))
        self._fees.tick(now_us, self._blocks, at_once=not hold_us)
        self._bodies.forget(now_us)
        self.live.forget(now_us)

    @property
    def n_open(self) -> int:
        """How much waits for an answer or an explanation."""
        return (
            len(self._held) + self.spine.n_waiting + len(self._removals) + len(self._fees) + len(self._blocks)
        )

    def release(self) -> None:
        """Let go of the events that wait for a snapshot or a block: none will come."""
        self.tick(time.time_ns() // 1000, hold_us=0)
        self._apply(self.spine.flush(self._txids_of))

    def finish(self) -> None:
        """Give out everything with what is known."""
        self.release()
        self._settled(self._removals.flush())
        self._blocks.flush()
        self._fees.flush()

    # --- the spine

    def _event(self, message: Message, batch: Batch) -> None:
        try:
            event = parse_event(message.body, message.sequence, message.received_ns // 1000)
        except DecodeError as error:
            self._reject(message, str(error), batch)
            batch.n_open -= 1
            return
        self._owners[event.sequence] = batch
        self._apply(self.spine.event(event))

    def _apply(self, outputs: Iterable[Output]) -> None:
        """Act on what the spine gives out. What an event led to follows the event."""
        for output in outputs:
            match output:
                case Event():
                    self._happened(output)
                case Entered():
                    self._entered(output)
                case Left():
                    self._left(output)
                case WantSnapshot():
                    self._ask_snapshot(output.request)
                case WantBlock():
                    self._spine_wants.add(output.block_hash)
                    self._find_block(output.block_hash)
                case InStep():
                    self._keep_told()
                    self._ledger.open("mempool", time.time_ns() // 1000)
                    log.info("mempool.in_step", node=self.origin[0], n_tx=len(self.spine.txids))
                case OutOfStep():
                    self.coverage_rows += self._ledger.close("mempool", output.reason, output.detail)
                    log.warning("mempool.out_of_step", node=self.origin[0], **output._asdict())

    def _happened(self, event: Event) -> None:
        """Make the row of an event; an R waits for its reason."""
        batch = self._event_batch = self._owners[event.sequence]
        if self._ledger.is_open("mempool"):
            self._ledger.count("mempool", event.sequence, event.received_us)
        if event.event == "R":
            self._removals.removed(event, self._outpoints(event.hash))
            return
        del self._owners[event.sequence]
        batch.add("mempool_events", [self._event_row(event)])
        if event.event == "A":
            if self._removals:
                self._settled(self._removals.added(event, self._outpoints(event.hash)))
        elif event.event == "C":
            self._settled(self._removals.connected(lambda: self._spent_in(event.hash)))
            self._blocks.happened(event.hash, "connected", event.received_us, "pushed", batch)
            self._look_into_block(event, batch)
            self.tip_changed = True
        else:
            self._settled(self._removals.disconnected())
            self._blocks.happened(event.hash, "disconnected", event.received_us, "pushed", batch)
        batch.n_open -= 1

    def _entered(self, entered: Entered) -> None:
        body = self._bodies.take(entered.txid)
        parents = None if body is None else self.live.parents(body)
        self.live.enter(entered.txid, body)
        event = entered.event
        if event is None:
            at_us = time.time_ns() // 1000
            if entered.kind == "pulled":
                self._pulled("A", entered.txid, at_us, None)
            self._told.append(Entry(entered.txid, entered.kind, at_us, None, body, parents))
        else:
            number = event.mempool_sequence
            entry = Entry(entered.txid, entered.kind, event.received_us, number, body, parents)
            self._fees.entered(entry, self._event_batch)

    def _keep_told(self) -> None:
        """Take the entries of a snapshot, safe from a kill with the next flush."""
        waiting, self._told = self._told, []
        for at in range(0, len(waiting), told.PER_STATE):
            entries = waiting[at : at + told.PER_STATE]
            self._n_told += 1
            self.take_told(told.name(self.origin[1], self._n_told), told.packed(entries), entries)

    def take_told(self, state_name: str, state: bytes, entries: Iterable[Entry]) -> None:
        """Take entries that a snapshot told of, and the state of the journal that says so."""
        owner = self._batches.aside(state_name, state)
        for entry in entries:
            self._fees.entered(entry, owner)

    def _left(self, left: Left) -> None:
        now_us = time.time_ns() // 1000
        self.live.leave(left.txid, now_us)
        self._fees.left(left)
        if left.cause == "resync":
            self._pulled("R", left.txid, now_us, "mined" if self._blocks.holding(left.txid) else "unknown")

    def _look_into_block(self, event: Event, batch: Batch) -> None:
        """Note the transactions of a block that were never seen to wait; complete those that had no body."""
        block = self._blocks.body(event.hash)
        if block is None:
            return
        for body in block.transactions[1:]:
            self._fees.learn_body(body.txid, body)
            if self.spine.in_step and body.txid not in self.live and not self._blocks.holding(body.txid):
                entry = Entry(body.txid, "in_block", event.received_us, None, body, None)
                self._fees.entered_in_block(entry, batch, event.hash)

    def _pulled(self, letter: str, txid: bytes, at_us: int, reason: str | None) -> None:
        """Make the row of an event that a snapshot implies; its counter is negative, for there was none."""
        self._n_pulled += 1
        event = Event(letter, txid, None, -self._n_pulled, at_us)
        self._batches.current.add("mempool_events", [self._event_row(event, reason, kind="pulled")])

    # --- rows

    def _event_row(
        self,
        event: Event,
        reason: str | None = None,
        replaced_by: bytes | None = None,
        *,
        kind: str = "pushed",
    ) -> Row:
        return {
            "node": self.origin[0],
            "session": self.origin[1],
            "sequence": event.sequence,
            "kind": kind,
            "received_at": event.received_us,
            "event": event.event,
            "hash": event.hash,
            "mempool_sequence": event.mempool_sequence,
            "removal_reason": reason,
            "replaced_by": replaced_by,
        }

    def _settled(self, settled: Iterable[Settled]) -> None:
        for event, reason, replaced_by in settled:
            batch = self._owners.pop(event.sequence)
            batch.add("mempool_events", [self._event_row(event, reason, replaced_by)])
            batch.n_open -= 1

    def _reject(self, message: Message, reason: str, batch: Batch) -> None:
        row = reject_row(self.origin, message.topic, message.received_ns // 1000, reason, message.body)
        batch.add("rejects", [{**row, "sequence": message.sequence}])
        log.warning("message.rejected", node=self.origin[0], topic=message.topic, reason=reason)

    def _outpoints(self, txid: bytes) -> frozenset[bytes] | None:
        body = self._bodies.get(txid)
        if body is None:
            return self.live.outpoints(txid)
        return frozenset(outpoint(spent.prev_txid, spent.prev_index) for spent in body.inputs)

    def _spent_in(self, block_hash: bytes) -> list[bytes]:
        block = self._blocks.body(block_hash)
        if block is None:
            return []
        inputs = (spent for body in block.transactions[1:] for spent in body.inputs)
        return [outpoint(spent.prev_txid, spent.prev_index) for spent in inputs]

    # --- questions to the node

    def _ask_snapshot(self, request: int) -> None:
        self._quick.ask(ask_snapshot, partial(self._on_snapshot, request), stopped_or_fatal)

    def _on_snapshot(self, request: int, snapshot: Snapshot) -> None:
        if snapshot.node_began_after_s > self._node_began_before_s:
            self.restarted = "the node began to run after this session did"
            return
        if self._is_cut:
            return
        self._apply(
            self.spine.snapshot(request, snapshot.mempool_sequence, snapshot.txids, snapshot.taken_us)
        )

    def _ask_block(self, block_hash: bytes, needs_body: bool) -> None:  # noqa: FBT001 - BlockFlow's callback
        self._slow.ask(
            partial(ask_block, block_hash=block_hash, raw=needs_body),
            partial(self._on_block, block_hash),
            partial(self._no_block, block_hash),
        )

    def _on_block(self, block_hash: bytes, answer: BlockAnswer) -> None:
        now_us = time.time_ns() // 1000
        if self._blocks.answered(block_hash, answer, now_us, self._batches.current):
            # At once: in a burst of blocks it may be forgotten again before the next tick.
            self._fees.block_told(block_hash, self._blocks.known(block_hash))
            txids = [hash_bytes(transaction["txid"]) for transaction in answer.verbose["tx"]]
            self._offer_block(block_hash, txids)

    def _no_block(self, block_hash: bytes, error: NodeError) -> None:
        """Go on without a block that the node does not have (any more)."""
        log.warning("block.missing", node=self.origin[0], block=hash_hex(block_hash), reason=str(error))
        self._blocks.failed(block_hash)
        self._fees.block_told(block_hash, None)
        self._offer_block(block_hash, self._txids_of(block_hash))

    def _find_block(self, block_hash: bytes) -> None:
        if self._blocks.body(block_hash) is None:
            self._blocks.want(block_hash)
        else:
            self._offer_block(block_hash, self._txids_of(block_hash))

    def _offer_block(self, block_hash: bytes, txids: list[bytes]) -> None:
        if block_hash in self._spine_wants:
            self._spine_wants.discard(block_hash)
            self._apply(self.spine.block(block_hash, txids))

    def _txids_of(self, block_hash: bytes) -> list[bytes]:
        block = self._blocks.body(block_hash)
        return [] if block is None else [body.txid for body in block.transactions]

    def fill(self) -> None:
        """See which blocks of the active chain the dataset lacks, from its first on, and fetch them."""
        lowest = self._stored.lowest_height
        if lowest is None and self._start_height is not None:
            lowest = self._start_height + 1
        if lowest is not None:
            question = partial(ask_chain, lowest_height=lowest, depth=FILL_DEPTH)
            self._slow.ask(question, self._on_chain, stopped_or_fatal)

    def _on_chain(self, hashes: list[bytes]) -> None:
        n_missing = self._blocks.fill(reversed(hashes))
        if n_missing:
            log.info("blocks.filling", node=self.origin[0], n_blocks=n_missing)
