"""Define faults between node and collector: RPC that refuses, hangs or drips, and half-open ZMQ links."""

import time
from urllib.parse import urlsplit

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.memory_use import memory_use
from tests.functional.chaos.network import Mode, Proxy
from tests.functional.chaos.recorder import TOPICS
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

AWAY_S = 60.0
SHORTEST_S = 4.0
NOTICE_S = 100.0  # in which a dead link must be noticed
RPC_TIMEOUT_S = 5
ENDLESS_MAY_TAKE_BYTES = 400_000_000  # an answer is refused at 128 MiB at most, and several come at once
STOP_S = 20.0  # a stop waits a few seconds for answers that rows need, and then for no more
DRIPS_NOTICED_S = 45.0  # an answer that drips takes minutes, and each of its bytes is in time


def _without_rpc(world: World, mode: Mode) -> Verdict:
    """Keep traffic going while a proxy makes RPC unavailable in this `mode`, and for two seconds after."""
    proxy = Proxy(_port(world.node.rpc_url))
    world.at_end(proxy.close)
    collector = world.new_collector(
        node_settings={"rpc_url": f"http://127.0.0.1:{proxy.port}", "rpc_timeout_s": RPC_TIMEOUT_S}
    )
    collector.start()
    traffic = world.traffic
    traffic.begin()
    time.sleep(world.about(1))
    proxy.set(mode)
    time.sleep(max(SHORTEST_S, world.about(AWAY_S * world.scale)))
    proxy.set("pass")
    time.sleep(2)
    traffic.end()
    return world.conclude()


@fault("rpc_refuses", "the node's RPC refuses connections for about a minute", n_coins=15_000)
def rpc_refuses(world: World) -> Verdict:
    """Make the RPC proxy refuse connections for a while."""
    return _without_rpc(world, "refuse")


@fault("rpc_hangs", "the node's RPC takes questions and does not answer for about a minute", n_coins=15_000)
def rpc_hangs(world: World) -> Verdict:
    """Make the RPC proxy accept connections and never answer for a while."""
    return _without_rpc(world, "hang")


@fault(
    "rpc_drips",
    "the node's RPC answers a byte a second, and the collector is stopped and started meanwhile",
    n_coins=15_000,
)
def rpc_drips(world: World) -> Verdict:
    """Let every answer of RPC drip for a while: the collector must notice it, and say that it is not ready.

    It is then stopped, and started again, while answers still drip. A deadline per read would notice nothing,
    because no byte is late.
    """
    proxy = Proxy(_port(world.node.rpc_url))
    world.at_end(proxy.close)
    collector = world.new_collector(
        settings={"startup_patience_s": 600},
        node_settings={"rpc_url": f"http://127.0.0.1:{proxy.port}", "rpc_timeout_s": RPC_TIMEOUT_S},
    )
    collector.start()
    world.traffic.busy(world.about(1))
    found = [f"{problem}, while it ran" for problem in _drip(world, proxy)]
    began_s = time.monotonic()
    if collector.stop():
        found.append("a stop while answers drip does not end with status 0")
    world.facts["a stop took s"] = round(time.monotonic() - began_s, 1)
    if time.monotonic() - began_s > STOP_S:
        found.append(f"a stop while answers drip takes more than {STOP_S:g} s")
    collector.start(wait=False)
    if not collector.wait_for("node.awaited", timeout_s=DRIPS_NOTICED_S):
        found.append(f"no word of node.awaited within {DRIPS_NOTICED_S:g} s, at the start")
    proxy.set("pass")
    collector.wait_in_step()
    world.traffic.busy(2)
    verdict = world.conclude(has_all_fees=True)
    verdict.faults += found
    return verdict


def _drip(world: World, proxy: Proxy) -> list[str]:
    """Let answers drip under traffic until the collector notices; return what it has not done in time."""
    proxy.set("drip")
    began_s = time.monotonic()
    collector = world.collector
    missing = {"no word of node.away", "/readyz says ready"}
    while missing and time.monotonic() - began_s < DRIPS_NOTICED_S:
        world.traffic.busy(1)
        if "node.away" in collector.said:
            missing.discard("no word of node.away")
        if not collector.is_ready:
            missing.discard("/readyz says ready")
    world.facts["noticed after s"] = round(time.monotonic() - began_s, 1)
    return sorted(f"{each} within {DRIPS_NOTICED_S:g} s" for each in missing)


@fault(
    "rpc_endless",
    "the node's RPC answers without end, or with 256 MiB that gzip has made small; memory must stay bounded",
    n_coins=15_000,
)
def rpc_endless(world: World) -> Verdict:
    """Let every answer of RPC be too large for a while: each is refused, and asked for again later."""
    proxy = Proxy(_port(world.node.rpc_url))
    world.at_end(proxy.close)
    collector = world.new_collector(
        node_settings={"rpc_url": f"http://127.0.0.1:{proxy.port}", "rpc_timeout_s": RPC_TIMEOUT_S}
    )
    collector.start()
    world.traffic.busy(world.about(1))
    before = most = memory_use(collector.processes).private
    modes: list[Mode] = ["endless", "gzip"]
    world.draw.shuffle(modes)
    for mode in modes:
        proxy.set(mode)
        until_s = time.monotonic() + max(SHORTEST_S, world.about(AWAY_S * world.scale / 3))
        while time.monotonic() < until_s:
            world.traffic.busy(0.2)
            most = max(most, memory_use(collector.processes).private)
    proxy.set("pass")
    world.traffic.busy(2)
    assert proxy.n_sent, "nothing was asked meanwhile: this was no fault"
    world.facts["MB sent by the proxy"] = round(proxy.n_sent / 1e6)
    world.facts["private MB, before and most"] = [round(before / 1e6), round(most / 1e6)]
    verdict = world.conclude()
    if most - before > ENDLESS_MAY_TAKE_BYTES:
        verdict.faults.append(f"endless answers take {(most - before) / 1e6:.0f} MB of memory")
    return verdict


def _half_open(world: World, frozen: tuple[str, ...]) -> Verdict:
    """Freeze the connections of these topics under traffic, until the collector has made new ones.

    The wait ends after NOTICE_S seconds.
    """
    proxies = {topic: Proxy(_port(world.node.zmq_endpoints[topic])) for topic in TOPICS}
    for proxy in proxies.values():
        world.at_end(proxy.close)
    zmq = {topic: f"tcp://127.0.0.1:{proxy.port}" for topic, proxy in proxies.items()}
    collector = world.new_collector(node_settings={"zmq": zmq})
    collector.start()
    world.traffic.busy(world.about(1))
    for topic in frozen:
        proxies[topic].set("freeze")
    began_s = time.monotonic()
    while any(not proxies[topic].n_links for topic in frozen) and time.monotonic() - began_s < NOTICE_S:
        world.traffic.busy(1)
    world.facts["noticed after s"] = round(time.monotonic() - began_s, 1)
    if any(not proxies[topic].n_links for topic in frozen):
        world.facts["noticed after s"] = f"not within {NOTICE_S:g}"
    for topic in frozen:
        proxies[topic].set("pass")
    time.sleep(1)
    world.traffic.busy(2)
    return world.conclude(must_end=["reconnect"], may_end=["gap"])


@fault("zmq_half_open", "all ZMQ links are half open: they stand, and nothing comes", n_coins=25_000)
def zmq_half_open(world: World) -> Verdict:
    """Freeze the connections of all three topics."""
    return _half_open(world, TOPICS)


@fault("sequence_half_open", "the link of the `sequence` topic alone is half open", n_coins=25_000)
def sequence_half_open(world: World) -> Verdict:
    """Freeze the connection of `sequence` alone; the other topics go on."""
    return _half_open(world, ("sequence",))


def _port(address: str) -> int:
    port = urlsplit(address).port
    assert port is not None
    return port
