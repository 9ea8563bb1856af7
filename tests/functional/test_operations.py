"""Test what an operator sees of a running collector: metrics, health, and reports to systemd."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from collector.dataset.schema import hash_bytes
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from tests.functional.replay import read

pytestmark = pytest.mark.bitcoind
DEADLINE_S = 60.0
# Nothing is lost here and no node is away; nothing waits any more at the scrape.
QUIET = {
    *("losses", "resyncs", "rpc_away", "storage_blocked"),
    *("queued_messages", "waiting_messages", "oldest_waiting_seconds"),
}
Samples = dict[tuple[str, str], float]


class Supervisor:
    """Receives a service's reports as systemd does, on a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while self.lines[-1:] != ["end"]:
            self.lines.append(self._socket.recv(4096).decode())

    def has_received(self, *lines: str) -> bool:
        """Wait until every one of these lines was sent; return false if one does not come in time."""
        deadline = time.monotonic() + DEADLINE_S
        while not set(lines) <= set(self.lines) and time.monotonic() < deadline:
            time.sleep(0.05)
        return set(lines) <= set(self.lines)

    def close(self) -> None:
        """Stop receiving."""
        self._socket.sendto(b"end", str(self.path))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """Start a receiver in place of systemd, and ask for a watchdog report each second."""
    listening = Supervisor(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(listening.path))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    yield listening
    listening.close()


def scrape(url: str) -> Samples:
    """Return the values of our metrics by family and name, added up over their labels."""
    samples: Samples = {}
    for family in text_string_to_metric_families(requests.get(f"{url}/metrics", timeout=5).text):
        for sample in family.samples:
            if sample.name.startswith("pool_collector_"):
                key = (family.name.removeprefix("pool_collector_"), sample.name)
                samples[key] = samples.get(key, 0.0) + abs(sample.value)
    return samples


def test_every_metric_moves(
    node: RegtestNode, new_collector: Callable[..., Any], supervisor: Supervisor
) -> None:
    """After a run with traffic and a seal none of our metrics is zero, and systemd has got its reports."""
    wallet = make_wallet(node, 20, seed=3)
    collector = new_collector()
    url = collector.url
    collector.start()
    assert supervisor.has_received("READY=1", "WATCHDOG=1", "STATUS=following every node")
    node.client().call("generatetodescriptor", 1, "raw(51)")
    for _ in range(10):
        payment = pay([wallet.take()], [], feerate_sat_vb=5)
        node.client().call("sendrawtransaction", payment.transaction.raw.hex())
    collector.wait_for("dataset.sealed")
    deadline = time.monotonic() + DEADLINE_S
    still: set[str] = {"not asked"}
    while still and time.monotonic() < deadline:
        samples = scrape(url)
        families = {family for family, _ in samples}
        moved = {family for (family, _), value in samples.items() if value}
        still = families - moved - QUIET
    assert still == set()
    assert requests.get(f"{url}/readyz", timeout=5).json()["ready"] is True
    assert requests.get(f"{url}/healthz", timeout=5).status_code == 200
    assert collector.stop() == 0
    assert supervisor.has_received("STOPPING=1")


def test_closed_standard_streams_cost_nothing(
    new_collector: Callable[..., Any], node: RegtestNode, supervisor: Supervisor
) -> None:
    """A collector that is started with stdin, stdout and stderr closed collects, and its stop is clean."""
    collector = new_collector()
    collector.start(ready="", wrapper=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    assert supervisor.has_received("STATUS=following every node")
    (block,) = node.client().call("generatetodescriptor", 1, "raw(51)")
    collector.wait_taken()
    for number in range(3):
        assert Path(f"/proc/{collector.pid}/fd/{number}").readlink() == Path(os.devnull)
    assert collector.stop() == 0
    assert hash_bytes(block) in {row["block_hash"] for row in read(collector.dataset)["blocks"]}


def test_a_node_that_stops_makes_unready(
    new_collector: Callable[..., Any], node: RegtestNode, supervisor: Supervisor
) -> None:
    """When the node stops, /readyz and the status for systemd give the reason, and /healthz stays good."""
    collector = new_collector()
    url = collector.url
    collector.start()
    node.stop()
    assert supervisor.has_received("STATUS=node alpha: its RPC does not answer")
    answer = requests.get(f"{url}/readyz", timeout=5)
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["node alpha: its RPC does not answer"])
    assert scrape(url)["rpc_away", "pool_collector_rpc_away"] == 1
    assert requests.get(f"{url}/healthz", timeout=5).status_code == 200
    node.start()
    collector.wait_for("session.started", after=collector.log.read_text().index("node.away"))
    assert supervisor.has_received("STATUS=following every node")
    samples = scrape(url)
    assert samples["sessions", "pool_collector_sessions_total"] == 2
    assert samples["losses", "pool_collector_losses_total"] > 0
    assert samples["resyncs", "pool_collector_resyncs_total"] > 0
    assert collector.stop() == 0
