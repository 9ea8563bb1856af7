"""Test one collector with two nodes: each has its rows, a block is stored once, and one node may fail."""

import threading
import time
from pathlib import Path

import pytest
import requests
import structlog

from collector.blocks.stored import StoredBlocks
from collector.check.model import BREACH
from collector.check.run import check
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES, hash_bytes
from collector.monitor.metrics import Metrics
from collector.regtest import RegtestNode, find_bitcoind
from collector.service.node_watch import NodeWatch, prepare_node
from collector.status.gather import gather
from tests.functional.replay import read, wait_published
from tests.functional.running import DEADLINE_S, collecting, settings_for, wait_complete, wait_for_log

pytestmark = pytest.mark.bitcoind


def wait_for_tip(node: RegtestNode, block: str) -> None:
    """Wait until `block` is the node's tip."""
    deadline = time.monotonic() + DEADLINE_S
    while node.client().call("getbestblockhash") != block:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_node_may_fail_without_the_other(tmp_path: Path) -> None:
    """Both nodes report the first blocks; after one is killed, the other is followed without a gap."""
    bitcoind = find_bitcoind()
    with RegtestNode(bitcoind, listen=True) as first, RegtestNode(bitcoind) as second:
        second.connect(first)
        (base,) = first.client().call("generatetodescriptor", 1, "raw(51)")
        wait_for_tip(second, base)
        wait_published(second.client())
        settings = settings_for(tmp_path / "dataset", first=first, second=second)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step", 2)
            shared = first.client().call("generatetodescriptor", 2, "raw(51)")
            wait_for_tip(second, shared[-1])
            wait_complete(settings, first, second)
            second.kill()
            wait_for_log(logs, "zmq.lost", 3, node="second")
            alone = first.client().call("generatetodescriptor", 2, "raw(51)")
            wait_complete(settings, first)

    dataset = Dataset.open(tmp_path / "dataset", "regtest")
    rows = {name: dataset.read(table).to_pylist() for name, table in TABLES.items()}
    assert sorted(row["node"] for row in rows["nodes"]) == ["first", "second"]
    hashes = [row["block_hash"] for row in rows["blocks"]]
    assert sorted(hashes) == sorted(hash_bytes(name) for name in (*shared, *alone))
    seen = {(row["node"], row["block_hash"]) for row in rows["block_arrivals"] if row["event"] == "connected"}
    for name in shared:
        assert {("first", hash_bytes(name)), ("second", hash_bytes(name))} <= seen
    for name in alone:
        assert ("first", hash_bytes(name)) in seen
        assert ("second", hash_bytes(name)) not in seen
    ends = {(row["node"], row["end_reason"]) for row in rows["coverage"] if row["topic"] == "sequence"}
    assert ends == {("first", "shutdown"), ("second", "reconnect")}


def test_a_node_that_stops_before_its_session_is_awaited(tmp_path: Path) -> None:
    """When a node stops between subscription and session, the session begins once the node is back."""
    stop, metrics = threading.Event(), Metrics()
    with RegtestNode(find_bitcoind()) as node:
        node.client().call("generatetodescriptor", 1, "raw(51)")
        settings = settings_for(tmp_path / "dataset", alone=node)
        dataset = Dataset.open(settings.dataset, "regtest", create=True)
        prepared = prepare_node(settings.node[0], settings)
        node.stop()
        watch = NodeWatch(settings.node[0], settings=settings, dataset=dataset, metrics=metrics, stop=stop)
        with structlog.testing.capture_logs() as logs:
            try:
                watch.start(prepared, StoredBlocks((), None))
                wait_for_log(logs, "node.away", node="alone")
                assert watch.error is None
                node.start()
                wait_for_log(logs, "mempool.in_step", node="alone")
            finally:
                stop.set()
                watch.join()
    assert watch.error is None
    assert [row["node"] for row in dataset.read(TABLES["nodes"]).to_pylist()] == ["alone"]


def hand_over(blocks: list[str], giver: RegtestNode, taker: RegtestNode) -> None:
    """Submit one node's blocks to the other by RPC; a peer connection would take a minute to come back."""
    for block in blocks:
        taker.client().call("submitblock", giver.client().call("getblock", block, 0))
    wait_for_tip(taker, blocks[-1])


def test_reorganisations_of_depth_1_to_6_keep_every_body(tmp_path: Path) -> None:
    """When a node switches to the other's longer branch, its stale blocks stay in the dataset.

    Each node has its own arrivals of the blocks.
    """
    bitcoind = find_bitcoind()
    stale: list[bytes] = []
    active: list[bytes] = []
    with RegtestNode(bitcoind, listen=True) as first, RegtestNode(bitcoind) as second:
        hand_over(first.client().call("generatetodescriptor", 1, "raw(51)"), first, second)
        with collecting(settings_for(tmp_path / "dataset", first=first, second=second)) as logs:
            wait_for_log(logs, "mempool.in_step", 2)
            for depth in range(1, 7):
                stale += map(hash_bytes, first.client().call("generatetodescriptor", depth, "raw(51)"))
                longer = second.client().call("generatetodescriptor", depth + 1, "raw(52)")
                active += map(hash_bytes, longer)
                hand_over(longer, second, first)
                wait_for_log(logs, "chain.reorganised", depth=depth, node="first")
    rows = read(tmp_path / "dataset")
    blocks = {row["block_hash"]: row for row in rows["blocks"]}
    assert blocks.keys() == {*stale, *active}
    assert all(row["height"] and row["verdict"] == "valid" for row in rows["blocks"])
    assert {row["block_hash"] for row in rows["transactions"]} == blocks.keys()
    events = {
        (row["node"], row["event"], row["block_hash"])
        for row in rows["block_arrivals"]
        if row["kind"] == "pushed"
    }
    assert {hash_ for node, event, hash_ in events if (node, event) == ("first", "disconnected")} == set(
        stale
    )
    assert {
        hash_ for node, event, hash_ in events if (node, event) == ("first", "connected")
    } == blocks.keys()
    assert {hash_ for node, event, hash_ in events if (node, event) == ("second", "connected")} == set(active)
    assert not any(row["is_catch_up"] is None for row in rows["block_arrivals"] if row["event"] == "seen")


def test_blocks_that_a_node_catches_up_with_are_marked(tmp_path: Path) -> None:
    """Old blocks that arrive together from a peer are marked as catch-up; the next new block is not."""
    bitcoind = find_bitcoind()
    with RegtestNode(bitcoind, listen=True) as first, RegtestNode(bitcoind) as second:
        first.client().call("setmocktime", int(time.time()) - 10_800)
        old = first.client().call("generatetodescriptor", 12, "raw(51)")
        settings = settings_for(tmp_path / "dataset", late=second)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            second.connect(first)
            wait_for_tip(second, old[-1])
            first.client().call("setmocktime", 0)
            (live,) = first.client().call("generatetodescriptor", 1, "raw(51)")
            wait_for_tip(second, live)
            wait_complete(settings, second)
    rows = read(tmp_path / "dataset")
    marks = {
        row["block_hash"]: row["is_catch_up"]
        for row in rows["block_arrivals"]
        if (row["kind"], row["event"]) == ("pushed", "connected")
    }
    assert marks == {**dict.fromkeys(map(hash_bytes, old), True), hash_bytes(live): False}


def test_a_node_that_fails_is_retried_and_disturbs_no_other(tmp_path: Path) -> None:
    """A node that comes back without a topic is retried; meanwhile the other is followed without a gap."""
    bitcoind = find_bitcoind()
    with RegtestNode(bitcoind) as first, RegtestNode(bitcoind) as second:
        first.client().call("generatetodescriptor", 1, "raw(51)")
        settings = settings_for(tmp_path / "dataset", first=first, second=second)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step", 2)
            second.options = ("-nozmqpubrawtx",)
            second.restart()
            wait_for_log(logs, "watch.failed", node="second")
            second.options = ()
            second.restart()
            found = first.client().call("generatetodescriptor", 2, "raw(51)")
            wait_for_log(logs, "session.started", 2, node="second")
            wait_for_log(logs, "mempool.in_step", 2, node="second")
            wait_complete(settings, first)
    rows = read(tmp_path / "dataset")
    assert sorted(row["node"] for row in rows["nodes"]) == ["first", "second", "second"]
    assert {row["end_reason"] for row in rows["coverage"] if row["node"] == "first"} == {"shutdown"}
    seen = {row["block_hash"] for row in rows["block_arrivals"] if row["node"] == "first"}
    assert seen >= set(map(hash_bytes, found))


def test_a_node_that_is_not_there_or_has_no_chain_holds_up_no_other(tmp_path: Path) -> None:
    """While one node is down, and then has only its first block, the other is followed and `check` passes."""
    bitcoind = find_bitcoind()
    with RegtestNode(bitcoind) as first, RegtestNode(bitcoind) as second:
        first.client().call("generatetodescriptor", 1, "raw(51)")
        settings = settings_for(tmp_path / "dataset", first=first, second=second)
        second.stop()
        settings = settings.model_copy(update={"startup_patience_s": 0.0})
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step", node="first")
            wait_for_log(logs, "node.away", node="second")
            found = first.client().call("generatetodescriptor", 2, "raw(51)")
            (reason,) = requests.get(f"http://{settings.metrics}/readyz", timeout=5).json()["reasons"]
            assert reason.startswith("node second: ")
            second.start()
            wait_for_log(logs, "mempool.in_step", node="second")
            dataset = Dataset.open(tmp_path / "dataset", "regtest")
            assert [each for each in check(dataset) if each.status == BREACH] == []
            tips = {node.name: (node.is_running, node.tip_height) for node in gather(dataset).nodes}
            assert tips == {"first": (True, 3), "second": (True, 0)}
            assert requests.get(f"http://{settings.metrics}/readyz", timeout=5).json()["ready"] is True
    assert [each for each in check(dataset) if each.status == BREACH] == []
    rows = read(tmp_path / "dataset")
    assert {row["end_reason"] for row in rows["coverage"] if row["node"] == "first"} <= {"shutdown", "sealed"}
    assert {row["block_hash"] for row in rows["blocks"]} == set(map(hash_bytes, found))
