"""Define faults of load: a burst of transactions and a crowd of clients; the flood is in flood.py."""

import contextlib
import errno
import os
import resource
import socket
import time
from pathlib import Path

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

BURST = 50_000
CROWD = 1_000
OURS = 200  # descriptors of the process that plays the fault
SHORT_S = 20.0


@fault("burst", "50,000 transactions as fast as the node takes them, then blocks of them", n_coins=51_000)
def burst(world: World) -> Verdict:
    """Send all transactions at once, then mine blocks until nearly all are mined."""
    world.collector.start()
    count = round(BURST * world.scale)
    began_s = time.monotonic()
    world.traffic.send(count)
    world.facts["transactions"] = count
    world.facts["sent per s"] = round(count / (time.monotonic() - began_s))
    while len(world.rpc.call("getrawmempool")) > 100:
        world.traffic.mine()
    world.traffic.send(50)
    return world.conclude()


@fault(
    "crowd",
    "a thousand idle clients crowd at /metrics, and the collector has no free descriptor for a while",
    n_coins=12_000,
)
def crowd(world: World) -> Verdict:
    """Let clients send a part of a request and wait; then take the collector's free descriptors as well."""
    collector = world.collector
    collector.start()
    most = min(CROWD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OURS)
    with contextlib.ExitStack() as clients:
        for _ in range(max(100, round(most * world.scale))):
            with contextlib.suppress(OSError):  # the server may refuse, or let us wait
                client = clients.enter_context(socket.create_connection(collector.address, timeout=0.2))
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x"[: world.draw.randrange(30)])
        world.traffic.busy(world.about(2))
        pid = collector.process_id
        world.facts["descriptors under the crowd"] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, hard))  # what is open stays open
        world.traffic.busy(max(6.0, world.about(SHORT_S * world.scale)))
        ended = collector.status
        if ended is None:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert os.strerror(errno.EMFILE) in collector.said, "no descriptor was refused: this was no fault"
    world.traffic.busy(1)
    verdict = world.conclude()
    if ended is not None:
        verdict.faults.append(f"without a free descriptor the collector ended with {ended}")
    return verdict
