"""Play ordinary traffic for a long time: memory must stay flat, and the dataset must be whole."""

import time

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.memory_use import SAMPLE_S, MemoryUse, judge_memory, memory_use
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

DURATION_S = 3600.0
SHORTEST_S = 20.0
TRANSACTIONS_PER_S = 10
BLOCK_EVERY_S = 10.0
COINS = round(DURATION_S * TRANSACTIONS_PER_S)


@fault(
    "steady",
    "10 transactions a second and a block every 10 s, for an hour; memory must stay flat",
    n_coins=COINS,
    usual_scale=0.02,
)
def steady(world: World) -> Verdict:
    """Send payments and mine blocks on time while memory is sampled, then judge dataset and memory."""
    world.collector.start()
    duration_s = max(SHORTEST_S, DURATION_S * world.scale)
    processes = world.collector.processes  # not the compaction that begins ten minutes later
    samples: list[MemoryUse] = []
    n_blocks = 0
    began_s = time.monotonic()
    while (now_s := time.monotonic() - began_s) < duration_s:
        if now_s >= len(samples) * SAMPLE_S:
            samples.append(memory_use(processes))
        n_due = int(now_s * TRANSACTIONS_PER_S) + 1 - world.traffic.n_sent
        if n_due > 0:
            world.traffic.send(n_due)
        if now_s >= (n_blocks + 1) * BLOCK_EVERY_S:
            world.traffic.mine()
            n_blocks += 1
        time.sleep(0.02)
    world.facts |= {"transactions": world.traffic.n_sent, "blocks mined": n_blocks, "for s": duration_s}
    verdict = world.conclude()
    judge_memory(samples, duration_s, verdict)
    return verdict
