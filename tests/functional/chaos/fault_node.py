"""Define faults of the node: it drops messages, stops, restarts, hangs and reorganises its chain."""

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise

from collector.regtest import RegtestNode, find_bitcoind
from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import SETTLE_S, World

BUSY_S = 4.0
DROP_TRIES = 8
DEPTHS = range(1, 7)
AWAY = ("reconnect", "node_restart")
NODE_PATIENCE_S = 60.0


def make_drops(world: World) -> int:
    """Make the node publish more at once than its queue holds, until it drops events; return how many.

    Disconnecting a block returns all its transactions to the mempool at once, and each is published.
    """
    world.traffic.send(round(world.about(600 * world.scale)) + 200)
    (mined,) = world.traffic.mine()
    for _ in range(DROP_TRIES):
        world.settle()
        before = n_dropped(world)
        world.rpc.call("invalidateblock", mined)
        world.rpc.call("reconsiderblock", mined)
        time.sleep(1)
        if n_dropped(world) > before and (world.collector.metric("pool_collector_losses_total") or 0) > 0:
            break
    return n_dropped(world)


def n_dropped(world: World) -> int:
    """Return how many events the recorder missed, by the gaps in the counters."""
    counters = [frame.counter for frame in world.frames()]
    return sum(max(0, after - before - 1) for before, after in pairwise(counters))


@fault(
    "drops",
    "the node's ZMQ high-water mark is 1, and bursts make it drop events, transactions and blocks",
    zmq_hwm=1,
    n_coins=6000,
)
def drops(world: World) -> Verdict:
    """Make the node drop messages and keep traffic going, so that counters show the loss."""
    world.collector.start()
    world.traffic.busy(world.about(BUSY_S * world.scale))
    world.facts["dropped, by the recorder"] = make_drops(world)
    assert world.facts["dropped, by the recorder"], "the node dropped nothing: this was no fault"
    world.traffic.busy(BUSY_S * world.scale)
    return world.conclude(must_end=["gap"])


@fault(
    "drops_then_silence",
    "the same, and the last messages before a long silence are among those dropped: no counter shows it",
    zmq_hwm=1,
    n_coins=6000,
)
def drops_then_silence(world: World) -> Verdict:
    """Stop all traffic after a burst; the loss at its end must be found without another message."""
    world.collector.start()
    world.facts["dropped, by the recorder"] = make_drops(world)
    world.traffic.send(round(world.about(300)))
    (mined,) = world.traffic.mine()
    world.settle()
    world.rpc.call("invalidateblock", mined)
    time.sleep(max(20 * world.scale, 12))
    return world.conclude(must_end=["gap"], may_end=["resync"])


def _restarted(world: World, restart: Callable[[], None], *, node_forgets: bool = False) -> Verdict:
    """Call `restart` several times under traffic, wait for a new session each time, and judge the dataset.

    `node_forgets` is true when the node may lose blocks or transactions that it had not saved.
    """
    collector, traffic = world.collector, world.traffic
    collector.start()
    for number in range(max(1, round(3 * world.scale))):
        traffic.begin()
        time.sleep(world.about(BUSY_S * world.scale))
        restart()
        collector.wait_for("session.started", times=number + 2)
        traffic.end()
        world.settle()
    traffic.busy(1)
    return world.conclude(may_end=AWAY, node_forgets=node_forgets)


@fault("node_restart", "the node is stopped and started with its mempool (persistmempool=1)", n_coins=12_000)
def node_restart(world: World) -> Verdict:
    """Restart the node; it keeps its mempool."""
    return _restarted(world, world.node.restart)


@fault(
    "node_restart_empty",
    "the node is stopped and started without its mempool (persistmempool=0)",
    n_coins=12_000,
)
def node_restart_empty(world: World) -> Verdict:
    """Restart the node without its mempool."""
    world.node.options = (*world.node.options, "-persistmempool=0")
    return _restarted(world, lambda: world.node.restart(with_mempool=False))


@fault("node_killed", "the node is killed (kill -9) and started again", n_coins=12_000)
def node_killed(world: World) -> Verdict:
    """Kill the node under traffic and start it again; it loses only what it had not written to disk."""
    world.rpc.call("gettxoutsetinfo")  # makes it write what it has

    def kill() -> None:
        world.node.kill()
        time.sleep(world.draw.uniform(0, 3))
        world.node.start()

    return _restarted(world, kill, node_forgets=True)


@fault(
    "stop_while_rpc_hangs",
    "the node hangs (SIGSTOP) before it has given the fees, and the collector is told to stop meanwhile",
    n_coins=12_000,
)
def stop_while_rpc_hangs(world: World) -> Verdict:
    """Stop the collector while the node hangs, once before a snapshot's fees, once before new fees are known.

    A block is mined before the last start, which must give every transaction its fee.
    """
    n_tx = max(40, round(400 * world.scale))
    world.traffic.send(n_tx)
    collector = world.new_collector(settings={"fee_batch": 1})  # it takes a while for what a snapshot lists
    collector.start(wait=False)
    collector.wait_for("mempool.in_step")
    world.facts["statuses"] = [_stop_while_hanging(world)]
    collector = world.new_collector(dataset=collector.dataset, settings={"fee_interval_s": 30})
    collector.start()
    world.traffic.send(n_tx)
    time.sleep(SETTLE_S)
    world.facts["statuses"] += [_stop_while_hanging(world)]
    world.traffic.mine()
    world.traffic.send(10)
    collector.start()
    return world.conclude(has_all_fees=True)


def _stop_while_hanging(world: World) -> int:
    """Hang the node, stop the collector, let the node continue; return the collector's exit status."""
    assert world.node.process_id is not None
    os.kill(world.node.process_id, signal.SIGSTOP)
    try:
        return world.collector.stop()
    finally:
        os.kill(world.node.process_id, signal.SIGCONT)


@fault(
    "reorgs",
    "reorganisations of depth 1 to 6, made with two nodes that part and meet",
    listen=True,
    n_coins=4000,
)
def reorgs(world: World) -> Verdict:
    """Separate two nodes, mine on both, and connect them again; the other node's longer branch wins."""
    with RegtestNode(find_bitcoind()) as other:
        _meet(other, world.node)
        _await(lambda: _tip(other) == _tip(world.node))
        world.collector.start()
        depths = [depth for depth in DEPTHS if depth <= max(2, 6 * world.scale)]
        world.draw.shuffle(depths)
        for depth in depths:
            world.traffic.send(round(world.about(20)))
            _part(other, world.node)
            for _ in range(depth):
                world.traffic.send(round(world.about(15)))
                world.traffic.mine()
            before = _tip(world.node)
            other.client().call("generatetodescriptor", depth + 1, "raw(52)")
            _meet(other, world.node)
            _await(lambda: _tip(other) == _tip(world.node))
            assert _tip(world.node) != before, "the node kept its chain: this was no reorganisation"
            world.traffic.send(5)
        world.facts["depths"] = depths
        return world.conclude()


def _meet(one: RegtestNode, other: RegtestNode) -> None:
    """Connect one node to another at once; `addnode add` retries a failed connection after a minute only."""
    one.client().call("addnode", other.p2p_address, "onetry")
    _await(lambda: one.client().call("getconnectioncount") > 0)


def _part(one: RegtestNode, other: RegtestNode) -> None:
    one.client().call("disconnectnode", other.p2p_address)
    _await(lambda: one.client().call("getconnectioncount") == 0)


def _tip(node: RegtestNode) -> str:
    return str(node.client().call("getbestblockhash"))


def _await(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + NODE_PATIENCE_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the two nodes do not agree")
        time.sleep(0.1)
