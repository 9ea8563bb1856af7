"""Test that no message can end a session: one from which no row can be made becomes a row of `rejects`."""

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.dataset.schema import MEMPOOL_EVENTS, REJECTS
from collector.journal.journal import Journal
from collector.mempool import sync
from collector.receive.records import Message
from collector.service.session import Outcome, Unfinished
from tests.collector.service.planted import MEMPOOL_INFO, NOT_FOUND, TIP, PlantedNode
from tests.collector.service.test_session import Collecting, entered, wait_until

POISONED = {3, 7, 8}


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a node that finds no block or transaction and, until a test plants one, gives no snapshot."""
    made = PlantedNode()
    made.errors |= dict.fromkeys(("getblock", "getmempoolentry", "getrawtransaction"), NOT_FOUND)
    made.results |= {"getbestblockhash": TIP, "getblockchaininfo": {"headers": 100, "blocks": 100}}
    made.results["getmempoolinfo"] = MEMPOOL_INFO
    yield made
    made.close()


def messages() -> list[Message]:
    """Return `sequence` messages, some with a mempool sequence number too large for its column."""
    found = [entered(number) for number in range(12)]
    for number in POISONED:
        body = found[number].body
        found[number] = found[number]._replace(body=body[:-1] + b"\xff")
    return found


@pytest.mark.parametrize("is_bounded", [True, False], ids=["refused by the decoder", "refused by the table"])
def test_a_number_that_no_column_holds_ends_no_session(
    tmp_path: Path, node: PlantedNode, monkeypatch: pytest.MonkeyPatch, *, is_bounded: bool
) -> None:
    """A start after a kill finds messages with too large a number in the journal; they become rejects."""
    if not is_bounded:
        monkeypatch.setattr(sync, "MAX_MEMPOOL_SEQUENCE", 1 << 64)
    collecting = Collecting(tmp_path, node)
    journal = Journal(collecting.journal_folder)
    journal.recover(collecting.dataset)
    journal.append_messages(messages())
    journal.flush()
    journal.close()

    with Journal(collecting.journal_folder) as journal:
        left = deque(journal.recover(collecting.dataset))
        assert len(left) == 12
        session = collecting.session(journal)
        assert session.recover(Unfinished(left, {}), threading.Event()) is Outcome.COMPLETE
    with Journal(collecting.journal_folder) as journal:
        assert journal.recover(collecting.dataset) == []
    rejects = collecting.dataset.read(REJECTS).to_pylist()
    assert {row["sequence"]: row["body"] for row in rejects if row["topic"] == "sequence"} == {
        each.sequence: each.body for each in messages() if each.sequence in POISONED
    }
    events = collecting.dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist()
    assert sorted(events) == [number for number in range(12) if number not in POISONED]


def test_a_running_session_goes_on_after_a_poisoned_message(tmp_path: Path, node: PlantedNode) -> None:
    """Messages before and after an unusable one get their rows, and the session ends normally."""
    collecting = Collecting(tmp_path, node)
    with collecting.running():
        collecting.put(*messages())
        wait_until(lambda: collecting.sample("waiting_messages") == 12)
        txids = [bytes(each.body[:32]).hex() for each in messages() if each.sequence not in POISONED]
        node.results |= {"uptime": 1, "getrawmempool": {"txids": txids, "mempool_sequence": 12}}
        wait_until(lambda: collecting.sample("waiting_messages") == 0)
    rejects = collecting.dataset.read(REJECTS).to_pylist()
    assert {row["sequence"] for row in rejects} == POISONED
    assert all("above" in row["reason"] for row in rejects)
