"""Make rows of `rejects` for the rows that do not fit their table, so that no message can stop the journal.

`collector.dataset.parquet_files.split_refused` finds the rows that do not fit; all others are written. A row
of `rejects` keeps the message that a refused row was made of, or the row itself as JSON when it was not made
of a single message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from collector.clock import wall_us
from collector.dataset.parquet_files import RefusedRow
from collector.dataset.rows import RejectRow
from collector.receive.records import Message

MAX_REASON_CHARS: Final = 500


def reject_rows(
    refused: Iterable[RefusedRow], messages: Iterable[Message], *, node: str, session: str
) -> list[RejectRow]:
    """Return a row of `rejects` for each row that does not fit its table.

    `messages` are those from which the rows are made. `node` and `session` are used for a row that has none
    of its own.
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
    """Return the ZMQ message of which a refused row of `mempool_events` was made; None for other rows."""
    session, sequence = refused.row.get("session"), refused.row.get("sequence")
    if refused.table != "mempool_events" or refused.row.get("kind") != "pushed":
        return None
    if not isinstance(session, str) or not isinstance(sequence, int):
        return None
    return of_events.get((session, sequence))


def _as_json(value: object) -> str:
    """Return text for a value that JSON cannot represent: bytes in hexadecimal, anything else by `str`."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _text(value: object, default: str) -> str:
    return _encodable(value) if isinstance(value, str) else default


def _encodable(text: str) -> str:
    """Return a text in which what UTF-8 cannot encode (lone surrogates) is an escape sequence."""
    return text.encode(errors="backslashreplace").decode()
