"""Read what earlier runs left in a journal: messages without rows, states, and claims of coverage.

A claim says that a topic was observed during an interval, so all its messages are in the dataset. Each frame
holds, together with its messages, what the coverage ledger knew at that moment. So a claim that was written
before the first lost byte of a journal holds: its messages are in the journal or are rows. A claim that was
written after lost bytes may count messages that are lost. There, only messages that are present themselves
are claimed, one by one: a missing counter ends an interval, and the row says why. `mempool` is not claimed
after lost bytes at all, because rows that describe the mempool may be lost.

A start after a kill settles the session that was killed: it writes all claims of the session as one state, in
the same frame as the messages that were left in the ring. Frames before that are no longer read for claims.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from collector.dataset.open import Dataset
from collector.dataset.rows import CoverageRow
from collector.journal.coverage_ledger import COVERAGE_STATE, LOST_WITH_JOURNAL, CoverageLedger
from collector.journal.segment import (
    CONSUMED,
    MESSAGES,
    SIZES,
    STATES,
    Part,
    Segment,
    SegmentContents,
    apply_changes,
    merge_spans,
    read_messages_outside,
)
from collector.receive.records import COUNTER_RANGE, Message
from collector.receive.ring import Item

_TIMES: Final = ("from_at", "to_at")


@dataclass
class SessionClaims:
    """Holds what a journal says that one session observed.

    `rows` are rows of `coverage`, `state` has the intervals that were open, and `behind_damage` the messages
    found after lost bytes.
    """

    is_damaged: bool  # bytes were lost before the next frame
    rows: list[CoverageRow] = field(default_factory=list)
    state: bytes | None = None  # the last state of the session's ledger
    # Messages that are present after the lost bytes, by topic and counter.
    behind_damage: dict[tuple[str, int], Message] = field(default_factory=dict)


class CoverageClaims:
    """Collects what one node's journal claims that each session observed; makes `coverage` rows of that.

    A claim says that a topic was observed without a loss during an interval. `close_all` ends the intervals
    that are still open.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._by_session: dict[str, SessionClaims] = {}
        self.is_damaged = False

    def read(self, contents: SegmentContents, *, is_coverage_sealed: bool = False) -> None:
        """Add what one journal file says that sessions observed; call this for each file, the oldest first.

        `is_coverage_sealed` says that the file's rows of `coverage` are in Parquet already.
        """
        for part in contents.parts:
            if part.is_behind_loss:
                self._note_damage()
            if part.name == "coverage":
                self._read_rows([] if is_coverage_sealed else _coverage_rows(part.batch))
            elif part.name == STATES:
                self._read_states(part.batch.to_pylist())
            elif self.is_damaged:
                self._read_present(part)
        if contents.ends_in_loss:
            self._note_damage()

    def close_all(self, left: Mapping[str, Iterable[Item]], cut: set[str]) -> dict[str, list[CoverageRow]]:
        """End every coverage interval that sessions claim; return the `coverage` rows by session.

        `left` has, by session, the messages and notices that were left in rings. `cut` names the sessions
        that lost messages between their segments and their ring.
        """
        rows_of: dict[str, list[CoverageRow]] = {}
        for session in sorted(self._by_session.keys() | left.keys()):
            claims = self._claims_of(session)
            is_cut = claims.is_damaged or session in cut
            items = [*_unclaimed(claims), *left.get(session, ())]
            ledger = CoverageLedger(self._node, session)
            rows = claims.rows + ledger.close_after_kill(claims.state, items, is_cut=is_cut)
            rows_of[session] = _without_overlap(rows) if is_cut else rows
        return rows_of

    def state_to_resume(self, session: str) -> bytes:
        """Remove the coverage claims of an undamaged session; return them as the bytes of a ledger's state.

        The messages in the session's ring (buffer file) are to be counted from this state on.
        """
        claims = self._by_session.pop(session, SessionClaims(is_damaged=False))
        ledger = CoverageLedger(self._node, session)
        ledger.hold_back(claims.rows + ledger.restore(claims.state))
        return json.dumps(json.loads(ledger.state()) | {"is_settled": True}).encode()

    def rows_so_far(self) -> list[CoverageRow]:
        """Return all that sessions claim to have observed as rows of `coverage`.

        An open interval gets the end reason `sealed`, as it may go on.
        """
        rows = []
        for session, claims in self._by_session.items():
            ledger = CoverageLedger(self._node, session)
            if claims.is_damaged:
                closed = ledger.close_after_kill(claims.state, _unclaimed(claims), is_cut=True)
                rows += _without_overlap(claims.rows + closed)
            else:
                rows += claims.rows + ledger.restore(claims.state) + ledger.close_all("sealed")
        return rows

    def _claims_of(self, session: str) -> SessionClaims:
        return self._by_session.setdefault(session, SessionClaims(self.is_damaged))

    def _note_damage(self) -> None:
        """Record that bytes were lost: later parts of the journal claim only the messages that they hold."""
        self.is_damaged = True
        for claims in self._by_session.values():
            claims.is_damaged = True

    def _read_rows(self, rows: Iterable[CoverageRow]) -> None:
        """Keep the rows of `coverage` that were written before any bytes were lost."""
        for row in rows:
            claims = self._claims_of(row["session"])
            if not claims.is_damaged:
                claims.rows.append(row)

    def _read_states(self, states: Iterable[Mapping[str, object]]) -> None:
        """Keep states of coverage that were written before any bytes were lost, and every settled state."""
        for each in states:
            name, state = each["name"], each["value"]
            if not isinstance(name, str) or not name.startswith(COVERAGE_STATE):
                continue
            session = name.removeprefix(COVERAGE_STATE)
            if isinstance(state, bytes) and json.loads(state).get("is_settled"):
                self._by_session[session] = SessionClaims(is_damaged=False, state=state)
            elif not self._claims_of(session).is_damaged:
                self._claims_of(session).state = state if isinstance(state, bytes) else None

    def _read_present(self, part: Part) -> None:
        """Record which messages survive in a part of the journal that comes after damage.

        Such a part holds messages, or rows made of them. Only for these can coverage still be claimed.
        """
        for message in _present_messages(part):
            claims = self._claims_of(message.session)
            if claims.is_damaged:
                claims.behind_damage.setdefault((message.topic, message.sequence), message)


class EarlierRuns(NamedTuple):
    """Holds what earlier runs left in the files of a journal: messages without rows, states, coverage."""

    segments: list[Segment]  # those still to be sealed, oldest first
    coverage_sealed: set[str]  # stems of the segments whose rows of `coverage` are in Parquet
    messages: list[tuple[int, Message]]  # messages without rows, by ordinal
    next_ordinal: int
    states: dict[str, bytes]
    claims: CoverageClaims


def read_earlier_runs(segments: list[Segment], dataset: Dataset, node: str) -> EarlierRuns:
    """Read the journal files of earlier runs, the oldest first, and return what they hold.

    When a damaged file was being written to Parquet, either the file or the Parquet files made of it are
    removed, so that no row is written twice. Raises OSError when a file cannot be used.
    """
    contents = dict(zip(segments, _read_contents(segments), strict=True))
    coverage_sealed = set()
    for segment, content in list(contents.items()):
        files = list(dataset.folder.glob(f"*/*/{segment.stem}.parquet"))
        # A segment that was cut between two frames looks whole, unless a later segment knows its length. The
        # later one may be lost, so only a segment of known length counts as whole here.
        is_whole = segment.whole_bytes > 0 and not content.lost_bytes
        if any(path.parts[-3] == "coverage" for path in files):  # `coverage` is written last
            coverage_sealed.add(segment.stem)
            if not is_whole:  # its rows are sealed, and its messages without rows are in a later segment
                segment.remove(keep=False)
                del contents[segment]
        elif files and not is_whole:
            _remove_files(dataset, files)
    claims = CoverageClaims(node)
    for segment, content in contents.items():
        claims.read(content, is_coverage_sealed=segment.stem in coverage_sealed)
    messages, next_ordinal, states = _read_messages_and_states(list(contents.values()))
    return EarlierRuns(list(contents), coverage_sealed, messages, next_ordinal, states, claims)


def items_of_run(items: Iterable[Item], n_journalled: int) -> Iterator[Item]:
    """Yield messages and notices of a ring (buffer file) that the journal lacks, up to the node's restart.

    `n_journalled` is the number of the last message or notice that the journal holds. A counter that steps
    back shows a restart whose notice is lost.
    """
    notices: list[Item] = []  # between two messages
    newest: dict[str, int] = {}
    for item in items:
        if isinstance(item, Message):
            expected = newest.get(item.topic, item.sequence - 1) + 1
            if (item.sequence - expected) % COUNTER_RANGE >= COUNTER_RANGE // 2:
                break
            newest[item.topic] = item.sequence
            if item.number > n_journalled:
                yield from notices
                yield item
            notices.clear()
        else:
            notices += [item] if item.number > n_journalled else []
            if item.reason == "node_restart":
                break
    yield from notices


def settled_state(rows: Iterable[CoverageRow]) -> bytes:
    """Return the coverage rows of an ended session, converted into the bytes of a journal state (JSON)."""
    return json.dumps({"open": {}, "closed": list(rows), "is_settled": True}).encode()


def end_lost_intervals(
    node: str, coverage: pa.Table, claims: Mapping[str, Iterable[CoverageRow]]
) -> dict[str, list[CoverageRow]]:
    """Return rows that end coverage intervals whose continuation was lost with a part of the journal.

    `coverage` is the table in Parquet. A row in it with the end reason `sealed` must be continued by another
    row. Where `claims` has no such row, an empty interval ends it and says why. The rows are by session.
    """
    begins = {(row["session"], row["topic"], row["from_at"]) for rows in claims.values() for row in rows}
    ours = coverage.filter(pc.equal(coverage["node"], node))
    in_order = ours.sort_by([("from_at", "ascending"), ("to_at", "ascending")])
    last = in_order.group_by(["session", "topic"], use_threads=False).aggregate(
        [("to_at", "last"), ("end_reason", "last")]
    )
    ends: dict[str, list[CoverageRow]] = {}
    for row in _times_as_integers(last, ("to_at_last",)).to_pylist():
        session, topic, to_us = row["session"], row["topic"], row["to_at_last"]
        if row["end_reason_last"] == "sealed" and (session, topic, to_us) not in begins:
            ledger = CoverageLedger(node, session)
            ledger.open(topic, to_us)
            ends.setdefault(session, []).extend(ledger.close(topic, "killed", LOST_WITH_JOURNAL))
    return ends


def _read_contents(segments: list[Segment]) -> list[SegmentContents]:
    """Read journal files and return their contents.

    Later files state the lengths of earlier files, which shows where a file was cut.
    """
    contents = [segment.read() for segment in segments]
    batches = [batch for content in contents for batch in content.batches.get(SIZES, [])]
    sizes = {row["stem"]: row["size_bytes"] for batch in batches for row in batch.to_pylist()}
    for at, segment in enumerate(segments):
        segment.whole_bytes = sizes.get(segment.stem, 0)
        if segment.whole_bytes > segment.path.stat().st_size:
            contents[at] = segment.read()
    return contents


def _remove_files(dataset: Dataset, files: list[Path]) -> None:
    """Delete the Parquet files that were made of a damaged journal file; its whole parts are written again.

    The part that is lost may say that some rows of these files are made again from their messages.
    """
    with dataset.write_lock():
        for path in files:
            path.unlink()


def _read_messages_and_states(
    contents: list[SegmentContents],
) -> tuple[list[tuple[int, Message]], int, dict[str, bytes]]:
    """Return a journal's messages without rows, each with its number, the next free number, and states."""
    parts = [part for content in contents for part in content.parts]
    marks = [row for part in parts if part.name == CONSUMED for row in part.batch.to_pylist()]
    spans = merge_spans((row["first"], row["last"]) for row in marks)
    messages: dict[int, Message] = {}
    states: dict[str, bytes] = {}
    last = spans[-1][1] if spans else -1
    for part in parts:
        if part.name == MESSAGES:
            last = max(last, part.batch.column(0)[-1].as_py())
            messages |= read_messages_outside(spans, part.batch)
        elif part.name == STATES:
            apply_changes(states, {row["name"]: row["value"] for row in part.batch.to_pylist()})
    return sorted(messages.items()), last + 1, states


def _unclaimed(claims: SessionClaims) -> list[Message]:
    """Return the messages after lost bytes of a journal that no claimed coverage interval counts."""
    ledger = CoverageLedger("", "")
    claimed = claims.rows + ledger.restore(claims.state) + ledger.close_all("killed")
    return [message for key, message in sorted(claims.behind_damage.items()) if not _is_claimed(key, claimed)]


def _without_overlap(rows: list[CoverageRow]) -> list[CoverageRow]:
    """Return the rows without overlap: an interval begins at the earliest where the one before it ends.

    This holds within a topic. Intervals can overlap because messages arrive before the subscription is
    confirmed. If a row ends with "clock_step", the clock was set, and the rows are returned as they are.
    """
    ends: dict[str, int] = {}
    if any(row["end_reason"] == "clock_step" for row in rows):
        return rows  # the clock was set, so times do not show the order of intervals
    for row in rows:
        row["from_at"] = max(row["from_at"], ends.get(row["topic"], 0))
        row["to_at"] = max(row["to_at"], row["from_at"])
        ends[row["topic"]] = max(row["to_at"], row["from_at"] + 1)
    return rows


def _is_claimed(key: tuple[str, int], rows: Iterable[CoverageRow]) -> bool:
    """Return whether a coverage interval in `rows` counts the message with this topic and counter."""
    topic, counter = key
    return any(
        row["topic"] == topic
        and (first := row["first_sequence"]) is not None
        and (last := row["last_sequence"]) is not None
        and (counter - first) % COUNTER_RANGE <= (last - first) % COUNTER_RANGE
        for row in rows
    )


def _present_messages(part: Part) -> list[Message]:
    """Return the messages, without bodies, that a part of a journal holds or whose rows the part holds."""
    if part.name == MESSAGES:
        names = ["node", "session", "topic", "sequence", "received_ns"]
        return [Message(**row, body=b"") for row in part.batch.select(names).to_pylist()]
    if part.name not in ("mempool_events", "rejects"):
        return []
    rows = _times_as_integers(part.batch, ("received_at",)).to_pylist()
    return [
        Message(row["node"], row["session"], topic, row["sequence"], row["received_at"] * 1000, b"")
        for row in rows
        if (topic := row.get("topic", "sequence")) and row["sequence"] is not None and row["sequence"] >= 0
    ]


def _coverage_rows(batch: pa.RecordBatch | pa.Table) -> list[CoverageRow]:
    """Return a batch of `coverage` as a list of rows, with times as integers of microseconds."""
    rows: list[CoverageRow] = _times_as_integers(batch, _TIMES).to_pylist()
    return rows


def _times_as_integers(batch: pa.RecordBatch | pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a batch as a table in which the time columns `names` are integers in the same unit."""
    table = pa.table(dict(zip(batch.schema.names, batch.columns, strict=True)))
    for name in names:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(at).cast(pa.int64()))
    return table
