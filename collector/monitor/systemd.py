"""Report the state of the service to systemd by sd_notify(3): datagrams of NAME=value lines.

Nothing is sent without NOTIFY_SOCKET in the environment. WATCHDOG=1 is sent only while every node's thread
finishes turns, so that systemd restarts a service whose thread hangs. The journal makes that restart
lossless.
"""

import os
import socket
import threading
from collections.abc import Mapping
from typing import Final

import structlog

from collector.monitor.health import Health

BEATS_PER_PERIOD: Final = 4  # WATCHDOG=1 per period: two may be late
LONGEST_PAUSE_S: Final = 15.0  # between two reports of the status
SEND_S: Final = 1.0  # the longest wait for a socket that nobody reads
log = structlog.get_logger(__name__)


class Notifier:
    """Sends READY=1 and STOPPING=1 on request, and STATUS and WATCHDOG=1 regularly from its own thread."""

    def __init__(self, health: Health, environment: Mapping[str, str] = os.environ) -> None:
        self._health = health
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = (
            "\0" + address[1:] if address.startswith("@") else address
        )  # @ stands for an abstract socket of Linux, which is no file
        self._period_s = _watchdog_s(environment)
        self._status = ""  # as last sent
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="systemd", daemon=True)
        if self._address:
            self._thread.start()

    def ready(self) -> None:
        """Tell systemd that the service has started: each node has its thread, also one that is away."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Tell systemd that the service is stopping; WATCHDOG=1 goes on while the last rows are sealed."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Stop sending reports to systemd, and wait for the thread that sends them to end."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Send WATCHDOG=1 regularly until `close`, unless a node's thread hangs; send STATUS on a change."""
        pause_s = min(self._period_s / BEATS_PER_PERIOD, LONGEST_PAUSE_S)
        while not self._stopping.wait(pause_s):
            stalled = self._health.stalled()
            if not stalled:
                self._send("WATCHDOG=1")
            reasons = "; ".join(stalled or self._health.unready())
            status = " ".join(reasons.split()) or "following every node"
            if status != self._status:
                self._status = status
                self._send(f"STATUS={status}")

    def _send(self, line: str) -> None:
        """Send one NAME=value line to systemd's socket, if there is one; log a warning when that fails."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_S)
                # A reason may hold a path of any bytes, which is no text.
                sender.sendto(line.encode(errors="backslashreplace"), self._address)
        except OSError as error:
            log.warning("systemd.unreachable", address=self._address, reason=error.strerror or str(error))


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Return the watchdog period in seconds that systemd asks of this process, or a default of 60 seconds."""
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    period_us = environment.get("WATCHDOG_USEC", "") if is_ours else ""
    return int(period_us) / 1e6 if period_us.isdigit() else LONGEST_PAUSE_S * BEATS_PER_PERIOD
