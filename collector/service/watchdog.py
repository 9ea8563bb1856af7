"""Compare what a node says about itself with what it publishes, and find the topics that fail silently.

A TCP connection can be half open. A notifier whose send failed stays silent until the node restarts. When the
last messages before a pause are lost, no later counter shows it. The stream itself shows none of this, so the
node is asked by RPC on a timer. Each set of answers is a *look*: every change between two looks must arrive
as a message before the next look.

`Watchdog` has no side effects: it takes looks and message counts and returns findings. `WatchdogTimer` asks
the node and gives the findings to the session's observation.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from collector.backoff import Backoff
from collector.clock import monotonic_us, wall_us
from collector.errors import NodeError
from collector.node.answers import Fields, read_list
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient
from collector.receive.records import Message

GONE: Final = "the node has given up the notifier; only its restart brings it back"
LETTER_AT: Final = 32  # position of the event's letter in a `sequence` message, after the hash
LONGEST_PAUSE_S: Final = 600.0
log = structlog.get_logger(__name__)


class Look(NamedTuple):
    """Holds a node's answers at one moment: its tip, its mempool's size, the topics that it publishes.

    `mempool` is the number of transactions and their virtual size in vB, both from getmempoolinfo. Times are
    in microseconds, one on the monotonic clock and one on the wall clock.
    """

    asked_us: int  # monotonic clock
    asked_wall_us: int
    tip_hash: bytes
    tip_height: int
    is_downloading: bool  # during the initial download the node announces no tips
    mempool: tuple[int, int]  # transactions, virtual size
    topics: frozenset[str]  # that it publishes


class OurState(NamedTuple):
    """Holds our own tip and mempool size at the moment when the node's answers arrive."""

    tip_hash: bytes | None
    n_mempool: int | None  # None while our copy of the mempool is not in step


class TopicProblem(NamedTuple):
    """Describes what is wrong with one ZMQ topic: silent or with a gap, and why we think so."""

    topic: str
    reason: str  # silent: nothing arrives; gap: messages were lost, and later ones arrive
    detail: str
    is_gone: bool = False  # the node has given up the notifier: a new connection would not help


@dataclass(slots=True)
class MessageCounts:
    """Counts a session's messages by topic, and the events for which `rawtx` must bring a transaction."""

    by_topic: dict[str, int] = field(default_factory=dict)
    n_with_rawtx: int = 0  # events A, C and D

    def add(self, messages: Iterable[Message]) -> None:
        """Add ZMQ messages to these counts, by topic."""
        for message in messages:
            self.by_topic[message.topic] = self.by_topic.get(message.topic, 0) + 1
            if message.topic == "sequence" and message.body[LETTER_AT : LETTER_AT + 1] != b"R":
                self.n_with_rawtx += 1

    def copy(self) -> "MessageCounts":
        """Return a copy of these message counts, which later messages do not change."""
        return MessageCounts(dict(self.by_topic), self.n_with_rawtx)


class _PastLook(NamedTuple):
    look: Look
    counts: MessageCounts  # when the look was asked for
    ours: OurState  # when it was answered


class Watchdog:
    """Compares successive answers ("looks") of one node with its messages, to find topics that fail silently.

    A look is the node's tip, mempool size and topics at one moment; `topics` are the names of the subscribed
    topics.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self.proven_us = 0  # wall clock: `sequence` is known to be complete until then; 0: nothing is known
        self._topics = frozenset(topics)
        self._past: list[_PastLook] = []  # the last two, older first

    def forget(self) -> None:
        """Drop the node's earlier answers after a break of the stream: their counts say nothing now."""
        self._past.clear()
        self.proven_us = 0

    def compare(
        self, look: Look, asked: MessageCounts, now: MessageCounts, ours: OurState
    ) -> list[TopicProblem]:
        """Compare a new look (the node's answers) with the two looks before; return the topics' problems.

        A topic has at most one. `asked` and `now` are the message counts when the look was
        asked for and when it was answered; `ours` is our own tip and mempool size when it was answered.
        """
        gone = sorted(self._topics - look.topics)
        findings = [TopicProblem(topic, "silent", GONE, is_gone=True) for topic in gone]
        self.proven_us = 0
        if len(self._past) > 1:
            older, newer = self._past
            findings += self._silent_topics(older, newer, look, now)
            findings += self._lost_tail(newer, look, now, ours)
        self._past = [*self._past[-1:], _PastLook(look, asked, ours)]
        return list({finding.topic: finding for finding in reversed(findings)}.values())

    def _silent_topics(
        self, older: _PastLook, newer: _PastLook, newest: Look, now: MessageCounts
    ) -> list[TopicProblem]:
        """Return a problem for each topic that brought no message although the node's state changed."""
        before, after = older.look, newer.look
        changed = before.mempool != after.mempool or before.tip_hash != after.tip_hash
        has_new_rawtx = newer.counts.by_topic.get("rawtx", 0) > older.counts.by_topic.get("rawtx", 0)
        is_new_tip = after.tip_height > before.tip_height and not after.is_downloading
        expected = {
            "sequence": changed or has_new_rawtx,
            "rawtx": newer.counts.n_with_rawtx > older.counts.n_with_rawtx,
            "rawblock": is_new_tip,
        }
        wait_s = (newest.asked_us - after.asked_us) / 1e6
        return [
            TopicProblem(
                topic, "silent", f"no message came, though the node changed more than {wait_s:.0f} s ago"
            )
            for topic, is_expected in expected.items()
            if is_expected and now.by_topic.get(topic, 0) == older.counts.by_topic.get(topic, 0)
        ]

    def _lost_tail(
        self, previous: _PastLook, look: Look, now: MessageCounts, ours: OurState
    ) -> list[TopicProblem]:
        """Return a problem (gap) if our tip or mempool size is not the node's though neither is changing.

        If they agree, `proven_us` becomes the time of this look (the node's answers). Nothing is compared if
        either state has changed since the previous look, or if our copy of the mempool is not in step.
        """
        is_quiet = previous.look.mempool == look.mempool and previous.look.tip_hash == look.tip_hash
        is_same = previous.ours == ours and previous.counts == now
        if not is_quiet or not is_same or ours.n_mempool is None:
            return []
        if ours.tip_hash is not None and ours.tip_hash != look.tip_hash:
            return [
                TopicProblem("sequence", "gap", "the node's tip is not ours, and no message announced it")
            ]
        if ours.n_mempool != look.mempool[0]:
            detail = f"the node's mempool holds {look.mempool[0]} transactions, our copy {ours.n_mempool}"
            return [TopicProblem("sequence", "gap", detail)]
        self.proven_us = look.asked_wall_us
        return []


class Observer(Protocol):
    """Owns the stream of messages that the watchdog's timer checks, and repairs the stream."""

    def our_state(self) -> OurState:
        """Return our tip and the size of our copy of the mempool."""

    def act_on(self, finding: TopicProblem) -> None:
        """End the coverage interval of the topic in `finding`, and do what brings its messages back."""

    def prove(self, until_us: int) -> None:
        """Record that `sequence` was complete until `until_us` (wall clock, microseconds)."""


class WatchdogTimer:
    """Asks one node for its state every `interval_s` seconds and reports to the observer what is wrong.

    A finding that repeats is acted on after pauses that double, so that a topic which stays silent does not
    cause a new connection every time.
    """

    def __init__(
        self,
        node: str,
        topics: Iterable[str],
        *,
        requests: NodeRequests,
        interval_s: float,
        observer: Observer,
    ) -> None:
        self._node = node
        self._topics = frozenset(topics)
        self._requests = requests
        self._interval_s = interval_s
        self._observer = observer
        self._watchdog = Watchdog(self._topics)
        self._counts = MessageCounts()
        self._is_looking = False
        self._due_s = time.monotonic() + interval_s
        self._ignores_answer = False  # of the look that is on its way: the stream broke since it was asked
        self._pauses: dict[str, Backoff] = {}  # between two acts, by topic with a finding
        self._act_due_s: dict[str, float] = {}

    def count(self, messages: Iterable[Message]) -> None:
        """Count messages that arrived, for the comparison with the node's next answers."""
        self._counts.add(messages)

    def forget(self) -> None:
        """Drop the node's earlier answers after a break of the stream, and ignore an answer under way."""
        self._watchdog.forget()
        self._ignores_answer = self._is_looking

    def ask_on_time(self) -> None:
        """Ask the node for its tip, mempool size and topics if due, and if no such request is under way."""
        now_s = time.monotonic()
        if now_s >= self._due_s and not self._is_looking:
            self._due_s = now_s + self._interval_s
            self._is_looking = True
            self._requests.status.ask(ask_look, partial(self._on_look, self._counts.copy()), self._no_look)

    def _on_look(self, asked: MessageCounts, look: Look) -> None:
        """Compare the node's answers with the messages that arrived, and act on each topic's problem.

        `asked` are the message counts when the node was asked.
        """
        self._is_looking = False
        if self._ignores_answer:
            self._ignores_answer = False
            return
        findings = self._watchdog.compare(look, asked, self._counts.copy(), self._observer.our_state())
        for topic in self._topics.difference(finding.topic for finding in findings):
            if self._counts.by_topic.get(topic, 0) > asked.by_topic.get(topic, 0):
                self._pauses.pop(topic, None)
        if self._watchdog.proven_us:
            self._observer.prove(self._watchdog.proven_us)
        for finding in findings:
            self._act_when_due(finding)

    def _no_look(self, error: NodeError) -> None:
        self._is_looking = False
        log.warning("watchdog.refused", node=self._node, reason=str(error))

    def _act_when_due(self, finding: TopicProblem) -> None:
        """Have a topic's first problem acted on at once, and repeated ones after pauses that double."""
        now_s, topic = time.monotonic(), finding.topic
        if topic in self._pauses and now_s < self._act_due_s[topic]:
            return
        pauses = self._pauses.setdefault(topic, Backoff(self._interval_s, LONGEST_PAUSE_S))
        self._act_due_s[topic] = now_s + pauses.next_s()
        self._observer.act_on(finding)


def ask_look(client: RpcClient) -> Look:
    """Ask a node for its tip, the size of its mempool and the topics it publishes, and return the answers.

    Raises NodeError for an answer of a wrong form.
    """
    asked_us, asked_wall_us = monotonic_us(), wall_us()
    chain = Fields("getblockchaininfo", client.call("getblockchaininfo"))
    mempool = Fields("getmempoolinfo", client.call("getmempoolinfo"))
    notifiers = read_list("getzmqnotifications", client.call("getzmqnotifications"))
    types = [Fields("getzmqnotifications", each).get("type") for each in notifiers]
    return Look(
        asked_us=asked_us,
        asked_wall_us=asked_wall_us,
        tip_hash=chain.hash("bestblockhash"),
        tip_height=chain.integer("blocks"),
        is_downloading=chain.boolean("initialblockdownload"),
        mempool=(mempool.integer("size"), mempool.integer("bytes")),
        topics=frozenset(str(each).removeprefix("pub") for each in types),
    )
