"""Messages that never arrive and a node that restarts: each hole is named, and what it hid is found again."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import Wallet, pay
from collector.rpc import RpcClient
from collector.schema import TABLES, hash_bytes
from collector.writer import Dataset

pytestmark = pytest.mark.bitcoind
SETTLE_S = 0.8
TOPICS = ("sequence", "rawtx", "rawblock")


class Relay:
    """Stands between node and collector and loses what it is told to; counters stay the node's."""

    def __init__(self, node: RegtestNode) -> None:
        self.losing: set[str] = set()
        self.n_lost = 0
        self.mangling: dict[str, int] = {}  # topic -> position of a byte to change in the next body
        self._context = zmq.Context()
        self._sub = self._context.socket(zmq.SUB)
        self._pub = self._context.socket(zmq.PUB)
        for topic in TOPICS:
            self._sub.subscribe(topic)
            self._sub.connect(node.zmq_endpoints[topic])
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        self.endpoints = dict.fromkeys(TOPICS, f"tcp://127.0.0.1:{port}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._sub.poll(50):
                frames = self._sub.recv_multipart()
                if frames[0].decode() in self.losing:
                    self.n_lost += 1
                else:
                    at = self.mangling.pop(frames[0].decode(), None)
                    if at is not None:
                        body = bytearray(frames[1])
                        body[at] ^= 0xFF
                        frames[1] = bytes(body)
                    self._pub.send_multipart(frames)

    def close(self) -> None:
        """Stop relaying."""
        self._stopping.set()
        self._thread.join()
        self._context.destroy(0)


@pytest.fixture
def relay(node: RegtestNode) -> Iterator[Relay]:
    """Relay what the node publishes."""
    relaying = Relay(node)
    yield relaying
    relaying.close()


def read(dataset_folder: Any) -> dict[str, list[dict[str, Any]]]:
    """Read every table; keys must be unique."""
    dataset = Dataset.open(dataset_folder, "regtest")
    rows = {name: dataset.read(table).to_pylist() for name, table in TABLES.items()}
    for name, table in TABLES.items():
        keys = [tuple(row[column] for column in table.grain) for row in rows[name]]
        assert len(keys) == len(set(keys)), name
    return rows


def mempool_by_rows(rows: dict[str, list[dict[str, Any]]], session: str) -> set[bytes]:
    """Replay a session's rows: what must be in the mempool at its end."""
    inside = {
        row["txid"]
        for row in rows["mempool_txs"]
        if row["session"] == session and row["first_seen_kind"] == "at_start"
    }
    mined: dict[bytes, list[bytes]] = {}
    for row in rows["transactions"]:
        mined.setdefault(row["block_hash"], []).append(row["txid"])
    events = [row for row in rows["mempool_events"] if row["session"] == session]
    for row in sorted(events, key=lambda row: (row["received_at"], abs(row["sequence"]))):
        if row["event"] == "A":
            inside.add(row["hash"])
        elif row["event"] == "R":
            inside.discard(row["hash"])
        elif row["event"] == "C":
            inside.difference_update(mined[row["hash"]])
    return inside


def send(rpc: RpcClient, wallet: Wallet, count: int) -> None:
    """Send payments."""
    for _ in range(count):
        payment = pay([wallet.take()], [], feerate_sat_vb=3)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())


def node_mempool(rpc: RpcClient) -> set[bytes]:
    """Ask for the txids in the mempool."""
    return {hash_bytes(txid) for txid in rpc.call("getrawmempool")}


def test_lost_messages_are_named_and_made_good(
    node: RegtestNode, relay: Relay, new_collector: Callable[[], Any]
) -> None:
    """Events and a block are lost on the way: gaps in coverage, pulled rows, every block, the right set."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=5)
    time.sleep(SETTLE_S)
    collector = new_collector()
    collector.use(relay.endpoints)
    collector.start()
    rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 10)
    time.sleep(SETTLE_S)
    relay.losing = {"sequence", "rawblock"}
    send(rpc, wallet, 5)
    (lost_block,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 5)
    time.sleep(SETTLE_S)
    relay.losing = set()
    assert relay.n_lost == 12
    send(rpc, wallet, 3)
    rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 4)
    time.sleep(2)
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    ends = {(row["topic"], row["end_reason"]) for row in rows["coverage"]} - {
        (topic, reason) for topic in (*TOPICS, "mempool") for reason in ("sealed", "shutdown")
    }
    assert ends == {("sequence", "gap"), ("rawblock", "gap"), ("mempool", "gap")}
    assert mempool_by_rows(rows, session) == in_node
    pulled = [row for row in rows["mempool_events"] if row["kind"] == "pulled"]
    assert {row["event"] for row in pulled} >= {"R"}
    assert all(row["sequence"] < 0 for row in pulled)
    assert hash_bytes(lost_block) in {row["block_hash"] for row in rows["blocks"]}
    arrivals = [row for row in rows["block_arrivals"] if row["block_hash"] == hash_bytes(lost_block)]
    assert {row["kind"] for row in arrivals} == {"pulled"}


def test_what_arrives_broken_is_kept_whole_and_fetched_again(
    node: RegtestNode, relay: Relay, new_collector: Callable[[], Any]
) -> None:
    """A transaction, an event and a block with a wrong byte are rejects; what they said is found anyway."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=8)
    time.sleep(SETTLE_S)
    collector = new_collector()
    collector.use(relay.endpoints)
    collector.start()
    relay.mangling = {"rawtx": 4}  # the number of inputs, or the witness marker
    send(rpc, wallet, 4)
    time.sleep(SETTLE_S)
    relay.mangling = {"rawblock": -6}  # in the last transaction
    (mined,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    time.sleep(SETTLE_S)
    relay.mangling = {"sequence": 32}  # the letter
    send(rpc, wallet, 3)
    time.sleep(2)
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    assert sorted(row["topic"] for row in rows["rejects"]) == ["rawblock", "rawtx", "sequence"]
    (block,) = (row for row in rows["blocks"] if row["block_hash"] == hash_bytes(mined))
    assert (block["verdict"], block["source"]) == ("valid", "rpc")
    rejected = next(row["body"] for row in rows["rejects"] if row["topic"] == "rawblock")
    assert len(rejected) == block["size_bytes"]
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    assert all(row["n_inputs"] == 1 for row in rows["mempool_txs"])


def test_a_restarted_node_is_a_new_session(node: RegtestNode, new_collector: Callable[[], Any]) -> None:
    """The node goes and comes back: the first session ends, a second begins with what is in the mempool."""
    rpc, wallet = node.client(), make_wallet(node, 100, seed=6)
    time.sleep(SETTLE_S)
    collector = new_collector()
    collector.start()
    send(rpc, wallet, 8)
    time.sleep(SETTLE_S)
    before = collector.log.stat().st_size
    node.restart()
    collector.wait_for("session.started", after=before)
    collector.wait_for("mempool.in_step", after=collector.log.read_text().rindex("session.started"))
    send(rpc, wallet, 2)
    (mined,) = rpc.call("generatetodescriptor", 1, "raw(51)")
    send(rpc, wallet, 1)
    time.sleep(SETTLE_S)
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()

    rows = read(collector.dataset)
    first, second = sorted(rows["nodes"], key=lambda row: row["started_at"])
    reasons = {
        row["end_reason"]
        for row in rows["coverage"]
        if row["session"] == first["session"] and row["topic"] == "sequence"
    }
    assert reasons & {"reconnect", "node_restart"}
    assert mempool_by_rows(rows, second["session"]) == in_node
    assert any(row["first_seen_kind"] == "at_start" for row in rows["mempool_txs"])
    # The dataset begins with the first block that it saw come.
    assert [row["block_hash"] for row in rows["blocks"]] == [hash_bytes(mined)]
