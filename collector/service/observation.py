"""What a session really observed: the account of it, and what ends an interval.

Losses in the stream, steps of the wall clock and findings of the watchdog all end here: each closes a row of
`coverage` with its reason, is logged and counted, and reaches the pipeline in its place among the messages.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog

from collector.blocks.tracker import reject_row
from collector.clock import Step, StepDetector, wall_us
from collector.dataset.schema import ZMQ_TOPICS
from collector.errors import CollectorError
from collector.journal.batches import Batches
from collector.journal.coverage_ledger import COVERAGE_STATE, NO_CLEAN_STOP, CoverageLedger
from collector.journal.journal import Journal
from collector.monitor.metrics import Metrics
from collector.node.request_threads import FinishedRequest, NodeRequests
from collector.receive.records import Message, Notice
from collector.service.pipeline import Pipeline
from collector.service.watchdog import Finding, Ours, WatchdogTimer

Row = dict[str, Any]
MALFORMED_STATE: Final = "malformed/"  # + session: stamp of the last one that has its row
log = structlog.get_logger(__name__)


class Observation:
    """The account of one session. `renew` is called with a topic whose connection is to be made anew."""

    def __init__(
        self,
        ledger: CoverageLedger,
        pipeline: Pipeline,
        *,
        journal: Journal,
        batches: Batches,
        lanes: NodeRequests,
        metrics: Metrics,
        steps: StepDetector,
        watchdog_interval_s: float,
        renew: Callable[[str], None],
    ) -> None:
        self.restarted = ""  # what showed that the node is another process now
        self._ledger = ledger
        self._pipeline = pipeline
        self._origin = pipeline.origin
        self._journal = journal
        self._batches = batches
        self._metrics = metrics
        self._steps = steps
        self._renew = renew
        self._watchdog = WatchdogTimer(
            self._origin[0],
            ZMQ_TOPICS,
            lanes=lanes,
            interval_s=watchdog_interval_s,
            ours=self._ours,
            act=self._act,
            proven=self._proven,
        )
        self._to_open: list[str] = []  # topics whose interval a step of the clock has ended
        self._silent: set[str] = set()  # topics that a new connection alone does not vouch for
        self._state = b""

    def begin(self, topics: Iterable[str], since_us: int) -> None:
        """Open the intervals of topics whose subscription has stood since a moment."""
        for topic in topics:
            self._ledger.open(topic, since_us)
        self.keep([])

    def adopt(self, claims: bytes | None) -> None:
        """Take over what a killed run claims, to be given out as the rows of its messages are committed.

        Its intervals go on with what is left in its ring; of the mempool there is no copy any more.
        """
        rows = self._ledger.restore(claims)
        self.keep(rows + self._ledger.close("mempool", "killed", NO_CLEAN_STOP))

    def resume(self, items: Iterable[Message | Notice]) -> list[Message]:
        """Keep account of what a killed run had received and not journalled; returns the messages."""
        items = list(items)
        self.keep(self._ledger.continue_with(items))
        done_ns = int(self._journal.states.get(MALFORMED_STATE + self._origin[1], b"0"))
        for item in items:
            if type(item) is Notice and item.reason == "malformed" and item.received_ns > done_ns:
                self._keep_malformed(item)
        return [item for item in items if type(item) is Message]

    def ask_on_time(self) -> None:
        """Have the node looked at when it is time."""
        self._watchdog.ask_on_time()

    def seal(self) -> None:
        """Make rows of what was observed so far and has its rows committed."""
        self._give_out(self._ledger.seal(self._batches.first_uncommitted))

    def end(self, reason: str, detail: str | None = None) -> None:
        """Make rows of everything: the session is over."""
        self._ledger.hold_back(self._ledger.close_all(reason, detail))
        self._give_out(self._ledger.release_committed({}))

    def forget(self) -> None:
        """Drop what the journal keeps for a next run, which has nothing more to close."""
        for state in (COVERAGE_STATE, MALFORMED_STATE):
            self._journal.set_state(state + self._origin[1], None)

    def account(self, items: list[Any]) -> list[Any]:
        """Keep account of a turn; returns its items up to a restart of the node, but answers to the last.

        The ledger's state goes to the journal with the messages it counts.
        """
        rows: list[Row] = []
        self._give_out(self._ledger.release_committed(self._batches.first_uncommitted))
        step = self._steps.step()
        for position, item in enumerate(items):
            if type(item) is Message:
                if step is not None and step.is_before(item.received_ns):
                    rows += self._stepped(step)
                    step = None
                self._ledger.count(item.topic, item.sequence, item.received_ns // 1000)
            elif type(item) is Notice and item.reason == "node_restart":
                self.restarted = item.detail
                items = items[:position] + [
                    later for later in items[position:] if type(later) is FinishedRequest
                ]
                break
            elif type(item) is Notice:
                rows += self._note(item)
        if step is not None:
            rows += self._stepped(step)
        for topic in self._to_open:
            self._ledger.open(topic, wall_us())
        self._to_open = []
        messages = [item for item in items if type(item) is Message]
        self._watchdog.heard(messages)
        self._silent.difference_update({message.topic for message in messages})
        self.keep(rows)
        return items

    def _stepped(self, step: Step) -> list[Row]:
        """Close everything where the wall clock was set: its stamps do not go on from those before."""
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

    def _note(self, notice: Notice) -> list[Row]:
        """Close or open the interval of a topic whose stream was broken or came back."""
        node, _ = self._origin
        if notice.reason == "failed":
            raise CollectorError(f"receiving from {node} failed: {notice.detail}")
        at_us = notice.received_ns // 1000
        if notice.reason == "malformed":
            self._keep_malformed(notice)
        if notice.topic is None:
            return []
        self._watchdog.forget()
        if notice.reason == "connected":
            log.info("zmq.connected", node=node, topic=notice.topic, endpoint=notice.detail)
            if notice.topic not in self._silent:
                self._ledger.open(notice.topic, at_us)
            return []
        return self._lost(notice)

    def _keep_malformed(self, notice: Notice) -> None:
        """Make the row of what is no message of a node; the next flush says with it that it is made."""
        row = reject_row(self._origin, "zmq", notice.received_ns // 1000, notice.detail, notice.body)
        self._journal.append("rejects", [row])
        self._journal.set_state(MALFORMED_STATE + self._origin[1], str(notice.received_ns).encode())
        self._metrics.wrote({"rejects": 1})

    def _lost(self, notice: Notice) -> list[Row]:
        """Close the interval of a topic; one that is closed already is the same hole still."""
        node, _ = self._origin
        assert notice.topic is not None  # noqa: S101 - the callers have looked
        rows = self._ledger.close(notice.topic, notice.reason, notice.detail)
        if rows:
            log.warning("zmq.lost", node=node, topic=notice.topic, reason=notice.reason, detail=notice.detail)
            self._metrics.lost(node, notice.topic, notice.reason)
        return rows

    def _ours(self) -> Ours:
        is_settled = self._pipeline.sync.in_step and not self._pipeline.n_undecided
        n_mempool = len(self._pipeline.sync.txids) if is_settled else None
        return Ours(self._pipeline.blocks.tip_hash, n_mempool)

    def _act(self, finding: Finding) -> None:
        """Give up a topic that the watchdog found silent or with a hole, and begin it anew."""
        node, _ = self._origin
        log.error("watchdog.found", node=node, **finding._asdict())
        notice = Notice(finding.reason, finding.topic, time.time_ns(), finding.detail)
        self.keep(self._lost(notice))
        self._watchdog.forget()
        if finding.reason == "silent":
            self._silent.add(finding.topic)
            if not finding.is_gone:
                self._renew(finding.topic)
        else:
            self._ledger.open(finding.topic, wall_us())
        self._pipeline.notice(notice)

    def _proven(self, until_us: int) -> None:
        for topic in ("sequence", "mempool"):
            self._ledger.extend_until(topic, until_us)

    def keep(self, rows: Sequence[Row]) -> None:
        """Hand rows of `coverage` and what is still open to the next flush, which writes both or neither.

        The rows go with the state until what they vouch for is committed.
        """
        self._ledger.hold_back(rows)
        self._give_out([])

    def _give_out(self, rows: Sequence[Row]) -> None:
        if rows:
            self._journal.append("coverage", rows)
        state = self._ledger.state()
        if state != self._state:
            self._state = state
            self._journal.set_state(COVERAGE_STATE + self._origin[1], state)
