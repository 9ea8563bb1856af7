"""Define the fault of wrong RPC answers, such as no node gives."""

import time

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.lying import LyingProxy
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

WRONG_S = 60.0
SHORTEST_S = 10.0
RPC_TIMEOUT_S = 20
PATIENCE_S = 60


@fault(
    "rpc_wrong",
    "an RPC answer in seven is wrong: of other types, out of range, nested, left out, or a page of a proxy",
    n_coins=15_000,
)
def rpc_wrong(world: World) -> Verdict:
    """Make answers wrong under traffic, at a stop and at a start: no session ends, no fault is logged.

    A start may be refused meanwhile, in one sentence. A fee may be unknown in the end, and never wrong.
    """
    proxy = LyingProxy(world.node.rpc_url, world.draw)
    world.at_end(proxy.close)
    collector = world.new_collector(
        settings={"startup_patience_s": PATIENCE_S},
        node_settings={"rpc_url": proxy.url, "rpc_timeout_s": RPC_TIMEOUT_S},
    )
    collector.start()
    world.traffic.busy(world.about(1))
    proxy.wrong_ratio = 1 / 7
    until_s = time.monotonic() + max(SHORTEST_S, world.about(WRONG_S * world.scale))
    while time.monotonic() < until_s and collector.status is None:
        world.traffic.busy(1)
    found = [] if collector.status is None else [f"the collector ended with {collector.status}"]
    if collector.stop():
        found.append("a stop while answers are wrong does not end with status 0")
    collector.start(wait=False)
    world.traffic.busy(world.about(5))
    proxy.wrong_ratio = 0.0
    assert proxy.n_wrong, "no answer was wrong: this was no fault"
    collector.wait_in_step()
    world.traffic.busy(2)
    world.facts["wrong answers"] = dict(sorted(proxy.n_wrong.items()))
    verdict = world.conclude()
    said = collector.log.read_text(errors="replace")
    found += [f"the log has {word!r}" for word in ("Traceback", "answer.failed") if word in said]
    verdict.faults += found
    return verdict
