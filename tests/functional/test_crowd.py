"""Test that many idle or slow clients of /metrics cost the collector neither descriptors nor messages."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from collector.monitor.http import DEADLINE_S
from collector.regtest import RegtestNode, make_wallet
from tests.functional.replay import mempool_by_rows, node_mempool, read, send, wait_published

pytestmark = pytest.mark.bitcoind
N_IDLE = 1000
N_SLOW = 50
MOST_FILES = 160  # the collector itself needs about 90


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise this process's limit of open files, so that it can open all connections of a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = N_IDLE + N_SLOW + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the system allows {hard} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def connections(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Open `count` connections to the server and close them at the end of the `with` block."""
    host, _, port = url.removeprefix("http://").partition(":")
    with contextlib.ExitStack() as opened:
        address = host, int(port)
        yield [opened.enter_context(socket.create_connection(address, timeout=30)) for _ in range(count)]


def is_closed(peer: socket.socket) -> bool:
    """Return whether the server has closed a connection; wait a little longer than its deadline."""
    peer.settimeout(DEADLINE_S + 10)
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_clients_cost_nothing(node: RegtestNode, new_collector: Callable[..., Any]) -> None:
    """Despite a thousand idle clients, scrapes are answered, every event is recorded, the stop is clean."""
    rpc, wallet = node.client(), make_wallet(node, 20, seed=41)
    wait_published(rpc)
    collector = new_collector()
    collector.start(wrapper=("prlimit", f"--nofile={MOST_FILES}"))
    with connections(collector.url, N_IDLE) as idle, connections(collector.url, N_SLOW) as slow:
        for peer in slow:
            with contextlib.suppress(ConnectionError):  # closed by now, as the oldest of too many
                peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        for _ in range(10):
            send(rpc, wallet, 2)
            assert requests.get(f"{collector.url}/readyz", timeout=30).status_code == 200
            with contextlib.suppress(ConnectionError):
                slow[-1].sendall(b"a: b\r\n")
        collector.wait_for("dataset.sealed", after=collector.log.stat().st_size)
        assert all(is_closed(peer) for peer in (idle[0], idle[-1], slow[0]))
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()
    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    assert len(in_node) == 20
    assert {row["end_reason"] for row in rows["coverage"]} == {"sealed", "shutdown"}


def test_a_client_that_drips_is_cut_off_at_the_deadline(new_collector: Callable[..., Any]) -> None:
    """A client that sends a byte at a time is disconnected at the deadline of its whole connection."""
    collector = new_collector()
    collector.start()
    with connections(collector.url, 1) as (peer,):
        peer.settimeout(0.5)
        peer.sendall(b"GET /metrics HTTP/1.1\r\n")
        deadline_s = time.monotonic() + 3 * DEADLINE_S
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < deadline_s
                peer.sendall(b"a")
                with contextlib.suppress(TimeoutError):
                    if not peer.recv(1):
                        break
    assert collector.samples()["in_step"] == 1
    assert collector.stop() == 0
