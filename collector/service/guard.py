"""Look at the node on a timer and act on what the watchdog finds: once, and then ever more seldom."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import structlog

from collector.errors import NodeError
from collector.node.request_threads import Lanes
from collector.receive.records import Message
from collector.service.questions import ask_look
from collector.service.watchdog import Finding, Heard, Look, Ours, Watchdog

LONGEST_PAUSE_S: Final = 600.0
log = structlog.get_logger(__name__)


class Guard:
    """The watchdog of one session.

    `ours` tells what we hold; `act` is called with a finding that is to be acted upon, `proven` with a moment
    (wall clock, microseconds) until which the topic `sequence` is known to be whole.
    """

    def __init__(
        self,
        node: str,
        topics: Iterable[str],
        *,
        lanes: Lanes,
        interval_s: float,
        ours: Callable[[], Ours],
        act: Callable[[Finding], None],
        proven: Callable[[int], None],
    ) -> None:
        self._node = node
        self._topics = frozenset(topics)
        self._lanes = lanes
        self._interval_s = interval_s
        self._ours = ours
        self._act = act
        self._proven = proven
        self._watchdog = Watchdog(self._topics)
        self._heard = Heard()
        self._is_looking = False
        self._due_s = time.monotonic() + interval_s
        self._n_looks_to_ignore = 0
        self._pause_s: dict[str, float] = {}  # by topic with a finding: until the next act
        self._act_due_s: dict[str, float] = {}

    def heard(self, messages: Iterable[Message]) -> None:
        """Count messages."""
        self._heard.take(messages)

    def forget(self) -> None:
        """Begin anew after a break: what was heard before says nothing of the stream as it is now."""
        self._watchdog.forget()
        self._n_looks_to_ignore = int(self._is_looking)

    def ask_on_time(self) -> None:
        """Take a look when it is time for one."""
        now_s = time.monotonic()
        if now_s >= self._due_s and not self._is_looking:
            self._due_s = now_s + self._interval_s
            self._is_looking = True
            self._lanes.state.ask(ask_look, partial(self._on_look, self._heard.copy()), self._no_look)

    def _on_look(self, asked: Heard, look: Look) -> None:
        self._is_looking = False
        if self._n_looks_to_ignore:
            self._n_looks_to_ignore = 0
            return
        findings = self._watchdog.looked(look, asked, self._heard.copy(), self._ours())
        for topic in self._topics.difference(finding.topic for finding in findings):
            if self._heard.by_topic.get(topic, 0) > asked.by_topic.get(topic, 0):
                self._pause_s.pop(topic, None)
        if self._watchdog.proven_us:
            self._proven(self._watchdog.proven_us)
        for finding in findings:
            self._act_in_turn(finding)

    def _no_look(self, error: NodeError) -> None:
        self._is_looking = False
        log.warning("watchdog.refused", node=self._node, reason=str(error))

    def _act_in_turn(self, finding: Finding) -> None:
        """Act at once the first time, then after pauses that double."""
        now_s = time.monotonic()
        pause_s = self._pause_s.get(finding.topic)
        if pause_s is not None and now_s < self._act_due_s[finding.topic]:
            return
        pause_s = self._interval_s if pause_s is None else min(2 * pause_s, LONGEST_PAUSE_S)
        self._pause_s[finding.topic] = pause_s
        self._act_due_s[finding.topic] = now_s + pause_s
        self._act(finding)
