"""Two nodes, one process, one clock: each has its rows, a block is stored once, and one may fail."""

import threading
import time
from pathlib import Path

import pytest

from collector import service
from collector.config import NodeSettings, Settings
from collector.metrics import AWAY, Metrics
from collector.regtest import RegtestNode, find_bitcoind
from collector.schema import TABLES, hash_bytes
from collector.stored import StoredBlocks
from collector.watch import Watch, prepare
from collector.writer import Dataset

pytestmark = pytest.mark.bitcoind
DEADLINE_S = 60.0


def wait_for_tip(node: RegtestNode, block: str) -> None:
    """Wait until a node has a block."""
    deadline = time.monotonic() + DEADLINE_S
    while node.client().call("getbestblockhash") != block:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def settings_for(dataset: Path, **nodes: RegtestNode) -> Settings:
    """Watch these nodes."""
    watched = tuple(
        NodeSettings(name=name, rpc_url=node.rpc_url, cookie_file=node.cookie_path)
        for name, node in nodes.items()
    )
    return Settings(chain="regtest", dataset=dataset, node=watched)


def test_one_node_may_fail_without_the_other(tmp_path: Path) -> None:
    """Both see the first blocks; after one is killed the other goes on without a hole."""
    bitcoind = find_bitcoind()
    stop = threading.Event()
    status: list[int] = []
    with RegtestNode(bitcoind, listen=True) as first, RegtestNode(bitcoind) as second:
        second.connect(first)
        (base,) = first.client().call("generatetodescriptor", 1, "raw(51)")
        wait_for_tip(second, base)
        time.sleep(0.5)
        settings = settings_for(tmp_path / "dataset", first=first, second=second)
        running = threading.Thread(target=lambda: status.append(service.run(settings, stop)))
        running.start()
        time.sleep(3)
        shared = first.client().call("generatetodescriptor", 2, "raw(51)")
        wait_for_tip(second, shared[-1])
        time.sleep(1.5)
        second.kill()
        alone = first.client().call("generatetodescriptor", 2, "raw(51)")
        time.sleep(1.5)
        stop.set()
        running.join(DEADLINE_S)
    assert status == [0]

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


def test_a_node_that_goes_away_before_the_first_session_is_awaited(tmp_path: Path) -> None:
    """It answered, was subscribed to, and stops: when it is back its session begins."""
    stop, metrics = threading.Event(), Metrics()
    with RegtestNode(find_bitcoind()) as node:
        node.client().call("generatetodescriptor", 1, "raw(51)")
        settings = settings_for(tmp_path / "dataset", alone=node)
        dataset = Dataset.open(settings.dataset, "regtest", create=True)
        prepared = prepare(settings.node[0], settings)
        node.stop()
        watch = Watch(settings.node[0], settings=settings, dataset=dataset, metrics=metrics, stop=stop)
        try:
            watch.start(prepared, StoredBlocks((), None))
            time.sleep(1)
            assert watch.error is None
            node.start()
            deadline = time.monotonic() + DEADLINE_S
            while not metrics.states().get("alone", AWAY).in_step and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            stop.set()
            watch.join()
    assert watch.error is None
    assert [row["node"] for row in dataset.read(TABLES["nodes"]).to_pylist()] == ["alone"]
