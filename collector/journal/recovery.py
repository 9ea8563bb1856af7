"""What the frames of a journal say was observed, read in their order, and what is left of it behind damage.

A frame says with the messages it holds what has become of the intervals. So what was said before the first
lost byte still holds: its messages are there, as messages or as rows. What was said behind it may count
messages that are gone. There only what is there itself is claimed, message by message: a counter that is
missing ends an interval, and the hole has a name. `mempool` is not claimed behind damage at all, because the
rows of its copy may be among what is lost.

A start after a kill settles a session: all its claims become one state, in the frame in which it takes over
what the ring still had. Frames before that one say nothing more.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from collector.journal.coverage_ledger import COVERAGE_STATE, LOST_WITH_JOURNAL, CoverageLedger, Row
from collector.journal.frames import MESSAGES, STATES
from collector.journal.segment import Part, SegmentContents
from collector.receive.records import COUNTER_RANGE, Message
from collector.receive.ring import Item

_TIMES: Final = ("from_at", "to_at")


@dataclass
class SessionClaims:
    """What is said of one session."""

    is_damaged: bool  # something was lost before what comes next
    rows: list[Row] = field(default_factory=list)
    state: bytes | None = None
    behind: dict[tuple[str, int], Message] = field(default_factory=dict)  # damage, by topic and counter


class CoverageClaims:
    """The accounts of one node's sessions, by their names."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._of: dict[str, SessionClaims] = {}
        self.is_damaged = False

    def read(self, contents: SegmentContents, *, is_vouched: bool = False) -> None:
        """Take what a segment says, oldest first; `is_vouched`: its coverage was being sealed."""
        for part in contents.parts:
            if part.is_behind_loss:
                self._damage()
            if part.name == "coverage":
                self._take_rows([] if is_vouched else _rows_of(part.batch))
            elif part.name == STATES:
                self._take_states(part.batch.to_pylist())
            elif self.is_damaged:
                self._take_present(part)
        if contents.ends_in_loss:
            self._damage()

    def close_all(self, late: Mapping[str, Iterable[Item]], cut: set[str]) -> dict[str, list[Row]]:
        """Close all intervals, also by what the rings tell: `late` and `cut` as in `Ledger.close_killed`."""
        rows_of: dict[str, list[Row]] = {}
        for session in sorted(self._of.keys() | late.keys()):
            claims = self._claims_of(session)
            is_cut = claims.is_damaged or session in cut
            items = [*_unclaimed(claims), *late.get(session, ())]
            ledger = CoverageLedger(self._node, session)
            rows = claims.rows + ledger.close_after_kill(claims.state, items, is_cut=is_cut)
            rows_of[session] = _without_overlap(rows) if is_cut else rows
        return rows_of

    def state_to_resume(self, session: str) -> bytes:
        """Give up the claims of a session of which nothing is lost, as a state that goes on from its ring."""
        claims = self._of.pop(session, SessionClaims(is_damaged=False))
        ledger = CoverageLedger(self._node, session)
        ledger.hold_back(claims.rows + ledger.restore(claims.state))
        return json.dumps(json.loads(ledger.state()) | {"is_settled": True}).encode()

    def rows_so_far(self) -> list[Row]:
        """List every claim; an open interval as `sealed`, for as far as anybody knows it goes on."""
        rows = []
        for session, claims in self._of.items():
            ledger = CoverageLedger(self._node, session)
            if claims.is_damaged:
                closed = ledger.close_after_kill(claims.state, _unclaimed(claims), is_cut=True)
                rows += _without_overlap(claims.rows + closed)
            else:
                rows += claims.rows + ledger.restore(claims.state) + ledger.close_all("sealed")
        return rows

    def _claims_of(self, session: str) -> SessionClaims:
        return self._of.setdefault(session, SessionClaims(self.is_damaged))

    def _damage(self) -> None:
        self.is_damaged = True
        for claims in self._of.values():
            claims.is_damaged = True

    def _take_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            claims = self._claims_of(row["session"])
            if not claims.is_damaged:
                claims.rows.append(row)

    def _take_states(self, states: Iterable[Mapping[str, Any]]) -> None:
        for each in states:
            if not each["name"].startswith(COVERAGE_STATE):
                continue
            session, state = each["name"].removeprefix(COVERAGE_STATE), each["value"]
            if state is not None and json.loads(state).get("is_settled"):
                self._of[session] = SessionClaims(is_damaged=False, state=state)
            elif not self._claims_of(session).is_damaged:
                self._claims_of(session).state = state

    def _take_present(self, part: Part) -> None:
        for message in _present(part):
            claims = self._claims_of(message.session)
            if claims.is_damaged:
                claims.behind.setdefault((message.topic, message.sequence), message)


def items_of_run(items: Iterable[Item], done: int) -> Iterator[Item]:
    """Leave out of a ring the messages up to a number, notices before them, and what follows a restart.

    A restart whose notice is lost shows in a counter that steps back.
    """
    notices: list[Item] = []  # between two messages
    newest: dict[str, int] = {}
    for item in items:
        if isinstance(item, Message):
            expected = newest.get(item.topic, item.sequence - 1) + 1
            if (item.sequence - expected) % COUNTER_RANGE >= COUNTER_RANGE // 2:
                break
            newest[item.topic] = item.sequence
            if item.number > done:
                yield from notices
                yield item
            notices.clear()
        else:
            notices.append(item)
            if item.reason == "node_restart":
                break
    yield from notices


def settled_state(rows: Iterable[Row]) -> bytes:
    """Write the claims of a session that has ended, as a state of the journal."""
    return json.dumps({"open": {}, "closed": list(rows), "is_settled": True}).encode()


def end_lost_intervals(
    node: str, coverage: pa.Table, claims: Mapping[str, Iterable[Row]]
) -> dict[str, list[Row]]:
    """End what is sealed and goes on nowhere, since the journal has lost how: an empty interval for each."""
    begins = {(row["session"], row["topic"], row["from_at"]) for rows in claims.values() for row in rows}
    last: dict[tuple[str, str], Row] = {}
    for row in sorted(_rows_of(coverage), key=lambda row: (row["from_at"], row["to_at"])):
        if row["node"] == node:
            last[row["session"], row["topic"]] = row
    ends: dict[str, list[Row]] = {}
    for (session, topic), row in last.items():
        if row["end_reason"] == "sealed" and (session, topic, row["to_at"]) not in begins:
            ledger = CoverageLedger(node, session)
            ledger.open(topic, row["to_at"])
            ends.setdefault(session, []).extend(ledger.close(topic, "killed", LOST_WITH_JOURNAL))
    return ends


def _unclaimed(claims: SessionClaims) -> list[Message]:
    """List, by topic and counter, what is there behind the damage and was not claimed before it."""
    ledger = CoverageLedger("", "")
    claimed = claims.rows + ledger.restore(claims.state) + ledger.close_all("killed")
    return [message for key, message in sorted(claims.behind.items()) if not _is_claimed(key, claimed)]


def _without_overlap(rows: list[Row]) -> list[Row]:
    """Begin no interval before the last one ends: messages come before a subscription is known to stand."""
    ends: dict[str, int] = {}
    if any(row["end_reason"] == "clock_step" for row in rows):
        return rows  # then their times do not tell their order
    for row in rows:
        row["from_at"] = max(row["from_at"], ends.get(row["topic"], 0))
        row["to_at"] = max(row["to_at"], row["from_at"])
        ends[row["topic"]] = max(row["to_at"], row["from_at"] + 1)
    return rows


def _is_claimed(key: tuple[str, int], rows: Iterable[Row]) -> bool:
    topic, counter = key
    return any(
        row["topic"] == topic
        and row["first_sequence"] is not None
        and (counter - row["first_sequence"]) % COUNTER_RANGE
        <= (row["last_sequence"] - row["first_sequence"]) % COUNTER_RANGE
        for row in rows
    )


def _present(part: Part) -> list[Message]:
    """Read which messages a batch shows to be there: themselves, or the rows made of them."""
    if part.name == MESSAGES:
        names = ["node", "session", "topic", "sequence", "received_ns"]
        return [Message(**row, body=b"") for row in part.batch.select(names).to_pylist()]
    if part.name not in ("mempool_events", "rejects"):
        return []
    rows = _in_microseconds(part.batch, ("received_at",)).to_pylist()
    return [
        Message(row["node"], row["session"], topic, row["sequence"], row["received_at"] * 1000, b"")
        for row in rows
        if (topic := row.get("topic", "sequence")) and row["sequence"] is not None and row["sequence"] >= 0
    ]


def _rows_of(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    rows: list[Row] = _in_microseconds(batch, _TIMES).to_pylist()
    return rows


def _in_microseconds(batch: pa.RecordBatch | pa.Table, names: Iterable[str]) -> pa.Table:
    """Give times as integers."""
    table = pa.table(dict(zip(batch.schema.names, batch.columns, strict=True)))
    for name in names:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(at).cast(pa.int64()))
    return table
