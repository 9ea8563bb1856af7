"""Watch one run of one node: take what was received, journal it, make rows, seal them.

A session's thread owns its journal, ledger and pipeline. What is received is in the journal before anything
is made of it. The node is asked in lanes, threads of their own, so that a slow answer holds up neither the
receiving nor the journalling: events that need the answer wait, everything else goes on.
"""

import json
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event as Flag
from typing import Any, Final

import structlog

from collector.blocks.stored import StoredBlocks
from collector.clock import StepDetector, monotonic_us, wall_us
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.journal.batches import Batch, Batches
from collector.journal.coverage_ledger import NO_CLEAN_STOP, CoverageLedger
from collector.journal.journal import Journal
from collector.mempool import told
from collector.monitor.metrics import Metrics, NodeState
from collector.node.preflight import NodeFacts
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.node.rpc import RpcClient
from collector.receive.records import Message, Notice
from collector.receive.source import MessageSource
from collector.service.memory import give_back
from collector.service.observation import Observation
from collector.service.pipeline import HOLD_US, Pipeline
from collector.service.polls import Polls

Row = dict[str, Any]
IDLE_S: Final = 0.25  # the longest wait when nothing happens
GATHER_S: Final = 0.05  # what arrives within it is journalled together
GATHER_ITEMS: Final = 1000  # so many are worth a turn without waiting for more
FINISH_S: Final = 10.0  # how long a stop waits for answers
RECOVER_S: Final = 120.0  # how long rows of a killed run wait for the blocks that came meanwhile
MOST_MESSAGES: Final = 40_000  # whose rows may be incomplete: what is beyond waits in the ring
MOST_BYTES: Final = 32 << 20  # of such messages
SEAL_BYTES: Final = 16 << 20  # of new journal are sealed before it is time: a seal reads all of it
SETTLE_S: Final = 0.3  # no question open for so long: nothing more will come
OVERDUE_S: Final = 60.0  # a row that takes so long holds up the sealing of all that came after it
START_HEIGHT_STATE: Final = "began/"
log = structlog.get_logger(__name__)


class Session:
    """One collector run against one run of a node; use it from one thread."""

    def __init__(
        self,
        origin: tuple[str, str],
        client: RpcClient,
        *,
        inbox: "queue.SimpleQueue[Any]",
        settings: Settings,
        dataset: Dataset,
        journal: Journal,
        stored: StoredBlocks,
        metrics: Metrics,
        steps: StepDetector | None = None,
    ) -> None:
        self.origin = node, session = origin  # names of the node and of the session
        self._settings = settings
        self._dataset = dataset
        self._journal = journal
        self._metrics = metrics
        self._inbox = inbox
        self._lanes = NodeRequests(node, client, inbox)
        self._ledger = CoverageLedger(node, session)
        self._batches = Batches(journal)
        self._pipeline = Pipeline(
            origin, settings, lanes=self._lanes, batches=self._batches, stored=stored, ledger=self._ledger
        )
        histogram = self._pipeline.contents.histogram
        self._polls = Polls(origin, settings, lanes=self._lanes, batches=self._batches, histogram=histogram)
        self._observation = Observation(
            self._ledger,
            self._pipeline,
            journal=journal,
            batches=self._batches,
            lanes=self._lanes,
            metrics=metrics,
            steps=steps or StepDetector(round(settings.clock_step_s * 1e6)),
            watchdog_interval_s=settings.watchdog_interval_s,
            renew=self._renew,
        )
        self._source: MessageSource | None = None
        self._tip_hash: bytes | None = None
        self._is_overdue = False
        self._is_ending = False
        self._seal_due_s = time.monotonic() + settings.seal_interval_s
        self._carried_bytes = 0  # of the journal, that the last seal had to leave in it

    def run(self, facts: NodeFacts, source: MessageSource, stop: Flag) -> bool:
        """Collect from `source` until `stop` or until the node restarts; leaves everything sealed.

        False when it leaves messages in the journal and its ring, for `recover`: a session that is behind and
        whose node does not answer does not wait for it.
        """
        self._source = source
        try:
            self._begin(facts, source.subscribed_at_us)
            source.start_forwarding(self._journal.make_ring(*self.origin, source.topics))
            while not stop.is_set() and not self._observation.restarted:
                self._turn(self._take(IDLE_S))
            is_complete = self._drain(source)
        except BaseException:
            self._lanes.stop()
            raise
        finally:
            source.stop()
        if is_complete:
            self._finish("node_restart" if self._observation.restarted else "shutdown")
        else:
            self._leave("the node does not answer; the next start takes in what was received")
        return is_complete

    def recover(
        self,
        messages: deque[Message],
        states: Mapping[str, bytes],
        stop: Flag,
        *,
        began: bytes | None = None,
        claims: bytes | None = None,
    ) -> bool:
        """Make rows of what a killed run left, in turns, and of what it `claims` to have observed.

        That is messages, which are taken out of `messages`, then those in its ring, and the states of `told`
        and `began`. False when `stop` was set meanwhile: what has no rows yet stays where it is.
        """
        if began is not None:  # what has left the mempool since may be in a block that nobody saw come
            self._pipeline.blocks.want_above(json.loads(began))
        self._observation.adopt(claims)
        for name, state in states.items():
            self._pipeline.take_told(name, state, told.unpacked(state))
        self._batches.keep_recovered(messages)
        while messages and not stop.is_set():
            self._take_again(*self._batches.begin_recovered(GATHER_ITEMS), stop)
        while not stop.is_set() and (items := self._journal.take_left_in_ring(self.origin[1], GATHER_ITEMS)):
            late = self._observation.resume(items)
            self._take_again(late, self._batches.begin(late), stop)
        if not stop.is_set():
            self._pipeline.release()
            self._pipeline.blocks.fetch_missing()
            self._await_answers(RECOVER_S, stop)
        if stop.is_set():
            self._leave("stopped; the next start takes in the rest")
            return False
        self._observation.end("killed", NO_CLEAN_STOP)
        self._wind_up(0)
        return True

    def _leave(self, advice: str) -> None:
        """Leave messages in the journal and its ring, for `recover`."""
        self._lanes.stop()
        log.warning("session.left", node=self.origin[0], session=self.origin[1], advice=advice)

    def _take_again(self, messages: Sequence[Message], batch: Batch, stop: Flag) -> None:
        """Take a turn of what a killed run left, and wait for answers while too much is incomplete.

        Time stands still in the meantime: what explains an event may be in the next turn.
        """
        now_us = monotonic_us()
        self._pipeline.bodies([message for message in messages if message.topic == "rawtx"], batch)
        for message in messages:
            if message.topic != "rawtx":
                self._pipeline.message(message, batch)
        self._pipeline.release(hold_us=HOLD_US)

        def go_on() -> None:
            self._pipeline.tick(now_us)
            self._metrics.wrote(self._batches.commit())
            self._seal_on_time()

        go_on()
        self._go_on_until(lambda: not self._is_full or stop.is_set(), go_on, RECOVER_S)
        if self._is_full and not self._pipeline.blocks.is_filling:
            # What has left the mempool since may be in a block that no message named.
            self._pipeline.blocks.fetch_missing()

    def _begin(self, facts: NodeFacts, since_us: int) -> None:
        now_us = wall_us()
        node, session = self.origin
        row = facts.row | {"node": node, "session": session, "started_at": now_us}
        self._batches.add_independent("nodes", [row])
        self._journal.set_state(START_HEIGHT_STATE + session, json.dumps(row["tip_height"]).encode())
        self._observation.begin(facts.endpoints, since_us)
        self._metrics.began(node, row)
        self._pipeline.start(facts, now_us)
        self._tip_hash = facts.row["tip_hash"]
        self._batches.commit()  # before any message: what a kill leaves of it belongs to a known session
        self._seal()  # nor can damage to the journal make it unknown
        log.info("session.started", node=node, session=session, tip_height=row["tip_height"])

    def _renew(self, topic: str) -> None:
        if self._source is not None:
            self._source.reconnect([topic])

    # --- one turn

    def _take(self, timeout_s: float) -> list[Any]:
        """Wait for something to happen, and a little longer for what comes with it.

        What comes while it takes is left to the next turn: timers run, and what is taken has its bound, also
        under the heaviest load.
        """
        try:
            items = [self._inbox.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        if self._inbox.qsize() < GATHER_ITEMS:
            time.sleep(GATHER_S)
        return items + [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]

    def _turn(self, items: list[Any]) -> None:
        items = self._observation.account(items)
        messages = [item for item in items if type(item) is Message]
        batch = self._batches.begin(messages) if messages else self._batches.current
        self._metrics.received(self.origin[0], messages)
        self._pipeline.bodies([message for message in messages if message.topic == "rawtx"], batch)
        for item in items:
            if type(item) is Message:
                if item.topic != "rawtx":
                    self._pipeline.message(item, batch)
            elif type(item) is Notice:
                self._pipeline.notice(item)
            else:
                item.deliver()
        self._pipeline.tick(monotonic_us())
        self._observation.restarted = self._observation.restarted or self._pipeline.restarted
        if not self._is_ending:
            self._ask_on_time()
        self._commit()
        self._seal_on_time()

    # --- the end of a turn

    @property
    def _is_full(self) -> bool:
        """Whether so much is incomplete that no more is taken."""
        return self._batches.n_messages > MOST_MESSAGES or self._batches.n_bytes > MOST_BYTES

    def _commit(self) -> None:
        rows, self._pipeline.coverage_rows = self._pipeline.coverage_rows, []
        for row in rows:
            self._metrics.resynced(self.origin[0], row["end_reason"])
        self._observation.keep(rows)
        self._metrics.wrote(self._batches.commit())
        self._hold()
        waiting_s = self._batches.waiting_s
        if waiting_s > OVERDUE_S and not self._is_overdue:
            log.warning("rows.overdue", node=self.origin[0], n_messages=self._batches.n_messages)
        self._is_overdue = waiting_s > OVERDUE_S
        self._metrics.state(
            self.origin[0],
            NodeState(
                in_step=self._pipeline.sync.in_step,
                away=self._lanes.away,
                n_mempool=len(self._pipeline.contents),
                n_queued=self._inbox.qsize(),
                n_waiting=self._batches.n_messages,
                waiting_s=waiting_s,
            ),
        )

    def _hold(self) -> None:
        """Leave in the ring what would only wait in memory; where that is full, losses are named."""
        if self._source is not None:
            self._source.is_throttled = self._pipeline.is_behind
            self._source.is_paused = self._is_full

    # --- timers

    def _ask_on_time(self) -> None:
        tip_hash = self._pipeline.blocks.tip_hash
        if tip_hash != self._tip_hash:
            self._tip_hash = tip_hash
            self._polls.tip_changed()
        self._polls.ask_on_time()
        if self._source is None or not (self._source.is_throttled or self._source.is_paused):
            self._observation.ask_on_time()  # else what waits in the ring would pass for silence

    def _seal_on_time(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._seal_due_s or self._journal.size_bytes - self._carried_bytes > SEAL_BYTES:
            self._seal_due_s = now_s + self._settings.seal_interval_s
            self._observation.seal()
            self._seal()

    # --- the end

    def _drain(self, source: MessageSource) -> bool:
        """Take in what was received, in turns as ever: what memory holds has its bound at an end too.

        False when it does not go on: what is incomplete waits for the node, and the rest in the ring.
        """
        source.end()
        self._is_ending = True
        moved_s = time.monotonic()
        while not (source.is_drained and self._inbox.empty()):
            n_before = self._batches.n_messages
            items = self._take(GATHER_S)
            if self._observation.restarted:  # these messages are of the node's next run, and in no session
                items = [item for item in items if type(item) is FinishedRequest]
            self._turn(items)
            if items or self._batches.n_messages < n_before:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > FINISH_S:
                return False
        return True

    def _finish(self, reason: str) -> None:
        """Wait a little for what the messages still need, and seal."""
        self._await_answers(FINISH_S)
        self._observation.end(reason, self._observation.restarted or None)
        self._journal.remove_ring()
        self._wind_up(FINISH_S)
        log.info("session.ended", node=self.origin[0], session=self.origin[1], reason=reason)

    def _wind_up(self, limit_s: float) -> None:
        """Complete every row with what can still be learnt, and seal."""
        self._pipeline.release()
        self._await_answers(limit_s)
        self._pipeline.finish()
        self._observation.forget()
        self._journal.set_state(START_HEIGHT_STATE + self.origin[1], None)
        self._metrics.wrote(self._batches.commit())
        self._lanes.stop()
        self._seal()

    def _await_answers(self, limit_s: float, stop: Flag | None = None) -> None:
        """Go on until nothing waits, or nothing moves any more, or `stop` is set."""
        lanes = (self._lanes.blocks, self._lanes.template)

        def is_enough() -> bool:
            is_open = self._pipeline.n_open or any(lane.n_open for lane in lanes)
            return not is_open or (stop is not None and stop.is_set())

        self._go_on_until(is_enough, lambda: self._pipeline.tick(monotonic_us(), hold_us=0), limit_s)

    def _go_on_until(self, is_enough: Callable[[], bool], go_on: Callable[[], None], limit_s: float) -> None:
        """Take answers and go on, until it is enough, or nothing moves any more."""
        deadline_s = time.monotonic() + limit_s
        quiet_since_s = time.monotonic()
        while not is_enough() and time.monotonic() < deadline_s:
            items = self._take(GATHER_S)
            for item in items:
                if type(item) is FinishedRequest:
                    item.deliver()
            go_on()
            self._metrics.turned(self.origin[0])
            if items or (self._lanes.n_open and not self._lanes.away):
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > SETTLE_S:
                return

    def _seal(self) -> None:
        began_s = time.monotonic()
        files = self._journal.seal(self._dataset)
        self._carried_bytes = self._journal.size_bytes
        give_back()
        self._metrics.sealed(self.origin[0], time.monotonic() - began_s, len(files))
        if files:
            log.info("dataset.sealed", node=self.origin[0], n_files=len(files))
