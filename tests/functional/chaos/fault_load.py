"""Define the fault of a burst of transactions; the lasting flood is in flood.py."""

import time

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

BURST = 50_000


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
