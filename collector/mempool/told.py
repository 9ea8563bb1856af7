"""PendingEntries that a snapshot told of, kept as states of the journal until their rows are complete.

No message implies them: after a kill the next run would not know that they were there.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final

from collector.mempool.entries import PendingEntry

STATE: Final = "told/"  # followed by the session and a number
PER_STATE: Final = 1000  # entries; rows are written when all of a state are complete


def name(session: str, number: int) -> str:
    """Name a state of a session."""
    return f"{STATE}{session}/{number}"


def session_of(state_name: str) -> str:
    """Return the session that a state belongs to."""
    return state_name.split("/")[1]


def packed(entries: Iterable[PendingEntry]) -> bytes:
    """Write what is known of entries when a snapshot tells of them: txid, kind and time."""
    return json.dumps([[entry.txid.hex(), entry.kind, entry.entered_us] for entry in entries]).encode()


def unpacked(state: bytes) -> Iterator[PendingEntry]:
    """Read what `packed` wrote."""
    for txid, kind, entered_us in json.loads(state):
        yield PendingEntry(bytes.fromhex(txid), kind, entered_us, None, None, None)
