"""Define the faults that kill our own processes with SIGKILL: the receiver alone, or the collector."""

import os
import signal
import time
from contextlib import suppress

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

N_KILLS = 30
LONGEST_RUN_S = 5.0


@fault(
    "receiver_killed",
    "SIGKILL of the process that receives alone, and of everything at once, at random moments",
    n_coins=12_000,
)
def receiver_killed(world: World) -> Verdict:
    """Kill the collector's child processes several times; every second time kill the collector as well."""
    collector, traffic = world.collector, world.traffic
    n_kills = max(2, round(N_KILLS / 3 * world.scale))
    collector.start()
    traffic.begin()
    for number in range(n_kills):
        time.sleep(world.draw.uniform(0.5, LONGEST_RUN_S / 2))
        for child in collector.children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if number % 2:
            collector.stop(signal.SIGKILL)
            collector.start(wait=False)
        else:
            time.sleep(0.5)
        collector.wait_in_step()
    traffic.end()
    world.facts["kills"] = n_kills
    return world.conclude(must_end=["killed"], may_end=["reconnect", "gap", "silent", "overflow"])


@fault(
    "kill",
    "SIGKILL at 30 random moments of a busy scenario, at start-up and in recovery too",
    n_coins=40_000,
)
def kill(world: World) -> Verdict:
    """Kill the collector and start it again, many times.

    Every second kill comes without waiting for the start and the recovery to finish.
    """
    collector, traffic = world.collector, world.traffic
    n_kills = max(2, round(N_KILLS * world.scale))
    traffic.begin()
    collector.start()
    for number in range(n_kills):
        if number % 2 == 0:
            collector.wait_in_step()
        time.sleep(world.draw.uniform(0, LONGEST_RUN_S))
        collector.stop(signal.SIGKILL)
        collector.start(wait=False)
    collector.wait_in_step()
    traffic.send(5)
    traffic.end()
    world.facts["kills"] = n_kills
    return world.conclude(must_end=["killed"])
