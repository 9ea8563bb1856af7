"""Watch one run of one node: take what was received, journal it, make rows, seal them.

A session's thread owns its journal, ledger and pipeline. What is received is in the journal before anything
is made of it. The node is asked in two lanes, threads of their own, so that a slow answer holds up neither
the receiving nor the journalling: events that need the answer wait, everything else goes on.
"""

import queue
import time
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Event as Flag
from typing import Any, Final

import structlog

from collector import told
from collector.batches import Batches
from collector.blockflow import StoredBlocks, reject_row
from collector.config import Settings
from collector.coverage import Ledger
from collector.errors import CollectorError, NodeError
from collector.journal import Journal
from collector.lane import Answered, Lane
from collector.metrics import Metrics, NodeState
from collector.pipeline import Pipeline
from collector.preflight import NodeFacts
from collector.records import Message
from collector.rpc import RpcClient
from collector.snapshots import Stats, Template, stats_row, take_stats, take_template, template_rows
from collector.writer import Dataset
from collector.zmq_source import Notice, ZmqSource

Row = dict[str, Any]
IDLE_S: Final = 0.25  # the longest wait when nothing happens
GATHER_S: Final = 0.05  # what arrives within it is journalled together
GATHER_ITEMS: Final = 1000  # so many are worth a turn without waiting for more
TURN_ITEMS: Final = 20_000  # so that timers run also under the heaviest load
FINISH_S: Final = 10.0  # how long a stop waits for answers
SETTLE_S: Final = 0.3  # no question open for so long: nothing more will come
OVERDUE_S: Final = 60.0  # a row that takes so long holds up the sealing of all that came after it
COVERAGE_STATE: Final = "coverage/"
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
    ) -> None:
        self.origin = node, session = origin  # names of the node and of the session
        self._settings = settings
        self._dataset = dataset
        self._journal = journal
        self._metrics = metrics
        self._inbox = inbox
        self._quick = Lane(f"{node}-mempool", client, self._inbox)
        self._slow = Lane(f"{node}-blocks", client, self._inbox)
        self._ledger = Ledger(node, session)
        self._batches = Batches(journal)
        self._pipeline = Pipeline(
            self.origin,
            settings.chain,
            quick=self._quick,
            slow=self._slow,
            batches=self._batches,
            stored=stored,
            ledger=self._ledger,
            fee_batch=settings.fee_batch,
            fee_interval_s=settings.fee_interval_s,
        )
        self._restarted = ""  # what showed that the node is another process now
        self._state = b""
        self._is_overdue = False
        self._template_open = False
        self._template_error = ""
        now_s = time.monotonic()
        self._template_due_s = now_s
        self._stats_due_s = now_s
        self._seal_due_s = now_s + settings.seal_interval_s

    def run(self, facts: NodeFacts, source: ZmqSource, stop: Flag) -> None:
        """Collect from `source` until `stop` or until the node restarts; leaves everything sealed."""
        try:
            source.keep_in(self._journal.ring(*self.origin, source.topics))
            self._begin(facts, source.since_us)
            while not stop.is_set() and not self._restarted:
                self._turn(self._take(IDLE_S))
        except BaseException:
            self._stop_lanes()
            raise
        finally:
            source.stop()
        self._finish("node_restart" if self._restarted else "shutdown")

    def recover(self, messages: Sequence[Message], states: Mapping[str, bytes]) -> None:
        """Make rows of what a killed run of this session had received, and of its states of `told`."""
        for name, state in states.items():
            self._pipeline.take_told(name, state, told.unpacked(state))
        batch = self._batches.adopt(len(messages))
        for message in messages:
            self._pipeline.message(message, batch)
        self._pipeline.release()
        self._await_answers()
        self._pipeline.fill()  # what has left the mempool since may be in a block that nobody saw come
        self._wind_up()

    def _begin(self, facts: NodeFacts, since_us: int) -> None:
        now_us = time.time_ns() // 1000
        node, session = self.origin
        row = facts.row | {"node": node, "session": session, "started_at": now_us}
        self._batches.current.add("nodes", [row])
        for topic in facts.endpoints:
            self._ledger.open(topic, since_us)
        self._metrics.began(node, row)
        self._pipeline.start(facts, now_us)
        log.info("session.started", node=node, session=session, tip_height=row["tip_height"])

    # --- one turn

    def _take(self, timeout_s: float) -> list[Any]:
        """Wait for something to happen, and a little longer for what comes with it."""
        try:
            items = [self._inbox.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        if self._inbox.qsize() < GATHER_ITEMS:
            time.sleep(GATHER_S)
        while len(items) < TURN_ITEMS:
            try:
                items.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return items

    def _turn(self, items: list[Any]) -> None:
        items = self._account(items)
        messages = [item for item in items if type(item) is Message]
        batch = self._batches.begin(messages) if messages else self._batches.current
        self._metrics.received(self.origin[0], messages)
        for item in items:
            if type(item) is Message:
                self._pipeline.message(item, batch)
            elif type(item) is Notice:
                self._pipeline.notice(item)
            else:
                item.deliver()
        self._pipeline.tick(time.time_ns() // 1000)
        self._restarted = self._restarted or self._pipeline.restarted
        self._ask_on_time()
        self._commit()

    def _account(self, items: list[Any]) -> list[Any]:
        """Keep the ledger; returns the items up to a restart of the node, what follows is another session's.

        The ledger's state goes to the journal with the messages it counts.
        """
        rows: list[Row] = []
        for position, item in enumerate(items):
            if type(item) is Message:
                self._ledger.count(item.topic, item.sequence, item.received_ns // 1000)
            elif type(item) is Notice and item.reason == "node_restart":
                self._restarted = item.detail
                items = items[:position] + [later for later in items[position:] if type(later) is Answered]
                break
            elif type(item) is Notice:
                rows += self._note(item)
        self._journal_coverage(rows)
        return items

    def _note(self, notice: Notice) -> list[Row]:
        """Close or open the interval of a topic whose stream was broken or came back."""
        node, _ = self.origin
        if notice.reason == "failed":
            raise CollectorError(f"receiving from {node} failed: {notice.detail}")
        at_us = notice.received_ns // 1000
        if notice.reason == "malformed":
            row = reject_row(self.origin, "zmq", at_us, notice.detail, notice.body)
            self._batches.current.add("rejects", [row])
        if notice.topic is None:
            return []
        if notice.reason == "connected":
            log.info("zmq.connected", node=node, topic=notice.topic, endpoint=notice.detail)
            self._ledger.open(notice.topic, at_us)
            return []
        log.warning("zmq.lost", node=node, topic=notice.topic, reason=notice.reason, detail=notice.detail)
        self._metrics.lost(node, notice.topic, notice.reason)
        return self._ledger.close(notice.topic, notice.reason, notice.detail)

    def _journal_coverage(self, rows: Sequence[Row]) -> None:
        """Hand rows of `coverage` and what is still open to the next flush, which writes both or neither."""
        if rows:
            self._journal.append("coverage", rows)
        state = self._ledger.state()
        if state != self._state:
            self._state = state
            self._journal.set_state(COVERAGE_STATE + self.origin[1], state)

    def _commit(self) -> None:
        rows, self._pipeline.coverage_rows = self._pipeline.coverage_rows, []
        for row in rows:
            self._metrics.resynced(self.origin[0], row["end_reason"])
        self._journal_coverage(rows)
        self._metrics.wrote(self._batches.commit())
        waiting_s = self._batches.waiting_s
        if waiting_s > OVERDUE_S and not self._is_overdue:
            log.warning("rows.overdue", node=self.origin[0], n_messages=self._batches.n_messages)
        self._is_overdue = waiting_s > OVERDUE_S
        self._metrics.state(
            self.origin[0],
            NodeState(
                in_step=self._pipeline.spine.in_step,
                away=self._quick.away or self._slow.away,
                n_mempool=len(self._pipeline.live),
                n_queued=self._inbox.qsize(),
                n_waiting=self._batches.n_messages,
                waiting_s=waiting_s,
            ),
        )

    # --- timers

    def _ask_on_time(self) -> None:
        now_s = time.monotonic()
        if self._pipeline.tip_changed and not self._template_open:
            self._pipeline.tip_changed = False
            self._ask_template("tip", now_s)
        elif now_s >= self._template_due_s and not self._template_open:
            self._ask_template("timer", now_s)
        if now_s >= self._stats_due_s:
            self._stats_due_s = now_s + self._settings.stats_interval_s
            self._quick.ask(take_stats, self._on_stats, self._no_stats)
        if now_s >= self._seal_due_s:
            self._seal_due_s = now_s + self._settings.seal_interval_s
            self._journal_coverage(self._ledger.seal(time.time_ns() // 1000))
            self._commit()
            self._seal()

    def _ask_template(self, trigger: str, now_s: float) -> None:
        self._template_due_s = now_s + self._settings.template_interval_s
        self._template_open = True
        self._slow.ask(
            partial(take_template, chain=self._settings.chain),
            partial(self._on_template, trigger),
            self._no_template,
        )

    def _on_template(self, trigger: str, template: Template) -> None:
        self._template_open = False
        self._template_error = ""
        row, transactions = template_rows(self.origin, trigger, template)
        self._batches.current.add("templates", [row])
        self._batches.current.add("template_txs", transactions)

    def _no_template(self, error: NodeError) -> None:
        """Go on without templates: a node that is syncing or has no peers gives none."""
        self._template_open = False
        if str(error) != self._template_error:
            log.warning("template.refused", node=self.origin[0], reason=str(error))
        self._template_error = str(error)

    def _on_stats(self, stats: Stats) -> None:
        row = stats_row(self.origin, stats, self._pipeline.live.histogram())
        self._batches.current.add("mempool_stats", [row])

    def _no_stats(self, error: NodeError) -> None:
        log.warning("stats.refused", node=self.origin[0], reason=str(error))

    # --- the end

    def _finish(self, reason: str) -> None:
        """Take what was received, wait a little for what it needs, and seal."""
        stopped_us = time.time_ns() // 1000
        while not self._inbox.empty():
            items = self._take(0.0)
            if self._restarted:  # these messages are of the node's next run, and in no session
                items = [item for item in items if type(item) is Answered]
            self._turn(items)
        self._await_answers()
        self._journal_coverage(self._ledger.close_all(reason, self._restarted or None, stopped_us))
        self._journal.end_ring()
        self._wind_up()
        log.info("session.ended", node=self.origin[0], session=self.origin[1], reason=reason)

    def _wind_up(self) -> None:
        """Complete every row with what can still be learnt, and seal."""
        self._pipeline.release()
        self._await_answers()
        self._pipeline.finish()
        self._journal.set_state(COVERAGE_STATE + self.origin[1], None)
        self._metrics.wrote(self._batches.commit())
        self._stop_lanes()
        self._seal()

    def _stop_lanes(self) -> None:
        for lane in (self._quick, self._slow):
            lane.stop()

    def _await_answers(self) -> None:
        """Go on until nothing waits, or nothing moves any more."""
        deadline_s = time.monotonic() + FINISH_S
        quiet_since_s = time.monotonic()
        while self._pipeline.n_open and time.monotonic() < deadline_s:
            items = self._take(GATHER_S)
            for item in items:
                if type(item) is Answered:
                    item.deliver()
            self._pipeline.tick(time.time_ns() // 1000, hold_us=0)
            is_waiting = (self._quick.n_open or self._slow.n_open) and not self._quick.away
            if items or is_waiting:
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > SETTLE_S:
                return

    def _seal(self) -> None:
        began_s = time.monotonic()
        files = self._journal.seal(self._dataset)
        self._metrics.sealed(self.origin[0], time.monotonic() - began_s, len(files))
        if files:
            log.info("dataset.sealed", node=self.origin[0], n_files=len(files))
