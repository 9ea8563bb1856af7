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

from collector.journal.coverage_ledger import COVERAGE_STATE, LOST_WITH_JOURNAL, Ledger, Row
from collector.journal.frames import MESSAGES, STATES
from collector.journal.segment import Contents, Part
from collector.receive.records import COUNTER_RANGE, Message
from collector.receive.ring import Item

_TIMES: Final = ("from_at", "to_at")


@dataclass
class Account:
    """What is said of one session."""

    is_damaged: bool  # something was lost before what comes next
    rows: list[Row] = field(default_factory=list)
    state: bytes | None = None
    behind: dict[tuple[str, int], Message] = field(default_factory=dict)  # damage, by topic and counter


class Accounts:
    """The accounts of one node's sessions, by their names."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._of: dict[str, Account] = {}
        self.is_damaged = False

    def take(self, contents: Contents, *, is_vouched: bool = False) -> None:
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

    def settled(self, late: Mapping[str, Iterable[Item]], cut: set[str]) -> dict[str, list[Row]]:
        """Close all intervals, also by what the rings tell: `late` and `cut` as in `Ledger.close_killed`."""
        claims = {}
        for session in sorted(self._of.keys() | late.keys()):
            account = self._account(session)
            is_cut = account.is_damaged or session in cut
            items = [*_unclaimed(account), *late.get(session, ())]
            ledger = Ledger(self._node, session)
            rows = account.rows + ledger.close_killed(account.state, items, is_cut=is_cut)
            claims[session] = _apart(rows) if is_cut else rows
        return claims

    def resumed(self, session: str) -> bytes:
        """Give up the claims of a session of which nothing is lost, as a state that goes on from its ring."""
        account = self._of.pop(session, Account(is_damaged=False))
        ledger = Ledger(self._node, session)
        ledger.hold(account.rows + ledger.restore(account.state))
        return json.dumps(json.loads(ledger.state()) | {"is_settled": True}).encode()

    def open_rows(self) -> list[Row]:
        """List every claim; an open interval as `sealed`, for as far as anybody knows it goes on."""
        rows = []
        for session, account in self._of.items():
            ledger = Ledger(self._node, session)
            if account.is_damaged:
                closed = ledger.close_killed(account.state, _unclaimed(account), is_cut=True)
                rows += _apart(account.rows + closed)
            else:
                rows += account.rows + ledger.restore(account.state) + ledger.close_all("sealed")
        return rows

    def _account(self, session: str) -> Account:
        return self._of.setdefault(session, Account(self.is_damaged))

    def _damage(self) -> None:
        self.is_damaged = True
        for account in self._of.values():
            account.is_damaged = True

    def _take_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            account = self._account(row["session"])
            if not account.is_damaged:
                account.rows.append(row)

    def _take_states(self, states: Iterable[Mapping[str, Any]]) -> None:
        for each in states:
            if not each["name"].startswith(COVERAGE_STATE):
                continue
            session, state = each["name"].removeprefix(COVERAGE_STATE), each["value"]
            if state is not None and json.loads(state).get("is_settled"):
                self._of[session] = Account(is_damaged=False, state=state)
            elif not self._account(session).is_damaged:
                self._account(session).state = state

    def _take_present(self, part: Part) -> None:
        for message in _present(part):
            account = self._account(message.session)
            if account.is_damaged:
                account.behind.setdefault((message.topic, message.sequence), message)


def of_this_run(items: Iterable[Item], done: int) -> Iterator[Item]:
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


def stubs(node: str, coverage: pa.Table, claims: Mapping[str, Iterable[Row]]) -> dict[str, list[Row]]:
    """End what is sealed and goes on nowhere, since the journal has lost how: an empty interval for each."""
    begins = {(row["session"], row["topic"], row["from_at"]) for rows in claims.values() for row in rows}
    last: dict[tuple[str, str], Row] = {}
    for row in sorted(_rows_of(coverage), key=lambda row: (row["from_at"], row["to_at"])):
        if row["node"] == node:
            last[row["session"], row["topic"]] = row
    ends: dict[str, list[Row]] = {}
    for (session, topic), row in last.items():
        if row["end_reason"] == "sealed" and (session, topic, row["to_at"]) not in begins:
            ledger = Ledger(node, session)
            ledger.open(topic, row["to_at"])
            ends.setdefault(session, []).extend(ledger.close(topic, "killed", LOST_WITH_JOURNAL))
    return ends


def _unclaimed(account: Account) -> list[Message]:
    """List, by topic and counter, what is there behind the damage and was not claimed before it."""
    ledger = Ledger("", "")
    claimed = account.rows + ledger.restore(account.state) + ledger.close_all("killed")
    return [message for key, message in sorted(account.behind.items()) if not _is_claimed(key, claimed)]


def _apart(rows: list[Row]) -> list[Row]:
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
