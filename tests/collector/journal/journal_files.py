"""Messages, and the rows that they become, for the tests of the journal."""

from pathlib import Path
from typing import Any

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.journal.coverage_ledger import COVERAGE_STATE, CoverageLedger
from collector.journal.journal import Journal
from collector.receive.records import Message


def message(number: int) -> Message:
    """Make a message that can be told from every other."""
    return Message("n", "s", "sequence", number, number * 1000, number.to_bytes(33, "big"))


def row(made_of: Message) -> dict[str, Any]:
    """Make the row that this message becomes."""
    return {
        "node": made_of.node,
        "session": made_of.session,
        "sequence": made_of.sequence,
        "kind": "pushed",
        "received_at": made_of.received_ns // 1000,
        "event": "A",
        "hash": made_of.body[:32],
    }


def sealed(dataset: Dataset) -> list[int]:
    """List the sequences in the dataset, in order, repeated if a row is there twice."""
    return sorted(dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist())


def segments(folder: Path) -> list[Path]:
    """List the segments in a journal's folder, oldest first."""
    return sorted(folder.glob("*.journal"))


def recovered(journal: Journal, dataset: Dataset, session: str = "s1", *, per_turn: int = 3) -> list[Message]:
    """Take all that an earlier run left, what is in its ring in turns, as `Session.recover` does."""
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
