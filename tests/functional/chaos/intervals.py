"""Read the intervals of the table `coverage` and find errors in them, for the judge of chaos runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

COUNTER_RANGE = 1 << 32  # a node counts a topic's messages in 32 bits: 0 follows 4294967295


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Holds one row of `coverage`: times in microseconds, counters of its first and last message."""

    topic: str
    from_us: int
    to_us: int
    first: int | None
    last: int
    n_messages: int
    reason: str

    @property
    def n_claimed(self) -> int:
        """Return how many messages there are from its first counter to its last."""
        return 0 if self.first is None else (self.last - self.first) % COUNTER_RANGE + 1

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Interval":
        """Return the interval of a row of `coverage`."""
        return cls(
            topic=row["topic"],
            from_us=_us(row["from_at"]),
            to_us=_us(row["to_at"]),
            first=row["first_sequence"],
            last=-1 if row["last_sequence"] is None else row["last_sequence"],
            n_messages=row["n_messages"],
            reason=row["end_reason"],
        )


class Span(NamedTuple):
    """Holds successive intervals that continue each other without a hole."""

    from_us: int
    to_us: int
    reason: str
    parts: list[Interval]


def in_order(intervals: Sequence[Interval], *, by_time: bool) -> list[Interval]:
    """Sort a topic's intervals by time, or by counter if the clock was set.

    Intervals without a message have no counter, so the sort by counter leaves them out.
    """
    if by_time:
        return sorted(intervals, key=lambda each: each.from_us)
    return sorted((each for each in intervals if each.first is not None), key=lambda each: each.last)


def holes(intervals: Sequence[Interval], *, by_time: bool = True) -> list[str]:
    """Return what is wrong with a topic's sorted intervals: overlaps, missing ends, or gaps after `sealed`.

    Without `by_time`, times are not compared, because the clock was set.
    """
    wrong = [fault for each in intervals for fault in _inside(each)]
    for each, following in pairwise(intervals):
        if by_time and following.from_us < each.to_us:
            wrong.append(
                f"the next begins {each.to_us - following.from_us} us before it ends ({each.reason})"
            )
        elif by_time and each.reason == "sealed" and following.from_us != each.to_us:
            wrong.append(f"a hole of {following.from_us - each.to_us} us behind `sealed`")
    if by_time and intervals and intervals[-1].reason == "sealed":
        wrong.append("the last one is `sealed`: nothing says how it ended")
    for span in joined(intervals):
        counters = [each for each in span.parts if each.first is not None]
        for each, following in pairwise(counters):
            if following.first != (each.last + 1) % COUNTER_RANGE:
                wrong.append(f"counter {following.first} follows {each.last} across `sealed`")
    return wrong


def _inside(each: Interval) -> Iterator[str]:
    """Yield what is wrong within one interval: a wrong number of messages, or an end before its beginning."""
    if each.n_messages != each.n_claimed:
        yield f"{each.n_messages} messages from counter {each.first} to {each.last}"
    if each.to_us < each.from_us:
        yield f"it ends {each.from_us - each.to_us} us before it begins ({each.reason})"


def joined(intervals: Sequence[Interval]) -> list[Span]:
    """Join intervals that only a seal separates into spans."""
    spans: list[list[Interval]] = []
    for each in intervals:
        if spans and spans[-1][-1].reason == "sealed":
            spans[-1].append(each)
        else:
            spans.append([each])
    return [Span(parts[0].from_us, parts[-1].to_us, parts[-1].reason, parts) for parts in spans]


def _us(moment: Any) -> int:
    return int(moment.timestamp()) * 1_000_000 + int(moment.microsecond)
