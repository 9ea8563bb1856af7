"""Test that a private node starts, has the addresses it names, and is gone afterwards in every case."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from collector.errors import RegtestError
from collector.regtest import Bitcoind, RegtestNode, make_wallet
from collector.regtest.ports import free_ports
from collector.regtest.wallet import pay

pytestmark = pytest.mark.bitcoind


def is_running(process_id: int | None) -> bool:
    """Return whether a process with this id exists and is not a zombie."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait up to a minute until `condition` holds; return whether it does."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_node_answers_and_leaves_nothing_behind(bitcoind: Bitcoind) -> None:
    """Inside the block RPC answers on regtest; after it process and datadir are gone."""
    with RegtestNode(bitcoind) as node:
        process_id, datadir = node.process_id, node.datadir
        assert node.client().call("getblockchaininfo")["chain"] == "regtest"
        assert is_running(process_id)
    assert not is_running(process_id)
    assert not datadir.exists()


def test_a_node_is_stopped_when_the_block_raises(bitcoind: Bitcoind) -> None:
    """An exception passes through and the node is gone all the same."""
    seen: list[RegtestNode] = []
    process_ids: list[int | None] = []

    def fail() -> None:
        with RegtestNode(bitcoind) as node:
            seen.append(node)
            process_ids.append(node.process_id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_running(process_ids[0])
    assert not seen[0].datadir.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_ends_with_a_killed_owner(bitcoind: Bitcoind, tmp_path: Path, signal_number: int) -> None:
    """Even SIGKILL of the owner, which runs no clean-up, does not leave a node running."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from collector.regtest.bitcoind import probe; from collector.regtest.node import RegtestNode\n"
        "node = RegtestNode(probe(Path(sys.argv[1]), 'test'), datadir=Path(sys.argv[2])); node.start()\n"
        "print('pid', node.process_id, flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, bitcoind.path, tmp_path / "datadir"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        words = next(line for line in owner.stdout if line.startswith("pid")).split()
        process_id = int(words[1])
        assert is_running(process_id)
        os.kill(owner.pid, signal_number)
    assert eventually(lambda: not is_running(process_id))


def test_a_restart_keeps_the_chain_and_the_mempool_if_wanted(node: RegtestNode) -> None:
    """The datadir, the addresses and, unless told otherwise, the mempool survive a restart."""
    wallet = make_wallet(node, 1, seed=1)
    payment = pay([wallet.take()], [], feerate_sat_vb=5)
    rpc = node.client()
    txid = rpc.call("sendrawtransaction", payment.transaction.raw.hex())
    tip, endpoints = rpc.call("getbestblockhash"), node.zmq_endpoints
    node.restart()
    assert node.zmq_endpoints == endpoints
    assert node.client().call("getbestblockhash") == tip
    assert eventually(lambda: node.client().call("getrawmempool") == [txid])
    node.restart(with_mempool=False)
    assert node.client().call("getrawmempool") == []


def test_a_killed_node_can_be_started_again(node: RegtestNode) -> None:
    """After a kill there is no process; a start on the same datadir brings the node back."""
    node.kill()
    assert node.process_id is None
    node.start()
    assert node.client().call("getblockcount") == 0


def test_every_topic_is_published_on_an_address_of_its_own(node: RegtestNode) -> None:
    """A mined block arrives on all four topics, each with the high-water mark that was asked for."""
    assert len(set(node.zmq_endpoints.values())) == 4
    with zmq.Context() as context, zmq.Context.socket(context, zmq.SUB) as subscriber:
        subscriber.setsockopt(zmq.LINGER, 0)
        subscriber.setsockopt(zmq.RCVTIMEO, 10_000)
        for topic, address in node.zmq_endpoints.items():
            subscriber.setsockopt_string(zmq.SUBSCRIBE, topic)
            subscriber.connect(address)
        time.sleep(0.2)  # a subscription takes a moment to reach the publisher
        make_wallet(node, 1, seed=1)
        seen: set[str] = set()
        while seen != set(node.zmq_endpoints):
            seen.add(subscriber.recv_multipart()[0].decode())
    notifications = node.client().call("getzmqnotifications")
    assert {each["hwm"] for each in notifications} == {node.zmq_hwm}


def test_two_nodes_follow_each_other_and_part(bitcoind: Bitcoind) -> None:
    """A block of one reaches the other while they are connected, and not afterwards."""
    with RegtestNode(bitcoind, listen=True) as first, RegtestNode(bitcoind) as second:
        second.connect(first)
        assert eventually(lambda: first.client().call("getconnectioncount") == 1)
        make_wallet(first, 1, seed=1)
        tip = first.client().call("getbestblockhash")
        assert eventually(lambda: second.client().call("getbestblockhash") == tip)
        second.disconnect(first)
        assert eventually(lambda: first.client().call("getconnectioncount") == 0)
        with pytest.raises(RegtestError, match="listen=True"):
            first.connect(second)


def test_a_start_that_fails_says_why_in_the_nodes_words(bitcoind: Bitcoind) -> None:
    """A wrong option ends in one error that carries what bitcoind said, and no datadir stays."""
    node = RegtestNode(bitcoind, options=["-nosuchoption"])
    with pytest.raises(RegtestError, match="nosuchoption"), node:
        pass
    assert node.process_id is None
    assert not node.datadir.exists()


def test_a_port_taken_in_between_leads_to_another(
    bitcoind: Bitcoind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When somebody takes our port before the node does, the node starts on others."""
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        answers = iter([[taken, *free_ports(5)], free_ports(6)])
        monkeypatch.setattr("collector.regtest.node.free_ports", lambda _count: next(answers))
        with RegtestNode(bitcoind) as node:
            assert str(taken) not in node.rpc_url


def test_a_datadir_of_the_callers_own_stays(bitcoind: Bitcoind, tmp_path: Path) -> None:
    """Closing a node keeps a datadir that the caller gave."""
    with RegtestNode(bitcoind, datadir=tmp_path / "kept") as node:
        assert node.cookie_path.exists()
    assert (tmp_path / "kept" / "regtest" / "blocks").is_dir()
