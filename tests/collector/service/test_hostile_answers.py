"""Test that no answer of a node ends a session, whatever it holds: it is refused, or asked for again."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import MEMPOOL_EVENTS, MEMPOOL_STATS, MEMPOOL_TXS, TEMPLATE_TXS, TEMPLATES
from collector.errors import NodeError
from collector.node.rpc import RpcClient
from collector.receive.records import Notice
from collector.service.polls import ask_stats, ask_template
from collector.service.watchdog import MessageCounts, OurState, Watchdog, ask_look
from tests.collector.hostile import HOSTILE, changed
from tests.collector.service.planted import MEMPOOL_ENTRY, MEMPOOL_INFO, NOT_FOUND, TIP, PlantedNode
from tests.collector.service.test_session import ORIGIN, Collecting, entered, wait_until

CHAIN_INFO = {"bestblockhash": TIP, "blocks": 100, "headers": 100, "initialblockdownload": False}
TOPICS = [{"type": f"pub{topic}"} for topic in ("sequence", "rawtx", "rawblock")]
TEMPLATE = {
    "height": 101,
    "previousblockhash": TIP,
    "curtime": 1,
    "coinbasevalue": 5_000_000_000,
    "transactions": [{"txid": "33" * 32, "fee": 5, "weight": 400, "sigops": 1, "depends": [1]}],
}
SOUND: dict[str, Any] = {
    "getblocktemplate": TEMPLATE,
    "getmempoolinfo": MEMPOOL_INFO,
    "getblockchaininfo": CHAIN_INFO,
    "getzmqnotifications": TOPICS,
    "getchaintips": [],
    "getbestblockhash": TIP,
    "getmempoolentry": MEMPOOL_ENTRY,
    "getrawtransaction": "00",
    "uptime": 1,
    "getrawmempool": {"txids": [], "mempool_sequence": 1},
}
SOME_HOSTILE = (None, [], {}, [None], "zz", -1, 1 << 300, 0.5)


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a node that gives sound answers, and does not find its tip's block."""
    made = PlantedNode()
    made.results = copy.deepcopy(SOUND)
    made.errors["getblock"] = NOT_FOUND
    yield made
    made.close()


@pytest.mark.parametrize("method", SOUND)
def test_a_session_goes_on_after_every_answer(tmp_path: Path, node: PlantedNode, method: str) -> None:
    """Each method gives values that no node gives, then a sound answer; the session makes its rows."""
    often = dict.fromkeys(("stats_interval_s", "chain_tips_interval_s"), 0.01)
    if method == "getblocktemplate":  # else chain tips would wait for one template after the other
        often["template_interval_s"] = 0.01
    collecting = Collecting(tmp_path, node, **often)
    with collecting.running():
        for number, hostile in enumerate(SOME_HOSTILE):
            n_asked = node.n_asked[method]
            node.results[method] = hostile
            collecting.put(entered(number), Notice("gap", "sequence", 1, "a test"))
            wait_until(lambda n_asked=n_asked: node.n_asked[method] > n_asked)
        node.results[method] = SOUND[method]
        n_asked = node.n_asked[method]
        collecting.put(entered(len(SOME_HOSTILE)), Notice("gap", "sequence", 1, "a test"))
        wait_until(lambda: node.n_asked[method] > n_asked)
    events = collecting.dataset.read(MEMPOOL_EVENTS).to_pylist()
    numbers = sorted(row["sequence"] for row in events if row["kind"] == "pushed")
    assert numbers == list(range(len(SOME_HOSTILE) + 1))
    entries = collecting.dataset.read(MEMPOOL_TXS).to_pylist()
    assert {row["txid"] for row in entries if row["first_seen_kind"] == "pushed"} == {
        bytes(entered(number).body[31::-1]) for number in numbers
    }


def take_template(client: RpcClient) -> None:
    """Ask for a template and make Arrow rows of it, as the journal would."""
    rows = ask_template(client, ORIGIN, "regtest", "tip")
    to_batch(TEMPLATES, [rows.template])
    to_batch(TEMPLATE_TXS, rows.transactions)


def take_stats(client: RpcClient) -> None:
    """Ask for the statistics and make an Arrow row of them."""
    to_batch(MEMPOOL_STATS, [ask_stats(client, ORIGIN)])


def take_look(client: RpcClient) -> None:
    """Look at the node three times and compare the answers."""
    watchdog, counts = Watchdog(["sequence", "rawtx", "rawblock"]), MessageCounts()
    for _ in range(3):
        watchdog.compare(ask_look(client), counts, counts, OurState(None, 5))


def test_a_mempool_with_negative_fees_is_none(node: PlantedNode) -> None:
    """The sum is of fees as they are paid, which prioritisetransaction does not change."""
    node.results["getmempoolinfo"] = MEMPOOL_INFO | {"total_fee": -0.1}
    client = node.client()
    with pytest.raises(NodeError, match="getmempoolinfo: total_fee"):
        ask_stats(client, ORIGIN)
    client.close()


@pytest.mark.parametrize(
    ("take", "method"),
    [
        (take_template, "getblocktemplate"),
        (take_stats, "getmempoolinfo"),
        (take_look, "getmempoolinfo"),
        (take_look, "getblockchaininfo"),
        (take_look, "getzmqnotifications"),
    ],
)
def test_a_wrong_answer_to_a_poll_is_told_in_one_sentence(
    node: PlantedNode, take: Callable[[RpcClient], None], method: str
) -> None:
    """Each field of each answer gets each hostile value, and no other error than NodeError is raised."""
    client = node.client()
    take(client)
    said: dict[str, str] = {}
    for where, hostile in changed(SOUND[method]):
        node.results[method] = json.loads(json.dumps(hostile))
        try:
            take(client)
        except NodeError as error:
            said[where] = str(error)
    client.close()
    assert {where: text for where, text in said.items() if not text.isprintable() or len(text) > 300} == {}
    assert len(said) >= len(HOSTILE) // 2
