"""Draw TCP ports for nodes and servers on this machine, each for one process alone while it lives."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Final

FIRST_PORT: Final = 10_240
KERNELS_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")  # for connections and for "any port"
PORT_ATTEMPTS: Final = 1000

_drawing = threading.Lock()
_drawn: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports that nothing listens on at 127.0.0.1 right now.

    They are ports that the kernel gives to nobody by itself, and no process of this user draws them again
    while this one lives. Without such ports they are any that are free.
    """
    ports = _ports_to_draw()
    found: list[int] = []
    with _drawing:
        for _ in range(PORT_ATTEMPTS if ports else 0):
            if len(found) == count:
                break
            port = random.SystemRandom().choice(ports)
            if port not in _drawn and _is_free(port) and _is_reserved(port):
                _drawn.add(port)
                found.append(port)
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count - len(found))]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return found + [int(each.getsockname()[1]) for each in sockets]


def _ports_to_draw() -> range:
    """Return the ports below those of which the kernel takes one by itself; none if we do not know them."""
    try:
        return range(FIRST_PORT, int(KERNELS_PORTS.read_text().split()[0]))
    except OSError:
        return range(0)


def _is_free(port: int) -> bool:
    """Return whether a port at 127.0.0.1 can be bound."""
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_reserved(port: int) -> bool:
    """Reserve a port until this process ends; return whether no other process has done so.

    The lock is on one byte of a file, so it goes with the process and needs no open file for each port.
    """
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    """Open this user's file of reserved ports, for the life of this process; nothing is written to it."""
    path = Path(tempfile.gettempdir()) / f"regtest-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
