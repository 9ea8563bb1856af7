"""Follow one run of one node: receive messages, journal them, make rows of them, seal the rows.

A session's thread owns its journal, ledger and pipeline. Every message is in the journal before any row is
made of it. Requests to the node run in threads of their own, so that a slow answer delays neither receiving
nor journalling: events that need the answer wait, and everything else goes on.
"""

import json
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from threading import Event as Flag
from typing import Any, Final, NamedTuple, Protocol

import structlog

from collector.blocks.fetcher import ask_tip
from collector.blocks.stored import StoredBlocks
from collector.clock import StepDetector, monotonic_us, wall_us
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.errors import CollectorError
from collector.journal.batches import Batch, Batches, CommittedRows
from collector.journal.coverage_ledger import COVERAGE_STATE, NO_CLEAN_STOP, CoverageLedger
from collector.journal.journal import Journal
from collector.mempool import fee_lookup
from collector.mempool.bodies import KeptBodies, WaitingBodies
from collector.monitor.metrics import Metrics, NodeState
from collector.node.preflight import NodeFacts
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.node.rpc import RpcClient
from collector.receive.records import Message
from collector.receive.ring import Ring
from collector.service.memory import return_freed_memory
from collector.service.observation import Observation, Subscription
from collector.service.pipeline import HOLD_US, MessageName, Pipeline
from collector.service.polls import Polls

IDLE_S: Final = 0.25  # the longest wait for something to happen
GATHER_S: Final = 0.05  # what arrives within this time is journalled together
GATHER_ITEMS: Final = 1000  # with so many items a turn begins at once
FINISH_S: Final = 10.0  # how long a stop waits for answers
RECOVER_S: Final = 120.0  # how long rows of a killed run wait for the blocks that came meanwhile
SETTLE_S: Final = 0.3  # with no request open for so long, nothing more will come
OVERDUE_S: Final = 60.0  # a row that takes so long holds up the sealing of all that came after it
START_HEIGHT_STATE: Final = "began/"  # + session: height of the node's tip when the session began
FAILED_STATE: Final = (
    "failed/"  # + session: the messages on which it ended by an error of ours, and the error
)
log = structlog.get_logger(__name__)


class Outcome(Enum):
    """Says how the work on a session's messages ended: complete, some left in the journal, or node away."""

    COMPLETE = auto()  # every message received has its rows, and all of them are sealed
    LEFT = auto()  # messages stay in the journal and the ring; a later `recover` makes their rows
    NODE_AWAY = auto()  # the node went away before the session began: nothing was received


class Limits(NamedTuple):
    """Bounds what a session holds in memory (messages, bytes) and in its journal (bytes)."""

    n_messages: int = 40_000  # whose rows may be incomplete; later messages wait in the ring
    message_bytes: int = 32 << 20  # of such messages
    seal_bytes: int = 16 << 20  # so much new journal is sealed at once, because a seal reads all of it


LIMITS: Final = Limits()


class Unfinished(NamedTuple):
    """Holds what the journal still has of one session that was killed."""

    messages: deque[Message]  # without rows, oldest first; `recover` takes them out
    listed: dict[str, bytes]  # states of the journal: entries of the mempool that a snapshot listed
    start_height: bytes | None = None  # its state in the journal: the height as JSON
    coverage: bytes | None = None  # the ledger's state
    failed: bytes | None = None  # the messages that ended it by an error, and the error, as JSON


class Source(Subscription, Protocol):
    """Delivers a session's messages to the queue `inbox`; outside of tests this is `MessageSource`."""

    is_throttled: bool  # the session asks to leave messages in the ring while it has room
    is_paused: bool  # the session takes no message at all

    @property
    def is_drained(self) -> bool:
        """Return whether receiving has ended and nothing more will come into the inbox."""

    def start_forwarding(self, ring: Ring) -> None:
        """Deliver all messages through this ring (buffer file), from the first one after the subscription."""

    def end(self) -> None:
        """Stop receiving messages; those already received are still delivered until `is_drained` is true."""

    def stop(self) -> None:
        """Stop receiving messages at once; those that are not delivered yet stay in the ring."""


def unfinished_sessions(messages: Sequence[Message], states: Mapping[str, bytes]) -> dict[str, Unfinished]:
    """Map each session to the messages and states that a journal holds of it, the oldest session first.

    `messages` are those without rows; `states` are the journal's saved states by name. Session names begin
    with the time at which they started.
    """
    found: dict[str, Unfinished] = {}

    def of(session: str) -> Unfinished:
        return found.setdefault(session, Unfinished(deque(), {}))

    for message in messages:
        of(message.session).messages.append(message)
    for name, state in states.items():
        if name.startswith(fee_lookup.STATE_PREFIX):
            of(fee_lookup.session_of_state(name)).listed[name] = state
        elif name.startswith(START_HEIGHT_STATE):
            session = name.removeprefix(START_HEIGHT_STATE)
            found[session] = of(session)._replace(start_height=state)
        elif name.startswith(COVERAGE_STATE):
            session = name.removeprefix(COVERAGE_STATE)
            found[session] = of(session)._replace(coverage=state)
        elif name.startswith(FAILED_STATE):
            session = name.removeprefix(FAILED_STATE)
            found[session] = of(session)._replace(failed=state)
    return dict(sorted(found.items()))


class Session:
    """Records one run of one node until a stop or the node's restart; use it from one thread."""

    _source: Source | None
    _tip_hash: bytes | None

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
        bodies: WaitingBodies,
        metrics: Metrics,
        follower: CommittedRows | None = None,
        steps: StepDetector | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.origin = node, session = origin  # names of the node and of the session
        self._settings, self._dataset, self._journal = settings, dataset, journal
        self._metrics, self._inbox, self._limits = metrics, inbox, limits or LIMITS
        self._requests = NodeRequests(node, client, inbox)
        self._batches = Batches(journal, follower)
        self._bodies = KeptBodies(origin, settings.keep_bodies, bodies, self._batches)
        ledger = CoverageLedger(node, session)
        self._pipeline = Pipeline(
            origin,
            settings,
            requests=self._requests,
            batches=self._batches,
            stored=stored,
            ledger=ledger,
            bodies=self._bodies,
        )
        self._polls = Polls(
            origin, settings, requests=self._requests, batches=self._batches, contents=self._pipeline.contents
        )
        self._observation = Observation(
            ledger,
            self._pipeline,
            journal=journal,
            batches=self._batches,
            requests=self._requests,
            metrics=metrics,
            steps=steps or StepDetector(round(settings.clock_step_s * 1e6)),
            watchdog_interval_s=settings.watchdog_interval_s,
        )
        self._source, self._tip_hash = None, None
        self._failed: dict[MessageName, str] = {}  # messages that become rejects, each with the reason
        self._is_overdue = self._is_ending = False
        self._seal_due_s = time.monotonic() + settings.seal_interval_s
        self._carried_bytes = 0  # of the journal that the last seal had to leave in it

    def run(self, facts: NodeFacts, source: Source, stop: Flag) -> Outcome:
        """Record from `source` until `stop` is set or the node restarts; then write everything to Parquet.

        Returns LEFT, without waiting longer, when messages or rows remain that need answers the node does not
        give; else COMPLETE.
        """
        self._source = source
        with self._no_request_after_an_error():
            try:
                with self._naming_the_message():
                    self._begin(facts, source)
                    source.start_forwarding(self._journal.make_ring(*self.origin, source.topics))
                    while not stop.is_set() and not self._observation.restarted:
                        self._turn(self._take(IDLE_S))
                    outcome = self._drain(source)
            finally:
                source.stop()
            if outcome is Outcome.COMPLETE:
                return self._finish("node_restart" if self._observation.restarted else "shutdown")
        self._leave("the node does not answer; the next start takes in what was received")
        return outcome

    def recover(self, unfinished: Unfinished, stop: Flag) -> Outcome:
        """Make the rows of a killed session: first of its messages in the journal, then of those in its ring.

        Returns LEFT when `stop` is set meanwhile, else COMPLETE; what has no rows then stays in the journal
        and the ring (the buffer file of received messages).
        """
        with self._no_request_after_an_error(), self._naming_the_message():
            return self._recover(unfinished, stop)

    def _recover(self, unfinished: Unfinished, stop: Flag) -> Outcome:
        if unfinished.failed is not None:
            self._failed = {MessageName(*name): reason for *name, reason in json.loads(unfinished.failed)}
        if unfinished.start_height is not None:  # a block that nobody saw may explain what left the mempool
            self._pipeline.begin_behind(json.loads(unfinished.start_height))
        self._observation.restore(unfinished.coverage)
        for name, state in unfinished.listed.items():
            self._pipeline.take_listed(name, state)
        self._batches.keep_recovered(unfinished.messages)
        while unfinished.messages and not stop.is_set():
            self._take_recovered(*self._batches.begin_recovered(GATHER_ITEMS), stop)
        while not stop.is_set() and (items := self._journal.take_left_in_ring(self.origin[1], GATHER_ITEMS)):
            late = self._observation.take_late(items)
            self._take_recovered(late, self._batches.begin(late), stop)
        if not stop.is_set():
            self._pipeline.release()
            self._pipeline.fill_blocks()
            self._await_recovered(stop)
        if stop.is_set():
            self._leave("stopped; the next start takes in the rest")
            return Outcome.LEFT
        self._observation.end("killed", NO_CLEAN_STOP)
        self._complete_and_seal()
        return Outcome.COMPLETE

    @contextmanager
    def _no_request_after_an_error(self) -> Iterator[None]:
        """Stop the request threads when an error ends the `with` block; nobody else would end them."""
        try:
            yield
        except BaseException:
            self._requests.stop()
            raise

    @contextmanager
    def _naming_the_message(self) -> Iterator[None]:
        """Name in the journal the message that is being processed when an error of ours ends the session.

        The next start makes a row of `rejects` of that message instead, so that no message can end a session
        twice.
        """
        try:
            yield
        except (CollectorError, OSError, MemoryError):
            raise  # it is not what the message holds
        except Exception as error:
            name = self._pipeline.processed
            if name is not None:
                reason = f"it ended the session: {type(error).__name__}: {error}"
                self._failed[name] = reason
                log.error("message.failed", node=self.origin[0], **name._asdict(), reason=reason)  # noqa: TRY400 - the caller logs the traceback
                state = json.dumps([[*name, reason] for name, reason in self._failed.items()]).encode()
                self._journal.save_state(FAILED_STATE + self.origin[1], state)
            raise

    def _leave(self, advice: str) -> None:
        """Stop the requests and log that journal and ring (buffer file) keep messages for `recover`."""
        self._requests.stop()
        log.warning("session.left", node=self.origin[0], session=self.origin[1], advice=advice)

    def _take_recovered(self, messages: Sequence[Message], batch: Batch, stop: Flag) -> None:
        """Process some messages of a killed run, and wait for the node while too many rows are incomplete.

        The pipeline's clock stands still during the wait, because a later message may explain an event of
        these. The last ones are held until those after them are taken, or until too many wait.
        """
        now_us = monotonic_us()
        self._pipeline.take(self._pipeline.set_aside(messages, self._failed, batch), batch)
        self._pipeline.release(hold_us=HOLD_US, has_unread=not self._is_full)

        def go_on() -> None:
            self._pipeline.tick(now_us, has_unread=not self._is_full)
            self._metrics.wrote(self._commit_rows())
            self._seal_on_time()
            self._metrics.turned(self.origin[0])

        go_on()
        self._go_on_until(lambda: not self._is_full or stop.is_set(), go_on, RECOVER_S)
        if self._is_full and not self._pipeline.is_filling:
            self._pipeline.fill_blocks()  # a block that nobody saw may hold what has left the mempool

    def _begin(self, facts: NodeFacts, source: Source) -> None:
        """Write the session's row of `nodes`, start its coverage intervals and start the pipeline."""
        now_us = wall_us()
        node, session = self.origin
        row = facts.row | {"node": node, "session": session, "started_at": now_us}
        self._batches.add_independent("nodes", [row])
        self._journal.set_state(START_HEIGHT_STATE + session, json.dumps(row["tip_height"]).encode())
        self._observation.begin(source)
        self._metrics.began(node, row)
        self._pipeline.start(facts, now_us)
        self._tip_hash = facts.row["tip_hash"]
        self._commit_rows()  # before any message: after a kill, each message's session has its row
        self._seal()  # so that damage to the journal cannot lose that row
        log.info("session.started", node=node, session=session, tip_height=row["tip_height"])

    # --- one turn

    def _take(self, timeout_s: float) -> list[Any]:
        """Wait up to `timeout_s` for an item in the inbox, then briefly for more; return all items there.

        Items that arrive during the collection wait for the next turn, so that a turn is bounded and the
        timers run even under the heaviest load.
        """
        try:
            items = [self._inbox.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        if self._inbox.qsize() < GATHER_ITEMS:
            time.sleep(GATHER_S)
        return items + [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]

    def _turn(self, items: list[Any]) -> None:
        """Write the messages among `items` to the journal, process all items, and commit complete rows."""
        items = self._observation.take(items)
        messages = [item for item in items if type(item) is Message]
        of_ring = [item for item in items if type(item) is not FinishedRequest]
        if of_ring:
            self._journal.note_taken(of_ring[-1].number)
        batch = self._batches.begin(messages) if messages else self._batches.current
        self._metrics.received(self.origin[0], messages)
        self._pipeline.take(items, batch)
        self._pipeline.tick(monotonic_us(), has_unread=self._has_unread)
        self._observation.restarted = self._observation.restarted or self._pipeline.restarted
        if not self._is_ending:
            self._ask_on_time()
        self._commit()
        self._seal_on_time()

    # --- the end of a turn

    @property
    def _is_full(self) -> bool:
        """Return whether so many messages wait for their rows that the session takes no more of them."""
        limits = self._limits
        return self._batches.n_messages > limits.n_messages or self._batches.n_bytes > limits.message_bytes

    @property
    def _has_unread(self) -> bool:
        """Return whether the next turns will take in messages that have been received already.

        They stay in the ring while too many rows wait, and when they come from the node's next run.
        """
        is_closed = self._observation.restarted or (self._is_full and self._inbox.empty())
        return self._journal.has_unread and not is_closed

    def _commit(self) -> None:
        """Commit the complete rows to the journal, and report the session's state to the metrics."""
        self._hold_coverage()
        self._metrics.wrote(self._commit_rows())
        self._hold_back()
        waiting_s = self._batches.waiting_s
        if waiting_s > OVERDUE_S and not self._is_overdue:
            log.warning("rows.overdue", node=self.origin[0], n_messages=self._batches.n_messages)
        self._is_overdue = waiting_s > OVERDUE_S
        self._metrics.state(
            self.origin[0],
            NodeState(
                in_step=self._pipeline.in_step and not self._observation.restarted,
                away=self._requests.away,
                n_mempool=self._pipeline.n_mempool,
                n_queued=self._inbox.qsize(),
                n_waiting=self._batches.n_messages,
                waiting_s=waiting_s,
                reason=self._requests.refusal,
                silent=self._observation.silent,
            ),
        )

    def _hold_coverage(self) -> None:
        """Hand over the intervals of `mempool` that have ended, so that their rows are written."""
        rows = self._pipeline.pop_coverage_rows()
        for row in rows:
            self._metrics.resynced(self.origin[0], row["end_reason"])
        self._observation.hold(rows)

    def _commit_rows(self) -> dict[str, int]:
        """Commit the complete rows to the journal; return the number of rows by table.

        The transactions' raw bytes that wait in memory are written to disk before that.
        """
        self._bodies.before_commit()
        counts = self._batches.commit()
        self._bodies.after_commit()
        return counts

    def _hold_back(self) -> None:
        """Ask the source to leave messages in the ring (buffer file) while they would only wait in memory."""
        if self._source is not None:
            self._source.is_throttled = self._pipeline.is_behind
            self._source.is_paused = self._is_full

    # --- timers

    def _ask_on_time(self) -> None:
        """Send the node the requests that are due: templates, statistics, and the watchdog's questions."""
        tip_hash = self._pipeline.tip_hash
        if tip_hash != self._tip_hash:
            self._tip_hash = tip_hash
            self._polls.tip_changed()
        self._polls.ask_on_time()
        if self._source is None or not (self._source.is_throttled or self._source.is_paused):
            self._observation.ask_on_time()  # else the watchdog takes messages in the ring for silence

    def _seal_on_time(self) -> None:
        """Write the journal to Parquet when the timer is due, or when the journal has grown too large."""
        now_s = time.monotonic()
        if (
            now_s >= self._seal_due_s
            or self._journal.size_bytes - self._carried_bytes > self._limits.seal_bytes
        ):
            self._seal_due_s = now_s + self._settings.seal_interval_s
            self._observation.seal()
            self._seal()

    # --- the end

    def _drain(self, source: Source) -> Outcome:
        """Process the messages that were received before the end, in bounded turns as before.

        Returns LEFT when nothing changes for FINISH_S, because rows wait for the node and messages in the
        ring; else COMPLETE.
        """
        source.end()
        self._is_ending = True
        moved_s = time.monotonic()
        while not (source.is_drained and self._inbox.empty()):
            n_before = self._batches.n_messages
            items = self._take(GATHER_S)
            if self._observation.restarted:  # messages now come from the node's next run: a new session's
                items = [item for item in items if type(item) is FinishedRequest]
            self._turn(items)
            if items or self._batches.n_messages < n_before:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > FINISH_S:
                return Outcome.LEFT
        return Outcome.COMPLETE

    def _finish(self, reason: str) -> Outcome:
        """End the coverage for `reason`, wait a little for the answers that rows still need, and seal.

        Sealing writes the rows to Parquet. Returns LEFT when these answers do not come in time: the
        messages of such rows stay in the journal, and the next start completes the rows. Returns COMPLETE
        otherwise.
        """
        self._await_answers(FINISH_S)
        self._hold_coverage()
        self._observation.close(reason, self._observation.restarted or None)
        self._journal.remove_ring()
        if not self._waits_for_node:
            self._pipeline.release()
            self._await_answers(FINISH_S)
        if self._waits_for_node:
            self._commit()
            self._observation.seal()
            self._seal()
            self._leave("the next start completes the rows that wait for answers of the node")
            return Outcome.LEFT
        self._observation.end(reason, self._observation.restarted or None)
        self._complete_and_seal()
        log.info("session.ended", node=self.origin[0], session=self.origin[1], reason=reason)
        return Outcome.COMPLETE

    def _complete_and_seal(self) -> None:
        """Complete every row with the facts at hand, drop the session's states, write all to Parquet."""
        self._pipeline.release()
        self._pipeline.finish()
        self._observation.drop_states()
        for state in (START_HEIGHT_STATE, FAILED_STATE):
            self._journal.set_state(state + self.origin[1], None)
        self._metrics.wrote(self._commit_rows())
        self._requests.stop()
        self._seal()

    @property
    def _waits_for_node(self) -> bool:
        """Return whether rows of this session are incomplete while the node leaves requests unanswered."""
        return self._pipeline.n_open > 0 and self._requests.n_open > 0

    def _await_recovered(self, stop: Flag) -> None:
        """Wait for the answers that recovered rows need, without limit while the node answers nothing at all.

        If no answer comes for RECOVER_S although the node answers a simple request, the wait ends.
        """
        n_open, moved_s = self._pipeline.n_open, time.monotonic()
        is_probed = False
        while True:
            self._await_answers(RECOVER_S, stop)
            if stop.is_set() or not self._waits_for_node:
                return
            if self._pipeline.n_open < n_open:
                n_open, moved_s, is_probed = self._pipeline.n_open, time.monotonic(), False
            if self._requests.status.n_open:
                continue  # the node is silent
            if is_probed:
                return
            if time.monotonic() - moved_s > RECOVER_S:
                is_probed = True
                self._requests.status.ask(ask_tip, lambda _: None, lambda _: None)

    def _await_answers(self, limit_s: float, stop: Flag | None = None) -> None:
        """Deliver the node's answers until no row waits for one, no more come, or `limit_s` seconds are over.

        The wait also ends when `stop` is set.
        """
        threads = (self._requests.blocks, self._requests.template)

        def is_enough() -> bool:
            is_open = self._pipeline.n_open or any(thread.n_open for thread in threads)
            return not is_open or (stop is not None and stop.is_set())

        self._go_on_until(is_enough, lambda: self._pipeline.tick(monotonic_us(), hold_us=0), limit_s)

    def _go_on_until(self, is_enough: Callable[[], bool], go_on: Callable[[], None], limit_s: float) -> None:
        """Deliver the node's answers to our requests as they come, and call `go_on` again and again.

        The loop ends when `is_enough()` is true, after `limit_s` seconds, or when nothing has come for
        SETTLE_S seconds and no request is open; while the node is away, an open request does not count.
        """
        deadline_s = time.monotonic() + limit_s
        quiet_since_s = time.monotonic()
        while not is_enough() and time.monotonic() < deadline_s:
            items = self._take(GATHER_S)
            for item in items:
                if type(item) is FinishedRequest:
                    item.deliver()
            go_on()
            self._metrics.turned(self.origin[0])
            if items or (self._requests.n_open and not self._requests.away):
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > SETTLE_S:
                return

    def _seal(self) -> None:
        """Turn the journal into Parquet files, and give freed memory back to the system."""
        began_s = time.monotonic()
        files = self._journal.seal(self._dataset)
        self._carried_bytes = self._journal.size_bytes
        return_freed_memory()
        self._metrics.sealed(self.origin[0], time.monotonic() - began_s, len(files))
        if files:
            log.info("dataset.sealed", node=self.origin[0], n_files=len(files))
