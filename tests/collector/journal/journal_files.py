"""Provide messages, rows and recoveries that the tests of the journal share."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.journal.coverage_ledger import COVERAGE_STATE, CoverageLedger
from collector.journal.journal import Journal
from collector.receive.records import Message


def message(number: int) -> Message:
    """Make a message whose counter, time and body all follow from its number."""
    return Message("n", "s", "sequence", number, number * 1000, number.to_bytes(33, "big"))


def row(made_of: Message) -> dict[str, Any]:
    """Make the row of `mempool_events` that this message becomes."""
    return {
        "node": made_of.node,
        "session": made_of.session,
        "sequence": made_of.sequence,
        "kind": "pushed",
        "received_at": made_of.received_ns // 1000,
        "event": "A",
        "hash": made_of.body[:32],
    }


@contextmanager
def one_descriptor_left() -> Iterator[None]:
    """Leave this process one free file descriptor during the `with` block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    taken = [os.dup(0)]
    while taken[-1] <= highest:  # each is the lowest that is free
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limits[1]))
    os.close(taken.pop())
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for handle in taken:
            os.close(handle)


def sealed(dataset: Dataset) -> list[int]:
    """Return the counters of the rows in the dataset, sorted; a counter is repeated for a repeated row."""
    return sorted(dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist())


def segments(folder: Path) -> list[Path]:
    """Return the segments in a journal's folder, the oldest first."""
    return sorted(folder.glob("*.journal"))


def recovered(journal: Journal, dataset: Dataset, session: str = "s1", *, per_turn: int = 3) -> list[Message]:
    """Recover all messages that an earlier run left, its ring in several turns, as `Session.recover` does."""
    messages = journal.recover(dataset)
    name = COVERAGE_STATE + session
    ledger = CoverageLedger("n", session)
    ledger.hold_back(ledger.restore(journal.states.get(name)))
    while items := journal.take_left_in_ring(session, per_turn):
        ledger.hold_back(ledger.continue_with(items))
        late = [item for item in items if isinstance(item, Message)]
        journal.append_messages(late)
        journal.set_state(name, ledger.state())
        journal.flush()
        messages += late
    return messages
