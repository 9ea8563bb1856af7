"""Record which time spans were observed: an open interval per topic, and a `coverage` row when it ends.

An interval begins when the subscription is confirmed, or when the stream is whole again after a loss. We
may learn of that moment late, after messages were received. So an older first message or notice moves the
beginning back, and an interval contains its messages. It ends at its last message: only the counter of the
next message, or a check of the node (`extend_until`), can show that nothing was lost after it. A seal ends
an interval before the first message whose rows are not committed, and the next interval begins there. So no
claim has to be withdrawn later.

A `coverage` row claims that the messages of its interval are in the dataset. So the ledger holds a row back
until the rows of those messages are committed.

The journal keeps `state` together with the messages that it counts. So an interval that a kill leaves open
still becomes a row, which ends at the last message in the journal. Where the journal was damaged,
`collector.journal.recovery` works out which claims are still true.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Final

from collector.dataset.rows import CoverageRow
from collector.receive.records import COUNTER_RANGE, Message, Notice

COVERAGE_STATE: Final = "coverage/"  # + session: the name under which the journal keeps a ledger's state
NO_CLEAN_STOP: Final = "the process ended without a clean stop"
LOST_WITH_JOURNAL: Final = "messages were lost with a part of the journal"


@dataclass(slots=True)
class _Interval:
    """Holds a time span in which a topic was observed, and counts the messages in it."""

    from_us: int
    to_us: int
    first_sequence: int | None = None
    last_sequence: int | None = None
    n_messages: int = 0
    before_sequence: int | None = None  # counter of the last message before, when it continues an interval
    is_exact: bool = False  # nothing older moves its beginning: see `begin_by`

    @property
    def newest_sequence(self) -> int | None:
        """Return the counter of the last message in this coverage interval, or else of the message before.

        The result is None when both are unknown.
        """
        return self.before_sequence if self.last_sequence is None else self.last_sequence

    def begin_by(self, at_us: int) -> None:
        """Move this interval's beginning back to `at_us`, unless that is exact or a message is counted."""
        if self.n_messages or self.is_exact or at_us >= self.from_us:
            return
        if self.to_us == self.from_us:  # what was known of the moment of its opening is not proven any more
            self.to_us = at_us
        self.from_us = at_us

    def count(self, sequence: int, received_us: int) -> None:
        """Count a message (its counter and time of receipt); extend this coverage interval to that time."""
        self.begin_by(received_us)
        if self.first_sequence is None:
            self.first_sequence = sequence
        self.last_sequence = sequence
        self.n_messages += 1
        self.to_us = max(self.to_us, received_us)

    def split(self, before: Message | None) -> tuple["_Interval", "_Interval"]:
        """Split this coverage interval at the time just before a message, and return both halves.

        Without a message, or when the interval has not counted it yet, the split is at the interval's end.
        The distance between two counters is the number of messages, because a jump ends an interval; a jump
        of half the range or more counts as the node's restart, and ends the session with its ledger. The
        second half begins after the first: no two messages of a topic are stamped in one microsecond, as each
        is put into the ring before the next is stamped.
        """
        n_later, at_us = 0, self.to_us
        if before is not None and self.last_sequence is not None:
            distance = (self.last_sequence - before.sequence + 1) % COUNTER_RANGE
            if 0 < distance < COUNTER_RANGE // 2:  # else the message is not counted yet
                n_later = min(distance, self.n_messages)  # an earlier interval counted the rest
                at_us = min(max(before.received_ns // 1000, self.from_us), self.to_us)
        if self.n_messages > n_later:  # stamps are cut to microseconds; an interval contains its messages
            at_us = max(at_us, self.from_us + 1)
        done = _Interval(self.from_us, at_us)
        rest = _Interval(at_us, max(at_us, self.to_us), is_exact=True)
        done.before_sequence = self.before_sequence
        done.n_messages, rest.n_messages = self.n_messages - n_later, n_later
        if self.last_sequence is not None and done.n_messages:
            done.first_sequence = self.first_sequence
            done.last_sequence = (self.last_sequence - n_later) % COUNTER_RANGE
        if self.last_sequence is not None and rest.n_messages:
            rest.first_sequence = (self.last_sequence - n_later + 1) % COUNTER_RANGE
            rest.last_sequence = self.last_sequence
        rest.before_sequence = done.newest_sequence
        return done, rest


class CoverageLedger:
    """Records when each topic of a node was observed in one session, and makes `coverage` rows of that.

    A time span in which a topic is observed without a loss is an interval; it is open until it ends.
    """

    def __init__(self, node: str, session: str) -> None:
        self._node = node
        self._session = session
        self._open: dict[str, _Interval] = {}
        self._held: list[CoverageRow] = []  # rows of ended intervals that are held back

    def open(self, topic: str, at_us: int, *, is_exact: bool = False) -> None:
        """Begin a coverage interval of the topic at `at_us` (wall clock), unless one is open.

        A first message that was received before `at_us` moves the beginning back, unless it is exact.
        """
        self._open.setdefault(topic, _Interval(at_us, at_us, is_exact=is_exact))

    def is_open(self, topic: str) -> bool:
        """Return whether the topic has an open coverage interval."""
        return topic in self._open

    def count(self, topic: str, sequence: int, received_us: int) -> None:
        """Count a message in its topic's open coverage interval; it begins an interval when none is open."""
        interval = self._open.get(topic)
        if interval is None:
            interval = self._open[topic] = _Interval(received_us, received_us)
        interval.count(sequence, received_us)

    def extend_until(self, topic: str, until_us: int) -> None:
        """Extend the topic's open coverage interval to `until_us`, because no message was lost until then."""
        interval = self._open.get(topic)
        if interval is not None:
            interval.to_us = max(interval.to_us, until_us)

    def close(
        self, topic: str, reason: str, detail: str | None = None, *, broke_at_us: int | None = None
    ) -> list[CoverageRow]:
        """End the topic's open coverage interval at the last moment until which nothing was lost.

        Returns the interval's `coverage` row in a list, which is empty when no interval is open. An interval
        without a message does not begin later than `broke_at_us`, when the stream broke.
        """
        interval = self._open.pop(topic, None)
        if interval is None:
            return []
        if broke_at_us is not None:
            interval.begin_by(broke_at_us)
        return [self._row(topic, interval, reason, detail)]

    def close_all(self, reason: str, detail: str | None = None) -> list[CoverageRow]:
        """End the open coverage intervals of all topics; return their `coverage` rows."""
        return [row for topic in list(self._open) for row in self.close(topic, reason, detail)]

    def hold_back(self, rows: Iterable[CoverageRow]) -> None:
        """Keep `coverage` rows of ended intervals until `release_committed` or `seal` returns them."""
        self._held += rows

    def release_committed(self, uncommitted: Mapping[str, Message]) -> list[CoverageRow]:
        """Remove and return those held `coverage` rows whose messages all have their own rows committed.

        `uncommitted` has, by topic, the first message whose rows are not committed.
        """
        rows = [row for row in self._held if _is_before(row, uncommitted)]
        self._held = [row for row in self._held if row not in rows]
        return rows

    def seal(self, uncommitted: Mapping[str, Message]) -> list[CoverageRow]:
        """End each interval that has grown, and begin the next one where it ended; return `coverage` rows.

        `uncommitted` has, by topic, the first message whose rows are not committed. That message and those
        after it are counted in the next interval. There is no time between the two intervals.
        """
        rows = self.release_committed(uncommitted) + self._release_committed_parts(uncommitted)
        for topic, interval in list(self._open.items()):
            done, rest = interval.split(uncommitted.get("sequence" if topic == "mempool" else topic))
            if done.to_us > done.from_us:
                rows.append(self._row(topic, done, "sealed", None))
                self._open[topic] = rest
        return rows

    def _release_committed_parts(self, uncommitted: Mapping[str, Message]) -> list[CoverageRow]:
        """Cut the `coverage` rows that wait in memory at the first message that is not yet committed.

        Return the parts before that message; the parts after it go on waiting.
        """
        rows = []
        for at, row in enumerate(self._held):
            topic = row["topic"]
            interval = _Interval(
                row["from_at"], row["to_at"], row["first_sequence"], row["last_sequence"], row["n_messages"]
            )
            done, rest = interval.split(uncommitted.get("sequence" if topic == "mempool" else topic))
            if done.n_messages:
                rows.append(self._row(topic, done, "sealed", None))
                self._held[at] = self._row(topic, rest, row["end_reason"], row["detail"])
        return rows

    @property
    def topics(self) -> list[str]:
        """Return the topics that have an open coverage interval."""
        return list(self._open)

    def state(self) -> bytes:
        """Return the open coverage intervals and the held rows as bytes of JSON, for the journal."""
        return json.dumps(
            {"open": {topic: astuple(each) for topic, each in self._open.items()}, "closed": self._held}
        ).encode()

    def restore(self, state: bytes | None) -> list[CoverageRow]:
        """Set the open coverage intervals to those in bytes that `state` returned.

        Returns the `coverage` rows held back in these bytes.
        """
        found = json.loads(state or b"{}")
        intervals = found.get("open", found)  # older states have nothing else
        self._open = {topic: _Interval(*values) for topic, values in intervals.items()}
        rows: list[CoverageRow] = found.get("closed", [])
        return rows

    def close_after_kill(
        self, state: bytes | None, items: Iterable[Message | Notice] = (), *, is_cut: bool = False
    ) -> list[CoverageRow]:
        """End the coverage intervals that a killed run left open; return their rows and those it held back.

        `state` is the run's last state, and `items` are the messages and notices that it received since, in
        the order of receipt; messages of other sessions are skipped. Where the journal was damaged, the state
        may be missing or older than the items: a jump of a counter then ends an interval. `is_cut` says that
        messages between the state and the items are lost, so that the intervals of the state end there.
        """
        rows = self.restore(state)
        rows += self.close_all("killed", LOST_WITH_JOURNAL) if is_cut else []
        return rows + self.continue_with(items) + self.close_all("killed", NO_CLEAN_STOP)

    def continue_with(self, items: Iterable[Message | Notice]) -> list[CoverageRow]:
        """Count messages that a killed run received after its last state; apply gaps and restarts among them.

        Returns the `coverage` rows of the intervals that end.
        """
        rows = []
        for item in items:
            at_us = item.received_ns // 1000
            if isinstance(item, Message):
                if item.session == self._session:
                    if not self._follows(item):
                        rows += self.close(item.topic, "killed", LOST_WITH_JOURNAL)
                    self.count(item.topic, item.sequence, at_us)
            elif item.topic is not None and item.reason == "connected":
                self.open(item.topic, at_us)
            elif item.topic is not None:
                rows += self.close(item.topic, item.reason, item.detail, broke_at_us=broke_at_us(item))
        return rows

    def _follows(self, message: Message) -> bool:
        """Return whether a message is the next of its topic, or the last counter of the topic is unknown."""
        interval = self._open.get(message.topic)
        if interval is None:
            return True
        last = interval.newest_sequence
        return last is None or message.sequence == (last + 1) % COUNTER_RANGE

    def _row(self, topic: str, interval: _Interval, reason: str, detail: str | None) -> CoverageRow:
        return {
            "node": self._node,
            "session": self._session,
            "topic": topic,
            "from_at": interval.from_us,
            "to_at": interval.to_us,
            "first_sequence": interval.first_sequence,
            "last_sequence": interval.last_sequence,
            "n_messages": interval.n_messages,
            "end_reason": reason,
            "detail": detail,
        }


def broke_at_us(notice: Notice) -> int | None:
    """Return when a stream broke, from a notice of a gap or loss, in microseconds on the wall clock.

    It is None when a jump of the counter shows the break: the next message has the same time.
    """
    is_of_counter = notice.reason in ("gap", "node_restart")
    return None if is_of_counter else notice.received_ns // 1000


def _is_before(row: CoverageRow, uncommitted: Mapping[str, Message]) -> bool:
    """Return whether a `coverage` row's interval ends before the first uncommitted message of its topic."""
    first = uncommitted.get("sequence" if row["topic"] == "mempool" else row["topic"])
    if first is None or row["last_sequence"] is None:
        return True
    return (row["last_sequence"] - first.sequence) % COUNTER_RANGE >= COUNTER_RANGE // 2
