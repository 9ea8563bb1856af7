"""Answers of a wrong form to requests about the mempool give a NodeError in one sentence, or a sound row."""

import copy
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from collector.codec.scripts import UNKNOWN_TYPE
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import MEMPOOL_TXS, OUTPUT_TYPES
from collector.errors import NodeError
from collector.mempool.entries import OutputRequest, PendingEntries, PendingEntry
from collector.mempool.fee_lookup import ask_mempool_entries, ask_outputs, outputs_of_answers
from collector.mempool.snapshot import ask_snapshot
from collector.mempool.sync import MempoolContents, MempoolSync
from collector.node.rpc import RpcClient
from tests.collector.hostile import HOSTILE, changed
from tests.collector.service.planted import MEMPOOL_ENTRY, PlantedNode

TXID = bytes(31) + b"\x01"
SNAPSHOT = {"txids": ["11" * 32], "mempool_sequence": 5}


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a server that gives the answers which a test sets."""
    made = PlantedNode()
    yield made
    made.close()


def take_snapshot(client: RpcClient) -> None:
    """Ask for a mempool snapshot and apply it."""
    sync = MempoolSync()
    sync.start()
    sync.snapshot(1, ask_snapshot(client).snapshot)
    sync.tick(1 << 62)


def take_entry(client: RpcClient) -> None:
    """Ask for a mempool entry with its bytes, and make the row of it as the journal would."""
    contents = MempoolContents()
    pending = PendingEntries("alpha", "s", contents)
    contents.enter(TXID, None)
    pending.add(PendingEntry(TXID, "pushed", 1, 1, None, None))
    answers = ask_mempool_entries(client, pending.next_requests(1))
    to_batch(MEMPOOL_TXS, [done.row for done in (pending.take_answers(answers, 1) + pending.flush())])
    contents.histogram()


def take_output(client: RpcClient) -> None:
    """Ask gettxout for an output, and read its value and type."""
    requests = [OutputRequest(TXID, TXID, 0)]
    for output in outputs_of_answers(requests, ask_outputs(client, requests)).values():
        assert 0 <= output.value_sat < 1 << 63
        assert output.type_number in {*range(len(OUTPUT_TYPES)), UNKNOWN_TYPE}


SOUND: dict[str, tuple[Callable[[RpcClient], None], Any]] = {
    "uptime": (take_snapshot, 10),
    "getrawmempool": (take_snapshot, SNAPSHOT),
    "getmempoolentry": (take_entry, MEMPOOL_ENTRY),
    "getrawtransaction": (take_entry, "00"),
    "gettxout": (take_output, {"value": 0.5, "scriptPubKey": {"hex": "51024e73", "type": "anchor"}}),
}


@pytest.mark.parametrize("method", SOUND)
def test_a_wrong_answer_is_told_in_one_sentence(node: PlantedNode, method: str) -> None:
    """Each field of each answer gets each hostile value, and no other error than NodeError is raised.

    An answer about one transaction or output leaves only that one's row with less: it is no error.
    """
    take, sound = SOUND[method]
    results = {name: answer for name, (_, answer) in SOUND.items()}
    node.results = copy.deepcopy(results)
    client = node.client()
    take(client)
    said: dict[str, str] = {}
    for where, hostile in changed(sound):
        node.results = results | {method: hostile}
        try:
            take(client)
        except NodeError as error:
            said[where] = str(error)
    client.close()
    assert {where: text for where, text in said.items() if not text.isprintable() or len(text) > 300} == {}
    assert len(said) >= (len(HOSTILE) // 2 if method in ("uptime", "getrawmempool") else 1)


def test_the_hostile_values_reach_the_client(node: PlantedNode) -> None:
    """JSON carries each hostile value to the client unchanged; NaN is refused by the client itself."""
    client = node.client()
    for value in HOSTILE:
        node.results = {"uptime": value}
        if value != value:  # noqa: PLR0124 - NaN alone differs from itself
            with pytest.raises(NodeError, match="JSON"):
                client.call("uptime")
        else:
            assert client.call("uptime") == json.loads(json.dumps(value), parse_float=Decimal)
    client.close()


@pytest.mark.parametrize("n_wrong", range(4))
def test_a_passing_wrong_entry_costs_no_fee(node: PlantedNode, n_wrong: int) -> None:
    """An entry of a wrong form is asked for again; after the third the row is made without a fee."""
    contents = MempoolContents()
    pending = PendingEntries("alpha", "s", contents)
    contents.enter(TXID, None)
    pending.add(PendingEntry(TXID, "pushed", 1, 1, None, None))
    client = node.client()
    wrong = [None, {**MEMPOOL_ENTRY, "fees": {"base": True}}, MEMPOOL_ENTRY | {"weight": -1}]
    fees = []
    for answer in [*wrong[:n_wrong], MEMPOOL_ENTRY]:
        node.results = {"getmempoolentry": answer, "getrawtransaction": "00"}
        requests = pending.next_requests(1)
        fees += [
            done.row.get("fee_sat")
            for done in pending.take_answers(ask_mempool_entries(client, requests), 1)
            if requests
        ]
    client.close()
    assert fees == ([1000] if n_wrong < 3 else [None])
    assert len(pending) == 0
