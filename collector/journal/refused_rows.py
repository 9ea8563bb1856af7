"""Set aside the rows that do not fit their table, so that no message can stop the journal.

Rows are checked when they are turned into Arrow. When a batch of rows is refused, it is split in halves until
the rows that do not fit are alone; all other rows are written. A refused row becomes a row of `rejects`,
which keeps the message that it was made of, or the row itself as JSON when it was not made of a single
message.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from collector.clock import wall_us
from collector.dataset.rows import RejectRow, Row
from collector.dataset.schema import Table
from collector.errors import RowRefused
from collector.receive.records import Message

MAX_REASON_CHARS: Final = 500
Rows = TypeVar("Rows", Sequence[Row], pa.RecordBatch, pa.Table, Sequence[Row] | pa.RecordBatch)
Made = TypeVar("Made")


class RefusedRow(NamedTuple):
    """Holds a row that does not fit its table, and the reason."""

    table: str
    row: Row
    reason: str


def split_refused(
    table: Table, rows: Rows, make: Callable[[Table, Rows], Made]
) -> tuple[list[Made], list[RefusedRow]]:
    """Call `make` on the rows that fit the table; return its results, in order, and the refused rows.

    `make` raises RowRefused when one of its rows does not fit. It is then called on ever smaller parts, until
    the rows that do not fit are alone.
    """
    try:
        return [make(table, rows)], []
    except RowRefused as error:
        if len(rows) == 1:
            return [], [RefusedRow(table.name, _as_mapping(rows), str(error))]
    middle = len(rows) // 2
    made, refused = [], []
    for part in (_part(rows, 0, middle), _part(rows, middle, len(rows))):
        part_made, part_refused = split_refused(table, part, make)
        made += part_made
        refused += part_refused
    return made, refused


def reject_rows(
    refused: Iterable[RefusedRow], messages: Iterable[Message], *, node: str, session: str
) -> list[RejectRow]:
    """Make a row of `rejects` for each refused row; `messages` are those from which this flush makes rows.

    `node` and `session` are used for a row that has none of its own.
    """
    of_events = {(each.session, each.sequence): each for each in messages if each.topic == "sequence"}
    now_us = wall_us()
    rows: list[RejectRow] = []
    for position, each in enumerate(refused):
        message = _message_of(each, of_events)
        reason = f"its row of {each.table} was refused: {each.reason}"
        row: RejectRow = {
            "node": _text(each.row.get("node"), node),
            "session": _text(each.row.get("session"), session),
            "received_at": now_us + position,  # no two alike: the time is part of what identifies a row
            "topic": each.table,
            "sequence": None,
            "reason": _encodable(reason)[:MAX_REASON_CHARS],
            "body": json.dumps(each.row, default=_as_json).encode(),
        }
        if message is not None:
            row["received_at"] = message.received_ns // 1000
            row["topic"] = message.topic
            row["sequence"] = message.sequence
            row["body"] = message.body
        rows.append(row)
    return rows


def _message_of(refused: RefusedRow, of_events: Mapping[tuple[str, int], Message]) -> Message | None:
    """Return the message that a refused row of `mempool_events` was made of, or None when there is none."""
    session, sequence = refused.row.get("session"), refused.row.get("sequence")
    if refused.table != "mempool_events" or refused.row.get("kind") != "pushed":
        return None
    if not isinstance(session, str) or not isinstance(sequence, int):
        return None
    return of_events.get((session, sequence))


def _part(rows: Rows, begin: int, end: int) -> Rows:
    if isinstance(rows, pa.RecordBatch | pa.Table):
        part: Rows = rows.slice(begin, end - begin)
        return part
    return rows[begin:end]


def _as_mapping(rows: Sequence[Row] | pa.RecordBatch | pa.Table) -> Row:
    """Return the only row in `rows` as a mapping; a value that Python cannot represent becomes text."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        return rows[0]
    return {name: _value(rows.column(name)[0]) for name in rows.schema.names}


def _value(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return str(value.cast(pa.int64())) if pa.types.is_timestamp(value.type) else repr(value)


def _as_json(value: object) -> str:
    """Return text for a value that JSON cannot represent: bytes in hexadecimal, anything else by `str`."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(value: object, default: str) -> str:
    return _encodable(value) if isinstance(value, str) else default


def _encodable(text: str) -> str:
    """Replace what UTF-8 cannot encode (lone surrogates) by escape sequences."""
    return text.encode(errors="backslashreplace").decode()
