"""Keep the coverage of one session: open and close intervals as the stream breaks and comes back.

Losses in the stream, steps of the wall clock and findings of the watchdog all end an interval. Each one
becomes a row of `coverage` with its reason, is logged and counted, and reaches the pipeline in its place
among the messages.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Protocol

import structlog

from collector.blocks.tracker import reject_row
from collector.clock import Step, StepDetector, wall_us
from collector.dataset.rows import CoverageRow
from collector.dataset.schema import ZMQ_TOPICS
from collector.errors import CollectorError
from collector.journal.batches import Batches
from collector.journal.coverage_ledger import COVERAGE_STATE, NO_CLEAN_STOP, CoverageLedger
from collector.journal.journal import Journal
from collector.monitor.metrics import Metrics
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.receive.records import Message, Notice
from collector.service.pipeline import Pipeline
from collector.service.watchdog import Finding, OurState, WatchdogTimer

MALFORMED_STATE: Final = "malformed/"  # + session: receive time (ns) of the newest one that has its row
log = structlog.get_logger(__name__)


class Subscription(Protocol):
    """The part of a source of messages that coverage needs."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics that are subscribed to."""

    @property
    def subscribed_at_us(self) -> int:
        """The moment (wall clock) since which the subscription stands."""

    def reconnect(self, topics: Collection[str]) -> None:
        """Make the connections of these topics again."""


class Observation:
    """The coverage of one session: what was really observed, and what ended each interval."""

    def __init__(
        self,
        ledger: CoverageLedger,
        pipeline: Pipeline,
        *,
        journal: Journal,
        batches: Batches,
        requests: NodeRequests,
        metrics: Metrics,
        steps: StepDetector,
        watchdog_interval_s: float,
    ) -> None:
        self.restarted = ""  # how we know that the node is another process now; empty while it is the same
        self._ledger = ledger
        self._pipeline = pipeline
        self._origin = pipeline.origin
        self._journal = journal
        self._batches = batches
        self._metrics = metrics
        self._steps = steps
        self._watchdog = WatchdogTimer(
            self._origin[0], ZMQ_TOPICS, requests=requests, interval_s=watchdog_interval_s, observer=self
        )
        self._subscription: Subscription | None = None
        self._to_open: list[str] = []  # topics whose interval was closed by a step of the clock
        # Topics that were silent: a new connection alone does not open their interval, only a message does.
        self._silent: set[str] = set()
        self._state = b""

    def begin(self, subscription: Subscription) -> None:
        """Open the intervals of all topics, from the moment the subscription stands."""
        self._subscription = subscription
        for topic in subscription.topics:
            self._ledger.open(topic, subscription.subscribed_at_us)
        self.hold([])

    def restore(self, coverage_state: bytes | None) -> None:
        """Go on from the intervals that a killed run left open in the journal.

        The intervals of the topics go on with the messages left in its ring. The interval of `mempool` ends:
        our copy of the mempool was lost with the process.
        """
        rows = self._ledger.restore(coverage_state)
        self.hold(rows + self._ledger.close("mempool", "killed", NO_CLEAN_STOP))

    def take_late(self, items: Iterable[Message | Notice]) -> list[Message]:
        """Count what a killed run had received and not journalled; returns the messages among it."""
        items = list(items)
        self.hold(self._ledger.continue_with(items))
        done_ns = int(self._journal.states.get(MALFORMED_STATE + self._origin[1], b"0"))
        for item in items:
            if type(item) is Notice and item.reason == "malformed" and item.received_ns > done_ns:
                self._reject_malformed(item)
        return [item for item in items if type(item) is Message]

    def ask_on_time(self) -> None:
        """Let the watchdog look at the node when it is time."""
        self._watchdog.ask_on_time()

    def seal(self) -> None:
        """Give out coverage rows for all that was observed so far and whose rows are committed."""
        self._give_out(self._ledger.seal(self._batches.first_uncommitted))

    def close(self, reason: str, detail: str | None = None) -> None:
        """Close every interval; a row is given out when all that it covers is committed, by any run."""
        self.hold(self._ledger.close_all(reason, detail))

    def end(self, reason: str, detail: str | None = None) -> None:
        """Close every interval and give out all coverage rows: the session is over."""
        self._ledger.hold_back(self._ledger.close_all(reason, detail))
        self._give_out(self._ledger.release_committed({}))

    def drop_states(self) -> None:
        """Remove the session's states from the journal: the next run has nothing more to close."""
        for state in (COVERAGE_STATE, MALFORMED_STATE):
            self._journal.set_state(state + self._origin[1], None)

    def take(self, items: list[Any]) -> list[Any]:
        """Count the items of a turn, and open or close intervals; returns the items for the pipeline.

        When the node restarted, these are the items before the restart and every answer. The ledger's state
        goes to the journal together with the messages that it counts.
        """
        rows: list[CoverageRow] = []
        self._give_out(self._ledger.release_committed(self._batches.first_uncommitted))
        step = self._steps.step()
        for position, item in enumerate(items):
            if type(item) is Message:
                if step is not None and step.is_before(item.received_ns):
                    rows += self._close_for_step(step)
                    step = None
                self._ledger.count(item.topic, item.sequence, item.received_ns // 1000)
            elif type(item) is Notice and item.reason == "node_restart":
                self.restarted = item.detail
                items = items[:position] + [
                    later for later in items[position:] if type(later) is FinishedRequest
                ]
                break
            elif type(item) is Notice:
                rows += self._take_notice(item)
        if step is not None:
            rows += self._close_for_step(step)
        for topic in self._to_open:
            self._ledger.open(topic, wall_us())
        self._to_open = []
        messages = [item for item in items if type(item) is Message]
        self._watchdog.count(messages)
        self._silent.difference_update({message.topic for message in messages})
        self.hold(rows)
        return items

    def hold(self, rows: Sequence[CoverageRow]) -> None:
        """Hold closed intervals until everything they cover is committed, and journal the ledger's state."""
        self._ledger.hold_back(rows)
        self._give_out([])

    # --- what the watchdog asks and finds

    def our_state(self) -> OurState:
        """Return our tip and the size of our mempool, for the watchdog's comparison."""
        return self._pipeline.our_state

    def prove(self, until_us: int) -> None:
        """Extend the open intervals to a moment until which the watchdog has proven them complete."""
        for topic in ("sequence", "mempool"):
            self._ledger.extend_until(topic, until_us)

    def act_on(self, finding: Finding) -> None:
        """Close the interval of a silent or broken topic, renew its connection, and have the gap filled."""
        node, _ = self._origin
        log.error("watchdog.found", node=node, **finding._asdict())
        notice = Notice(finding.reason, finding.topic, time.time_ns(), finding.detail)
        self.hold(self._close(notice))
        self._watchdog.forget()
        if finding.reason == "silent":
            self._silent.add(finding.topic)
            if not finding.is_gone and self._subscription is not None:
                self._subscription.reconnect([finding.topic])
        else:
            self._ledger.open(finding.topic, wall_us())
        self._pipeline.notice(notice)

    # --- what ends and begins an interval

    def _close_for_step(self, step: Step) -> list[CoverageRow]:
        """Close every interval because the wall clock was set: later stamps do not continue the earlier."""
        node, _ = self._origin
        detail = f"the wall clock was set by {step.by_us / 1e6:+.3f} s"
        log.error("clock.stepped", node=node, detail=detail, advice="let a time daemon slew the clock")
        self._to_open = [topic for topic in self._ledger.topics if topic != "mempool"]
        for topic in self._to_open:
            self._metrics.lost(node, topic, "clock_step")
        self._watchdog.forget()
        self._pipeline.clock_stepped(step.by_us)
        self._pipeline.notice(Notice("clock_step", "sequence", time.time_ns(), detail))
        return self._ledger.close_all("clock_step", detail)

    def _take_notice(self, notice: Notice) -> list[CoverageRow]:
        """Close the interval of a topic whose stream broke, or open it when the stream is back."""
        node, _ = self._origin
        if notice.reason == "failed":
            raise CollectorError(f"receiving from {node} failed: {notice.detail}")
        if notice.reason == "malformed":
            self._reject_malformed(notice)
        if notice.topic is None:
            return []
        self._watchdog.forget()
        if notice.reason == "connected":
            log.info("zmq.connected", node=node, topic=notice.topic, endpoint=notice.detail)
            if notice.topic not in self._silent:
                self._ledger.open(notice.topic, notice.received_ns // 1000)
            return []
        return self._close(notice)

    def _reject_malformed(self, notice: Notice) -> None:
        """Make the `rejects` row of bytes that are no message, and journal that it is made."""
        row = reject_row(self._origin, "zmq", notice.received_ns // 1000, notice.detail, notice.body)
        self._journal.append("rejects", [row])
        self._journal.set_state(MALFORMED_STATE + self._origin[1], str(notice.received_ns).encode())
        self._metrics.wrote({"rejects": 1})

    def _close(self, notice: Notice) -> list[CoverageRow]:
        """Close a topic's interval; none when it is closed already, because the same gap still lasts."""
        node, _ = self._origin
        assert notice.topic is not None  # noqa: S101 - the callers have checked it
        rows = self._ledger.close(notice.topic, notice.reason, notice.detail)
        if rows:
            log.warning("zmq.lost", node=node, topic=notice.topic, reason=notice.reason, detail=notice.detail)
            self._metrics.lost(node, notice.topic, notice.reason)
        return rows

    def _give_out(self, rows: Sequence[CoverageRow]) -> None:
        """Journal coverage rows, and the ledger's state when it has changed, with the next flush."""
        if rows:
            self._journal.append("coverage", rows)
        state = self._ledger.state()
        if state != self._state:
            self._state = state
            self._journal.set_state(COVERAGE_STATE + self._origin[1], state)
