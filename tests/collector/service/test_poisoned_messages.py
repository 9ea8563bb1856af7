"""Test that no message ends a session twice: one from which no row can be made becomes a row of `rejects`."""

import pkgutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.codec.block import decode_block
from collector.dataset.schema import BLOCKS, MEMPOOL_EVENTS, MEMPOOL_TXS, REJECTS, hash_hex
from collector.journal.journal import Journal
from collector.mempool import sync
from collector.receive.records import Message
from collector.service.session import Outcome, Unfinished, unfinished_sessions
from tests.collector.codec.made_blocks import solved_block
from tests.collector.service.planted import MEMPOOL_ENTRY, MEMPOOL_INFO, NOT_FOUND, TIP, PlantedNode
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
    del node.errors["getmempoolentry"]
    node.results["getmempoolentry"] = MEMPOOL_ENTRY
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


def failing(function: Callable[..., Any], poison: bytes) -> Callable[..., Any]:
    """Return a function that raises KeyError when an argument is `poison`, and else does as `function`."""

    def fail_or_do(*arguments: Any) -> Any:
        if poison in arguments:
            raise KeyError("a mistake of ours")
        return function(*arguments)

    return fail_or_do


@pytest.mark.parametrize(
    ("topic", "function"),
    [
        ("sequence", "collector.service.pipeline.parse_event"),
        ("sequence", "collector.mempool.sync.MempoolContents.enter"),
        ("rawtx", "collector.codec.transaction.decode_transaction"),
        ("rawblock", "collector.blocks.tracker.parse_block"),
    ],
)
def test_an_error_of_ours_ends_a_session_once(
    tmp_path: Path, node: PlantedNode, monkeypatch: pytest.MonkeyPatch, topic: str, function: str
) -> None:
    """A message that ends a session by a Python error is named in the journal, and the next start rejects it.

    Every other message gets its row, and the journal is empty after that start.
    """
    del node.errors["getmempoolentry"]
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 0}}
    node.results["getmempoolentry"] = MEMPOOL_ENTRY
    sent = [entered(number) for number in range(12)]
    poisoned = sent[5] if topic == "sequence" else Message("alpha", "s", topic, 0, 5500, b"poison")
    sent = [each for each in sent if each != poisoned]
    sent.insert(5, poisoned)
    poison = bytes(poisoned.body[31::-1]) if function.endswith("enter") else poisoned.body
    monkeypatch.setattr(function, failing(pkgutil.resolve_name(function), poison))

    collecting = Collecting(tmp_path, node)
    collecting.put(*sent)
    with pytest.raises(KeyError, match="a mistake of ours"), collecting.running():
        wait_until(lambda: collecting.source.is_drained)  # the session has ended
    with Journal(collecting.journal_folder) as journal:
        left = journal.recover(collecting.dataset)
        assert poisoned._replace(number=0) in [each._replace(number=0) for each in left]
        (unfinished,) = unfinished_sessions(left, journal.states).values()
        assert collecting.session(journal).recover(unfinished, threading.Event()) is Outcome.COMPLETE
        assert journal.states == {}
    with Journal(collecting.journal_folder) as journal:
        assert journal.recover(collecting.dataset) == []

    (reject,) = collecting.dataset.read(REJECTS).to_pylist()
    assert (reject["topic"], reject["sequence"], reject["body"]) == (topic, poisoned.sequence, poisoned.body)
    assert reject["reason"] == "it ended the session: KeyError: 'a mistake of ours'"
    events = collecting.dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist()
    assert sorted(events) == [each.sequence for each in sent if each.topic == "sequence" and each != poisoned]


@pytest.mark.parametrize(
    "function",
    [
        "collector.mempool.entries.PendingEntries._finish_by_mempool_entry",
        "collector.blocks.tracker.block_rows",
        "collector.service.polls.ask_template",
        "collector.service.polls.Polls._on_stats",
    ],
)
def test_an_error_of_ours_over_an_answer_ends_no_session(
    tmp_path: Path, node: PlantedNode, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Every message has its row. A block that has none is kept, and the next session stores it."""

    def mistake(*_arguments: Any, **_options: Any) -> None:
        raise KeyError("a mistake of ours")

    raw = solved_block([], height=101)
    block = decode_block(raw)
    txids = [hash_hex(transaction.txid) for transaction in block.transactions]
    node.errors = {"getblock": NOT_FOUND}
    answer = {"height": 101, "tx": [{"txid": txid} for txid in txids]}
    node.results |= {f"getblock {hash_hex(block.block_hash)}": answer}
    node.results |= {"getmempoolentry": MEMPOOL_ENTRY, "getrawtransaction": "00"}
    node.results |= {"uptime": 1, "getrawmempool": {"txids": [], "mempool_sequence": 0}}
    announced = Message("alpha", "s", "rawblock", 0, 13_000, raw)
    monkeypatch.setattr(function, mistake)

    collecting = Collecting(tmp_path, node, stats_interval_s=0.01)
    with collecting.running():
        collecting.put(*(entered(number) for number in range(12)), announced)
        wait_until(lambda: node.n_asked["getmempoolentry"] >= 12 and node.n_asked["getblock"])
        wait_until(lambda: "alpha" in collecting.metrics.states())
        collecting.wait_turns()
        wait_until(lambda: collecting.sample("waiting_messages") == 0)

    rejects = collecting.dataset.read(REJECTS).to_pylist()
    if function.endswith("block_rows"):
        assert [each["body"] for each in rejects if each["topic"] == "rawblock"] == [raw]
        assert all("our code fails" in each["reason"] for each in rejects)
        assert collecting.dataset.read(BLOCKS).num_rows == 0
    else:
        assert rejects == []
        assert collecting.dataset.read(BLOCKS).column("block_hash").to_pylist() == [block.block_hash]
    fees = collecting.dataset.read(MEMPOOL_TXS).column("fee_sat").to_pylist()
    assert fees == [None if function.endswith("entry") else 1000] * 12
    assert collecting.dataset.read(MEMPOOL_EVENTS).num_rows == 12

    monkeypatch.undo()
    node.n_asked.clear()
    again = Collecting(tmp_path, node)
    with again.running():
        again.put(announced)
        wait_until(lambda: node.n_asked["getblock"])
    assert block.block_hash in again.dataset.read(BLOCKS).column("block_hash").to_pylist()
