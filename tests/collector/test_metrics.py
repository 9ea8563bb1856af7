"""Numbers and health over HTTP, on loopback only."""

import pytest
import requests

from collector.errors import SettingsError
from collector.metrics import Metrics, MetricsServer, NodeState
from collector.records import Message
from collector.regtest.node import free_ports


def state(*, in_step: bool = True, away: bool = False) -> NodeState:
    """Make the state of a node."""
    return NodeState(in_step=in_step, away=away, n_mempool=3, n_queued=0, n_waiting=0)


def test_metrics_and_health_are_served() -> None:
    """Counts appear under their names; health is bad before, good while in step, bad while away."""
    metrics = Metrics()
    server = MetricsServer(f"127.0.0.1:{free_ports(1)[0]}", metrics)
    url = f"http://127.0.0.1:{server.port}"
    try:
        assert requests.get(f"{url}/healthz", timeout=5).status_code == 503
        metrics.received("alpha", [Message("alpha", "s", "rawtx", 1, 10**9, b"")] * 3)
        metrics.lost("alpha", "rawtx", "gap")
        metrics.wrote({"blocks": 2})
        metrics.state("alpha", state())
        text = requests.get(f"{url}/metrics", timeout=5).text
        assert 'pool_collector_messages_total{node="alpha",topic="rawtx"} 3.0' in text
        assert 'pool_collector_losses_total{node="alpha",reason="gap",topic="rawtx"} 1.0' in text
        assert 'pool_collector_rows_total{table="blocks"} 2.0' in text
        assert requests.get(f"{url}/healthz", timeout=5).json()["ok"] is True
        metrics.state("beta", state(away=True))
        assert requests.get(f"{url}/healthz", timeout=5).status_code == 503
        assert requests.get(f"{url}/else", timeout=5).status_code == 404
    finally:
        server.close()


@pytest.mark.parametrize("address", ["0.0.0.0:9000", "192.0.2.1:9000"])
def test_other_addresses_are_refused(address: str) -> None:
    """Nobody else can read the numbers."""
    with pytest.raises(SettingsError, match="loopback"):
        MetricsServer(address, Metrics())


def test_a_taken_port_is_said() -> None:
    """The address is named."""
    first = MetricsServer(f"127.0.0.1:{free_ports(1)[0]}", Metrics())
    try:
        with pytest.raises(SettingsError, match=f"127.0.0.1:{first.port}"):
            MetricsServer(f"127.0.0.1:{first.port}", Metrics())
    finally:
        first.close()
