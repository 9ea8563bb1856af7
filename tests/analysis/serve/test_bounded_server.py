"""Test that clients who do nothing, read nothing or come in crowds cannot keep the page from others."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from analysis.serve.bounded_server import MAX_CONNECTIONS
from collector.regtest.ports import free_ports
from tests.analysis.serve.conftest import Site

N_IDLE = 1000
N_SLOW = 100
HALF = b"GET /api/v1/pools HTTP/1.1\r\nHost: localhost\r\n"
UNREAD = b"GET /marts/mempool_residence.csv HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(site: Site, opened: ExitStack, words: bytes = b"") -> socket.socket:
    """Connect a client that sends these words and then nothing."""
    client = opened.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=60))
    client.sendall(words)
    return client


def test_a_thousand_idle_clients_shut_nobody_out(site: Site) -> None:
    """Others are answered, and the oldest idle connections are closed beyond the limit."""
    with ExitStack() as opened:
        idle = [connected(site, opened) for _ in range(N_IDLE)]

        assert site.get("/api/v1/pools?window=all").status_code == 200
        assert [client.recv(1) for client in idle[: N_IDLE - MAX_CONNECTIONS]] == [b""] * (
            N_IDLE - MAX_CONNECTIONS
        )


def test_a_hundred_slow_clients_shut_nobody_out(site: Site) -> None:
    """Half of them send half a request, the others do not read; the page answers, and has let them go."""
    with ExitStack() as opened:
        for number in range(N_SLOW):
            connected(site, opened, HALF if number % 2 else UNREAD)

        assert site.get("/api/v1/pools?window=all").status_code == 200


@pytest.mark.parametrize(("n_bytes", "status"), [(8 << 10, b"200"), (30 << 10, b"400")])
def test_a_request_has_a_limit_however_fast_it_comes(site: Site, n_bytes: int, status: bytes) -> None:
    """A request line and headers of more than 16 KiB are refused, also where they come all at once."""
    with ExitStack() as opened:
        client = connected(site, opened, HALF + b"X-Long: " + b"a" * n_bytes + b"\r\n\r\n")

        assert client.recv(12) == b"HTTP/1.1 " + status


def test_the_command_serves_and_ends_with_0(served_database: Path, tmp_path: Path) -> None:
    """`pool-analysis serve` says where it listens, answers there, and SIGTERM ends it without an error."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "analysis", "serve", "--database", served_database, "--address", address]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert address in process.stdout.readline()
        assert requests.get(f"http://{address}/api/v1/build", timeout=60).json()["data"]["chain"] == "regtest"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_command_names_what_lacks(tmp_path: Path) -> None:
    """Without a database there is one sentence and status 1."""
    command = [sys.executable, "-m", "analysis", "serve", "--database", tmp_path / "none.duckdb"]
    command += ["--address", "127.0.0.1:0"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert result.returncode == 1
    path = tmp_path / "none.duckdb"
    assert result.stderr == (
        f"pool-analysis: there is no database {path}; name another with --database, or make this one with"
        f" pool-analysis build --database {path}\n"
    )
