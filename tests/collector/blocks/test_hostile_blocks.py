"""Answers of a wrong form to requests about blocks give a NodeError in one sentence, or sound rows."""

import copy
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from collector.blocks.fetcher import ask_behind, ask_block, ask_tip
from collector.blocks.recent import RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import AnswerUse, BlockAnswer, BlockTracker
from collector.dataset.schema import hash_bytes
from collector.errors import NodeError
from collector.journal.batches import Batch
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.wallet import pay
from tests.collector.blocks.noted_requests import NotedRequests
from tests.collector.hostile import HOSTILE, changed
from tests.collector.service.planted import PlantedNode

pytestmark = pytest.mark.bitcoind
READ = ("height", "tx")  # the fields that we read of getblock; other fields stay as they are


@pytest.fixture
def planted() -> Iterator[PlantedNode]:
    """Start a server that gives the answers which a test sets."""
    made = PlantedNode()
    yield made
    made.close()


@pytest.fixture(scope="module")
def mined() -> Iterator[tuple[bytes, bytes, dict[str, Any]]]:
    """Mine a block with a payment on a real node; return its hash, its bytes and the answer of getblock."""
    with RegtestNode(find_bitcoind()) as node:
        rpc = node.client()
        payment = pay([make_wallet(node, 1, seed=1).take()], [], feerate_sat_vb=5)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        name = rpc.call("generatetodescriptor", 1, "raw(51)")[0]
        answer = _floats(rpc.call("getblock", name, 3))
        yield hash_bytes(name), bytes.fromhex(rpc.call("getblock", name, 0)), answer


def _floats(value: Any) -> Any:
    """Return an answer with amounts as floats, which json.dumps can write."""
    if isinstance(value, dict):
        return {name: _floats(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_floats(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def _fee_sat(sound: Any) -> int:
    """Return what the second transaction of a block pays, by the answer of getblock."""
    spent = sum(round(each["prevout"]["value"] * 1e8) for each in sound["tx"][1]["vin"])
    return spent - sum(round(each["value"] * 1e8) for each in sound["tx"][1]["vout"])


def test_a_wrong_block_is_told_in_one_sentence(
    planted: PlantedNode, mined: tuple[bytes, bytes, dict[str, Any]]
) -> None:
    """Each field that we read of getblock gets each hostile value: the result is NodeError, or a row."""
    block_hash, raw, sound = mined
    client = planted.client()
    used = {name: sound[name] for name in READ}
    names = ("txid", "vin", "vout", "fee")
    used["tx"] = [{name: each[name] for name in names if name in each} for each in sound["tx"]]
    said: dict[str, str] = {}
    fee_sat = _fee_sat(sound)
    for where, hostile in changed(used):
        planted.results = {"getblock": hostile}
        try:
            answer = ask_block(client, block_hash, raw=False)
        except NodeError as error:
            said[where] = str(error)
            continue
        tracker = BlockTracker(
            ("alpha", "s"),
            "regtest",
            stored=StoredBlocks((), 0),
            recent=RecentBlocks(),
            requests=NotedRequests(),
        )
        tracker.take_raw(raw)
        tracker.want(block_hash)
        batch = Batch()
        tracker.take_answer(block_hash, answer, 1, 1, batch)
        tracker.flush()
        rows = {table: rows.to_pylist() for table, rows in batch.arrow_batches}
        assert rows.keys() <= {"blocks", "transactions"}, where
        fees_sat = [row["fee_sat"] for row in rows.get("transactions", [])]
        assert fees_sat in ([], [None, fee_sat]), f"{where}: a wrong answer cost a block its fees"
    client.close()
    assert {where: text for where, text in said.items() if not text.isprintable() or len(text) > 300} == {}
    assert len(said) > len(HOSTILE)


def test_bytes_of_another_block_are_rejected(mined: tuple[bytes, bytes, dict[str, Any]]) -> None:
    """When the node gives the bytes of another block, it is asked once, and the bytes become a reject."""
    _, raw, sound = mined
    other = bytes(31) + b"\x09"
    requests = NotedRequests()
    tracker = BlockTracker(
        ("alpha", "s"), "regtest", stored=StoredBlocks((), 0), recent=RecentBlocks(), requests=requests
    )
    batch = Batch()
    tracker.want(other)
    txids = [hash_bytes(each["txid"]) for each in sound["tx"]]
    answer = BlockAnswer(sound["height"], txids, None, raw)
    assert tracker.take_answer(other, answer, 1, 1, batch) is AnswerUse.RESOLVED
    assert requests.asked == [other]
    assert [row["body"] for row in batch.rows["rejects"]] == [raw]
    assert not batch.arrow_batches


@pytest.mark.parametrize("method", ["getbestblockhash", "getblockchaininfo"])
def test_a_wrong_tip_is_told_in_one_sentence(planted: PlantedNode, method: str) -> None:
    """The tip's hash and the heights get each hostile value, and no other error than NodeError is raised."""
    sound: dict[str, Any] = {"getbestblockhash": "11" * 32, "getblockchaininfo": {"headers": 5, "blocks": 5}}
    client = planted.client()
    said = {}
    for where, hostile in changed(sound[method]):
        planted.results = copy.deepcopy(sound) | {method: hostile}
        try:
            ask_tip(client)
            ask_behind(client)
        except NodeError as error:
            said[where] = str(error)
    client.close()
    assert {where: text for where, text in said.items() if not text.isprintable() or len(text) > 300} == {}
    assert len(said) > len(HOSTILE) // 2
