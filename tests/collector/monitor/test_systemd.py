"""Test what systemd is told of the service."""

import os
import secrets
import socket
from pathlib import Path

from collector.monitor.health import Health
from collector.monitor.metrics import Metrics
from collector.monitor.systemd import Notifier

PATIENCE_S = 10.0


def test_a_reason_that_is_no_text_ends_no_report(tmp_path: Path) -> None:
    """A path in bitcoin.conf may be any bytes; systemd must not take the service for dead because of it."""
    metrics = Metrics(["alpha"])
    metrics.away("alpha", f"there is no cookie file {os.fsdecode(b'/caf' + bytes([0xE9]))}/.cookie")
    name = f"pool-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        systemd.settimeout(PATIENCE_S)
        environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "40000"}
        notifier = Notifier(Health(metrics, {"alpha": tmp_path}), environment)
        try:
            said = b""
            while not said.startswith(b"STATUS="):
                said = systemd.recv(1 << 16)
            assert b"there is no cookie file" in said
            while systemd.recv(1 << 16) != b"WATCHDOG=1":
                pass
        finally:
            notifier.close()
