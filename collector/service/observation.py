"""Keep the coverage of one session: start an interval when a topic's stream works, end it when it breaks.

Losses in the stream, steps of the wall clock and findings of the watchdog each end an interval. An ended
interval becomes a row of the table `coverage` with its reason; the loss is logged and counted, and the
pipeline learns of it at its place among the messages.
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
from collector.journal.coverage_ledger import COVERAGE_STATE, NO_CLEAN_STOP, CoverageLedger, broke_at_us
from collector.journal.journal import Journal
from collector.monitor.metrics import Metrics
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.receive.records import Message, Notice
from collector.service.pipeline import Pipeline
from collector.service.watchdog import OurState, TopicProblem, WatchdogTimer

MALFORMED_STATE: Final = "malformed/"  # + session: receive time (ns) of the newest one that has its row
log = structlog.get_logger(__name__)


class Subscription(Protocol):
    """Defines what must be known of a source of messages to record its coverage."""

    @property
    def topics(self) -> Sequence[str]:
        """Return the names of the subscribed topics."""

    @property
    def subscribed_at_us(self) -> int:
        """Return when the subscription to every topic was in place (wall clock, microseconds since 1970)."""

    def reconnect(self, topics: Collection[str]) -> None:
        """Close the ZMQ connections of these topics and connect again."""


class Observation:
    """Keeps one session's coverage: which spans of each topic were really observed, and why each ended."""

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
        self.restarted = ""  # what showed that the node has restarted; empty while it has not
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
        # Topics found silent: only a message starts their interval again, a new connection alone does not.
        self._silent: set[str] = set()
        self._state = b""

    def begin(self, subscription: Subscription) -> None:
        """Start a coverage interval for each topic, from the moment when the subscription was in place."""
        self._subscription = subscription
        for topic in subscription.topics:
            self._ledger.open(topic, subscription.subscribed_at_us)
        self.hold([])

    def restore(self, coverage_state: bytes | None) -> None:
        """Load the coverage intervals that a killed run had open, from their state in the journal.

        The intervals of the topics continue with the messages left in the killed run's ring. The interval of
        `mempool` ends here, because our copy of the mempool was lost with the process.
        """
        rows = self._ledger.restore(coverage_state)
        self.hold(rows + self._ledger.close("mempool", "killed", NO_CLEAN_STOP))

    def take_late(self, items: Iterable[Message | Notice]) -> list[Message]:
        """Count in coverage what a killed run left in its ring (buffer file); return the messages among it.

        Malformed messages become rows of `rejects`, unless the killed run had already made their rows.
        """
        items = list(items)
        self.hold(self._ledger.continue_with(items))
        done_ns = int(self._journal.states.get(MALFORMED_STATE + self._origin[1], b"0"))
        for item in items:
            if type(item) is Notice and item.reason == "malformed" and item.received_ns > done_ns:
                self._reject_malformed(item)
        return [item for item in items if type(item) is Message]

    def ask_on_time(self) -> None:
        """Ask the node for its tip, mempool size and topics if the watchdog's timer is due.

        The watchdog compares the answers with what we have.
        """
        self._watchdog.ask_on_time()

    def seal(self) -> None:
        """Write coverage rows for what was observed so far, up to the first message with uncommitted rows."""
        self._give_out(self._ledger.seal(self._batches.first_uncommitted))

    def close(self, reason: str, detail: str | None = None) -> None:
        """End every coverage interval for `reason`; their rows are written once all they cover is committed.

        If this run stops before that, the next run writes these rows.
        """
        self.hold(self._ledger.close_all(reason, detail))

    def end(self, reason: str, detail: str | None = None) -> None:
        """End every coverage interval and write all coverage rows at once, because the session is over."""
        self._ledger.hold_back(self._ledger.close_all(reason, detail))
        self._give_out(self._ledger.release_committed({}))

    def drop_states(self) -> None:
        """Remove from the journal this session's states of coverage, which an ended session does not need."""
        for state in (COVERAGE_STATE, MALFORMED_STATE):
            self._journal.set_state(state + self._origin[1], None)

    def take(self, items: list[Any]) -> list[Any]:
        """Count the messages of one turn in coverage, and end or start intervals; return what to process.

        When the node has restarted, only the items before the restart and all
        answers to requests are returned. The ledger's state goes to the journal together with the messages
        that it counts.
        """
        rows: list[CoverageRow] = []
        self._give_out(self._ledger.release_committed(self._batches.first_uncommitted))
        step = self._steps.step()
        for position, item in enumerate(items):
            if type(item) is Message:
                if step is not None and step.is_before(item.received_ns):
                    rows += self._close_for_step(step)
                    step = None
                # A stamp of the clock before a step back may lie ahead; nothing is observed before its time.
                self._ledger.count(item.topic, item.sequence, min(item.received_ns // 1000, wall_us()))
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
            self._ledger.open(topic, wall_us(), is_exact=True)  # an older stamp may be of the clock before
        self._to_open = []
        messages = [item for item in items if type(item) is Message]
        self._watchdog.count(messages)
        self._silent.difference_update({message.topic for message in messages})
        self.hold(rows)
        return items

    def hold(self, rows: Sequence[CoverageRow]) -> None:
        """Hold `coverage` rows back until the rows of all messages that they cover are committed.

        The state of the open intervals goes to the journal.
        """
        self._ledger.hold_back(rows)
        self._give_out([])

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the topics that were found silent and have sent no message since."""
        return tuple(sorted(self._silent))

    # --- what the watchdog calls

    def our_state(self) -> OurState:
        """Return our tip and the size of our copy of the mempool, for the watchdog's comparison."""
        return self._pipeline.our_state

    def prove(self, until_us: int) -> None:
        """Extend the open intervals of `sequence` and `mempool` until `until_us` (wall clock, microseconds).

        The watchdog has proven that nothing was lost until then.
        """
        for topic in ("sequence", "mempool"):
            self._ledger.extend_until(topic, until_us)

    def act_on(self, finding: TopicProblem) -> None:
        """End the coverage interval of a topic that the watchdog found broken; repair what can be repaired.

        A silent topic gets a new connection, unless the node has given up its notifier; the pipeline is given
        a notice of the loss, so that it fetches what is missing.
        """
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

    # --- the end and the start of intervals

    def _close_for_step(self, step: Step) -> list[CoverageRow]:
        """End every coverage interval because the wall clock was set; return the `coverage` rows of them.

        The end of the turn starts a new interval for each topic, because later stamps do not continue the
        earlier ones.
        """
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
        """End a topic's coverage interval if a notice reports a break, or start one if the topic is back.

        Returns the `coverage` rows of ended intervals. Raises CollectorError when receiving has failed
        altogether.
        """
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
        """Write a row of `rejects` for a malformed message, and journal that this row has been made."""
        row = reject_row(self._origin, "zmq", notice.received_ns // 1000, notice.detail, notice.body)
        self._journal.append("rejects", [row])
        self._journal.set_state(MALFORMED_STATE + self._origin[1], str(notice.received_ns).encode())
        self._metrics.wrote({"rejects": 1})

    def _close(self, notice: Notice) -> list[CoverageRow]:
        """End a topic's coverage interval for the break in `notice`; return its `coverage` row in a list.

        The list is empty if the same gap has already ended the interval.
        """
        node, _ = self._origin
        assert notice.topic is not None  # noqa: S101 - the callers have checked it
        rows = self._ledger.close(notice.topic, notice.reason, notice.detail, broke_at_us=broke_at_us(notice))
        if rows:
            log.warning("zmq.lost", node=node, topic=notice.topic, reason=notice.reason, detail=notice.detail)
            self._metrics.lost(node, notice.topic, notice.reason)
        return rows

    def _give_out(self, rows: Sequence[CoverageRow]) -> None:
        """Append coverage rows to the journal, and the state of the open intervals if it has changed.

        Both reach the disk with the next flush.
        """
        if rows:
            self._journal.append("coverage", rows)
        state = self._ledger.state()
        if state != self._state:
            self._state = state
            self._journal.set_state(COVERAGE_STATE + self._origin[1], state)
