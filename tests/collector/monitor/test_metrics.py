"""Test metrics, health and readiness over HTTP, on loopback unless a setting allows other addresses."""

import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from collector.dataset.schema import TABLES, ZMQ_TOPICS
from collector.errors import SettingsError
from collector.monitor import health as health_module
from collector.monitor.health import Health
from collector.monitor.http import MonitorServer
from collector.monitor.metrics import Metrics, NodeState
from collector.receive.records import Message
from collector.regtest.ports import free_ports


def state(*, in_step: bool = True, away: bool = False, waiting_s: float = 0.0) -> NodeState:
    """Return the state of a node with this many seconds of waiting and these flags."""
    return NodeState(in_step=in_step, away=away, n_mempool=3, n_queued=0, n_waiting=0, waiting_s=waiting_s)


class Service:
    """Serves the metrics and health of two nodes, `alpha` and `beta`, over HTTP."""

    def __init__(self, folder: Path) -> None:
        self.now_s: float | None = None
        journals = {name: folder / name for name in ("alpha", "beta")}
        for journal in journals.values():
            journal.mkdir()
        self.metrics = Metrics(journals)
        self.metrics.report_disk(folder, journals)
        self.health = Health(self.metrics, journals)
        self.server = MonitorServer(f"127.0.0.1:{free_ports(1)[0]}", self.metrics, self.health)

    def get(self, path: str) -> requests.Response:
        """Send a GET request for a path and return the answer."""
        return requests.get(f"http://127.0.0.1:{self.server.port}{path}", timeout=5)

    def values(self) -> dict[str, float]:
        """Return the value of every sample of /metrics, by its name and labels."""
        families = text_string_to_metric_families(self.get("/metrics").text)
        return {
            "".join([sample.name, *(f",{value}" for _, value in sorted(sample.labels.items()))]): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Serve the metrics of two nodes that have not reported anything yet."""
    made = Service(tmp_path)
    yield made
    made.server.close()


def test_each_metric_has_the_reported_value(service: Service, tmp_path: Path) -> None:
    """Counters add up, gauges show the last state, and disk sizes are measured at the scrape."""
    metrics = service.metrics
    (tmp_path / "alpha" / "1.journal").write_bytes(b"x" * 77)
    metrics.began("alpha", {"clock_offset_us": -250_000})
    metrics.received("alpha", [Message("alpha", "s", "rawtx", n, 10**9 * n, b"") for n in (1, 2, 3)])
    metrics.lost("alpha", "rawtx", "gap")
    metrics.resynced("alpha", "gap")
    metrics.wrote({"blocks": 2})
    metrics.sealed("alpha", 0.2, 4)
    metrics.state("alpha", state(waiting_s=1.5))
    values = service.values()
    expected = {
        "messages_total,alpha,rawtx": 3,
        "messages_total,beta,rawtx": 0,
        "losses_total,alpha,gap,rawtx": 1,
        "resyncs_total,alpha,gap": 1,
        "sessions_total,alpha": 1,
        "rows_total,blocks": 2,
        "files_total": 4,
        "seal_seconds_count,alpha": 1,
        "lag_seconds_count,alpha": 1,
        "last_message_timestamp_seconds,alpha,rawtx": 3,
        "clock_offset_seconds,alpha": -0.25,
        "in_step,alpha": 1,
        "rpc_away,alpha": 0,
        "mempool_transactions,alpha": 3,
        "oldest_waiting_seconds,alpha": 1.5,
        "journal_bytes,alpha": 77,
        "journal_bytes,beta": 0,
    }
    assert {name: values[f"pool_collector_{name}"] for name in expected} == expected
    assert values["pool_collector_disk_free_bytes"] > 0
    assert values["process_resident_memory_bytes"] > 1 << 20


def test_readiness_names_every_reason(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """/readyz is good when both nodes are in step and nothing is late; else it lists every reason."""
    answer = service.get("/readyz")
    assert answer.status_code == 503
    assert [reason.partition(":")[0] for reason in answer.json()["reasons"]] == ["node alpha", "node beta"]
    service.metrics.state("alpha", state())
    service.metrics.state("beta", state())
    answer = service.get("/readyz")
    assert (answer.status_code, answer.json()["ready"], answer.json()["reasons"]) == (200, True, [])

    service.metrics.state("alpha", state(in_step=False, waiting_s=99.0))
    service.metrics.away("beta")
    text = service.get("/readyz").text
    for words in ("alpha: our copy of the mempool", "incomplete for 99 s", "beta: its RPC does not answer"):
        assert words in text

    service.metrics.state("alpha", state()._replace(silent=("rawtx", "sequence")))
    assert "alpha: nothing comes of rawtx, sequence" in service.get("/readyz").text

    service.metrics.received("beta", [Message("beta", "s", "rawtx", 1, 10**9, b"")])  # received long ago
    service.metrics.state("beta", state())
    assert "wait" in service.get("/readyz").text

    monkeypatch.setattr(health_module, "LEAST_FREE_BYTES", 1 << 62)
    assert "MiB left" in service.get("/readyz").text


class Storage:
    """Stands for a journal that cannot be written while `blocked` is not empty."""

    blocked = ""


def test_a_full_disk_makes_unready_but_not_dead(service: Service) -> None:
    """A journal that waits for disk space makes the service unready, not dead: a restart would not help."""
    storage = Storage()
    for node in ("alpha", "beta"):
        service.metrics.state(node, state())
    service.metrics.report_storage("beta", storage)
    assert service.get("/readyz").status_code == 200
    assert service.values()["pool_collector_storage_blocked,beta"] == 0
    storage.blocked = "no space left"
    assert service.get("/readyz").json()["reasons"] == ["node beta: nothing can be written: no space left"]
    assert service.values()["pool_collector_storage_blocked,beta"] == 1
    late_s = service.metrics.states()["beta"].turn_s + health_module.STALLED_S + 1
    late = Health(service.metrics, {}, clock=lambda: late_s)
    assert [reason.partition(":")[0] for reason in late.stalled()] == ["node alpha"]


def test_a_journal_that_is_gone_makes_unready(service: Service, tmp_path: Path) -> None:
    """When a journal's folder is gone, the service is unready and the reason names the folder."""
    for node in ("alpha", "beta"):
        service.metrics.state(node, state())
    (tmp_path / "beta").rmdir()
    assert service.get("/readyz").json()["reasons"] == [
        f"node beta: the journal {tmp_path / 'beta'} cannot be written"
    ]


def test_a_node_that_is_away_makes_unready_but_not_dead(service: Service) -> None:
    """A node that is away makes the service unready but not dead: a restart would not bring it back."""
    assert service.get("/healthz").status_code == 200
    service.metrics.away("alpha")
    assert service.get("/healthz").status_code == 200
    assert service.get("/readyz").status_code == 503


def test_a_thread_that_hangs_is_found() -> None:
    """A node whose thread has not finished a turn for two minutes counts as stalled."""
    metrics = Metrics(["alpha"])
    metrics.state("alpha", state())
    began_s = metrics.states()["alpha"].turn_s
    late = Health(metrics, {}, clock=lambda: began_s + health_module.STALLED_S + 1)
    assert late.stalled() == ["node alpha: its thread has taken no turn for 121 s"]
    early = Health(metrics, {}, clock=lambda: began_s + health_module.STALLED_S - 1)
    assert early.stalled() == []


def test_a_gap_is_counted_from_zero(service: Service) -> None:
    """Loss counters exist with the value 0 from the start.

    Prometheus sees no increase in a counter that first appears at 1, so the first gap would raise no alert.
    """
    values = service.values()
    for reason in ("gap", "overflow", "reconnect", "silent", "clock_step"):
        assert values[f"pool_collector_losses_total,beta,{reason},rawtx"] == 0
        assert values[f"pool_collector_resyncs_total,beta,{reason}"] == 0
    service.metrics.lost("beta", "rawtx", "gap")
    later = service.values()
    assert later.keys() == values.keys()
    assert later["pool_collector_losses_total,beta,gap,rawtx"] == 1


def test_the_first_reject_is_counted_from_zero(service: Service) -> None:
    """The counter of each table's rows exists with the value 0 from the start, so a first reject is seen."""
    values = service.values()
    assert {values[f"pool_collector_rows_total,{table}"] for table in TABLES} == {0}
    service.metrics.wrote({"rejects": 1})
    later = service.values()
    assert later.keys() == values.keys()
    assert later["pool_collector_rows_total,rejects"] == 1


def test_a_topic_that_never_says_anything_is_silent_since_the_start(tmp_path: Path) -> None:
    """The times of the last message and seal begin with the start, so that alerts on their age can fire."""
    before_s = time.time()
    made = Service(tmp_path)
    values = made.values()
    made.server.close()
    names = [f"last_message_timestamp_seconds,beta,{topic}" for topic in ZMQ_TOPICS]
    for name in (*names, "last_seal_timestamp_seconds,beta"):
        assert before_s <= values[f"pool_collector_{name}"] <= time.time()


def test_a_scrape_works_when_the_dataset_is_gone(tmp_path: Path) -> None:
    """When the dataset's folder is gone, a scrape leaves out only the free space of its disk."""
    metrics = Metrics(["alpha"])
    metrics.report_disk(tmp_path / "gone", {"alpha": tmp_path / "gone" / "journal"})
    names = {family.name for family in metrics.registry.collect() if family.samples}
    assert "pool_collector_disk_free_bytes" not in names
    assert {"pool_collector_journal_bytes", "pool_collector_in_step"} <= names


def test_a_client_that_hangs_up_is_not_logged(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    """A client that breaks its connection causes no log line, and the next client gets its answer."""
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", service.server.port)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by reset
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert service.get("/readyz?verbose=1").status_code == 503
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("n_bytes", "status"), [(8 << 10, b"200"), (30 << 10, b"400")])
def test_a_request_has_a_limit_however_fast_it_comes(service: Service, n_bytes: int, status: bytes) -> None:
    """A request line and headers of more than 16 KiB are refused, also where they come all at once."""
    with socket.create_connection(("127.0.0.1", service.server.port), 10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * n_bytes + b"\r\n\r\n")

        assert client.recv(12) == b"HTTP/1.1 " + status


def test_other_paths_are_not_found(service: Service) -> None:
    """An unknown path is answered with status 404 and the list of paths that exist."""
    answer = service.get("/else")
    assert (answer.status_code, "/readyz" in answer.text) == (404, True)


@pytest.mark.parametrize("address", ["0.0.0.0:9000", "192.0.2.1:9000"])
def test_other_addresses_are_refused(address: str) -> None:
    """An address that other machines can reach is refused unless a setting allows it."""
    metrics = Metrics()
    with pytest.raises(SettingsError, match="allow_remote_metrics"):
        MonitorServer(address, metrics, Health(metrics, {}))


def test_a_remote_address_is_served_when_allowed() -> None:
    """An address that other machines can reach is served when the setting allows it."""
    metrics = Metrics()
    server = MonitorServer(f"0.0.0.0:{free_ports(1)[0]}", metrics, Health(metrics, {}), allow_remote=True)
    try:
        assert requests.get(f"http://127.0.0.1:{server.port}/healthz", timeout=5).ok
    finally:
        server.close()


def test_a_taken_port_is_named(service: Service) -> None:
    """When the port is in use, the error names the address."""
    address = f"127.0.0.1:{service.server.port}"
    with pytest.raises(SettingsError, match=address):
        MonitorServer(address, service.metrics, service.health)


def test_prometheus_accepts_the_metrics(service: Service) -> None:
    """`promtool check metrics` accepts the names, types and help texts of our metrics."""
    promtool = os.environ.get("PROMTOOL") or which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install prometheus, or set PROMTOOL")
    service.metrics.received("alpha", [Message("alpha", "s", "rawtx", 1, 10**9, b"")])
    service.metrics.sealed("alpha", 0.1, 1)
    ours = "\n".join(line for line in service.get("/metrics").text.splitlines() if "pool_collector_" in line)
    result = subprocess.run(
        [promtool, "check", "metrics"], input=f"{ours}\n", capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
