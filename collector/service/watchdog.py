"""Compare what a node says of itself with what it publishes: silence where there was something to say.

A TCP connection can be half open, a notifier whose send failed is silent until the node restarts, and what
a full queue swallowed last leaves no counter to compare with. None of it shows in the stream itself. So the
node is looked at on a timer. What changed between two looks must have been heard by the next, an interval on.

A pure module: looks and counts go in, findings come out.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import structlog

from collector.clock import monotonic_us, wall_us
from collector.dataset.schema import hash_bytes
from collector.errors import NodeError
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient
from collector.receive.records import Message

GONE: Final = "the node has given up the notifier; only its restart brings it back"
LETTER_AT: Final = 32  # in the body of an event, behind its hash
LONGEST_PAUSE_S: Final = 600.0
log = structlog.get_logger(__name__)


class Look(NamedTuple):
    """What the node said of itself."""

    asked_us: int  # monotonic clock
    asked_wall_us: int
    tip_hash: bytes
    tip_height: int
    is_downloading: bool  # then it announces no tips
    mempool: tuple[int, int]  # transactions, virtual size
    topics: frozenset[str]  # that it publishes


class Ours(NamedTuple):
    """What we hold, as of the answer to a look."""

    tip_hash: bytes | None
    n_mempool: int | None  # None while we are out of step


class Finding(NamedTuple):
    """Something is wrong with a topic."""

    topic: str
    reason: str  # silent: it says nothing; gap: something was lost and it goes on
    detail: str
    is_gone: bool = False  # the node has given up the notifier: a new connection would not help


@dataclass(slots=True)
class Heard:
    """Messages counted since the session began: by topic, and events that `rawtx` must bring a body for."""

    by_topic: dict[str, int] = field(default_factory=dict)
    n_with_bodies: int = 0  # A, C and D

    def take(self, messages: Iterable[Message]) -> None:
        """Count messages."""
        for message in messages:
            self.by_topic[message.topic] = self.by_topic.get(message.topic, 0) + 1
            if message.topic == "sequence" and message.body[LETTER_AT : LETTER_AT + 1] != b"R":
                self.n_with_bodies += 1

    def copy(self) -> "Heard":
        """Return the counts as they are now."""
        return Heard(dict(self.by_topic), self.n_with_bodies)


class _Past(NamedTuple):
    look: Look
    heard: Heard  # when it was asked for
    ours: Ours  # when it was answered


class Watchdog:
    """One session's comparison. `topics` are those that we subscribe to."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.proven_us = 0  # wall clock: until then `sequence` is known to be whole; 0: nothing is known
        self._topics = frozenset(topics)
        self._past: list[_Past] = []  # the last two looks, older first

    def forget(self) -> None:
        """Begin anew: the stream was broken, and what was heard before says nothing of it."""
        self._past.clear()
        self.proven_us = 0

    def looked(self, look: Look, asked: Heard, now: Heard, ours: Ours) -> list[Finding]:
        """Take a look, what was heard until it was asked for and until now, and what we hold."""
        gone = sorted(self._topics - look.topics)
        findings = [Finding(topic, "silent", GONE, is_gone=True) for topic in gone]
        self.proven_us = 0
        if len(self._past) > 1:
            older, newer = self._past
            findings += self._silent(older, newer, look, now)
            findings += self._lost_tail(newer, look, now, ours)
        self._past = [*self._past[-1:], _Past(look, asked, ours)]
        return list({finding.topic: finding for finding in reversed(findings)}.values())

    def _silent(self, older: _Past, newer: _Past, newest: Look, now: Heard) -> list[Finding]:
        """Find the topics that said nothing, from the older look until now, of a change between the two."""
        before, after = older.look, newer.look
        changed = before.mempool != after.mempool or before.tip_hash != after.tip_hash
        heard_bodies = newer.heard.by_topic.get("rawtx", 0) > older.heard.by_topic.get("rawtx", 0)
        is_new_tip = after.tip_height > before.tip_height and not after.is_downloading
        expected = {
            "sequence": changed or heard_bodies,
            "rawtx": newer.heard.n_with_bodies > older.heard.n_with_bodies,
            "rawblock": is_new_tip,
        }
        wait_s = (newest.asked_us - after.asked_us) / 1e6
        return [
            Finding(topic, "silent", f"nothing came, though the node changed more than {wait_s:.0f} s ago")
            for topic, is_expected in expected.items()
            if is_expected and now.by_topic.get(topic, 0) == older.heard.by_topic.get(topic, 0)
        ]

    def _lost_tail(self, newer: _Past, look: Look, now: Heard, ours: Ours) -> list[Finding]:
        """See whether we hold what the node holds, when neither has changed since the last look."""
        is_quiet = newer.look.mempool == look.mempool and newer.look.tip_hash == look.tip_hash
        is_same = newer.ours == ours and newer.heard == now
        if not is_quiet or not is_same or ours.n_mempool is None:
            return []
        if ours.tip_hash is not None and ours.tip_hash != look.tip_hash:
            return [Finding("sequence", "gap", "the node's tip is another than ours, and nothing said so")]
        if ours.n_mempool != look.mempool[0]:
            detail = f"the node's mempool holds {look.mempool[0]} transactions, our copy {ours.n_mempool}"
            return [Finding("sequence", "gap", detail)]
        self.proven_us = look.asked_wall_us
        return []


def ask_look(client: RpcClient) -> Look:
    """Take a look at the node for the watchdog."""
    asked_us, asked_wall_us = monotonic_us(), wall_us()
    chain = client.call("getblockchaininfo")
    mempool = client.call("getmempoolinfo")
    notifiers = client.call("getzmqnotifications")
    return Look(
        asked_us=asked_us,
        asked_wall_us=asked_wall_us,
        tip_hash=hash_bytes(chain["bestblockhash"]),
        tip_height=chain["blocks"],
        is_downloading=chain["initialblockdownload"],
        mempool=(mempool["size"], mempool["bytes"]),
        topics=frozenset(str(notifier["type"]).removeprefix("pub") for notifier in notifiers),
    )


class WatchdogTimer:
    """The watchdog of one session.

    `ours` tells what we hold; `act` is called with a finding that is to be acted upon, `proven` with a moment
    (wall clock, microseconds) until which the topic `sequence` is known to be whole.
    """

    def __init__(
        self,
        node: str,
        topics: Iterable[str],
        *,
        lanes: NodeRequests,
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
            self._lanes.status.ask(ask_look, partial(self._on_look, self._heard.copy()), self._no_look)

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
