"""Tell systemd how the service stands, over its own protocol: sd_notify(3), a datagram of NAME=value lines.

Without NOTIFY_SOCKET in the environment nothing is said. The watchdog is fed only while every node's thread
turns, so that one that hangs ends in a restart; the journal makes that a restart without a loss.
"""

import os
import socket
import threading
from collections.abc import Mapping
from typing import Final

import structlog

from collector.monitor.health import Health

BEATS_PER_PERIOD: Final = 4  # of the watchdog: two may be late
LONGEST_PAUSE_S: Final = 15.0  # between two looks at the status
SAY_S: Final = 1.0  # who does not listen holds us up no longer
log = structlog.get_logger(__name__)


class Notifier:
    """Says READY when told to, STATUS and WATCHDOG from a thread of its own, STOPPING at the end."""

    def __init__(self, health: Health, environment: Mapping[str, str] = os.environ) -> None:
        self._health = health
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # @: no file, Linux's own
        self._period_s = _watchdog_s(environment)
        self._said = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="systemd", daemon=True)
        if self._address:
            self._thread.start()

    def ready(self) -> None:
        """Say that every node is being followed."""
        self._say("READY=1")

    def stopping(self) -> None:
        """Say that the end has begun; the watchdog is fed on, for what is received is still to be sealed."""
        self._say("STOPPING=1")

    def close(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause_s = min(self._period_s / BEATS_PER_PERIOD, LONGEST_PAUSE_S)
        while not self._stopping.wait(pause_s):
            stalled = self._health.stalled()
            if not stalled:
                self._say("WATCHDOG=1")
            reasons = "; ".join(stalled or self._health.unready())
            status = " ".join(reasons.split()) or "following every node"
            if status != self._said:
                self._said = status
                self._say(f"STATUS={status}")

    def _say(self, line: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SAY_S)
                sender.sendto(line.encode(), self._address)
        except OSError as error:
            log.warning("systemd.unreachable", address=self._address, reason=error.strerror or str(error))


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """How often systemd wants to hear of us; the longest pause times beats when it does not say."""
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    period_us = environment.get("WATCHDOG_USEC", "") if is_ours else ""
    return int(period_us) / 1e6 if period_us.isdigit() else LONGEST_PAUSE_S * BEATS_PER_PERIOD
