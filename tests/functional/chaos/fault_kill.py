"""Faults of our own process: killed, and killed again."""

import signal
import time

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

N_KILLS = 30
LONGEST_RUN_S = 5.0


@fault(
    "kill",
    "SIGKILL at 30 random moments of a busy scenario, at start-up and in recovery too",
    n_coins=40_000,
)
def kill(world: World) -> Verdict:
    """Kill and start again; every other time while the one before is being recovered."""
    collector, traffic = world.collector, world.traffic
    n_kills = max(2, round(N_KILLS * world.scale))
    traffic.begin()
    collector.start()
    for _ in range(n_kills):
        time.sleep(world.draw.uniform(0, LONGEST_RUN_S))
        collector.stop(signal.SIGKILL)
        collector.start(wait=False)
    collector.wait_in_step()
    traffic.send(5)
    traffic.end()
    world.facts["kills"] = n_kills
    return world.conclude(must_end=["killed"])
