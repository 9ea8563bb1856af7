"""Set up all that a fault needs: a node, its traffic, a recorder, and a collector."""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from collector.dataset.schema import hash_bytes
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind
from tests.functional.chaos import nodelog, recorder
from tests.functional.chaos.collecting import Collecting
from tests.functional.chaos.judge import Evidence, Verdict, judge
from tests.functional.chaos.traffic import Traffic

T = TypeVar("T")
SETTLE_S = 0.8  # what the node has published has reached every subscriber
START_S = 120.0


class World:
    """Holds one node with traffic, a recorder and a collector; `scale` multiplies a fault's times and counts.

    A fault takes every random choice from `draw`, so that the same seed repeats the choices.
    """

    def __init__(self, folder: Path, node: RegtestNode, *, seed: int, scale: float, n_coins: int) -> None:
        self.folder = folder
        self.node = node
        self.seed = seed
        self.scale = scale
        self.draw = random.Random(f"{seed} fault")  # noqa: S311 - a fault wants repeatable chance
        self.rpc: RpcClient = node.client(timeout_s=120)
        self.traffic = Traffic(node, n_coins, seed)
        self.facts: dict[str, Any] = {}
        self.evidence: Evidence | None = None  # of the last judgement
        self._at_end = contextlib.ExitStack()
        self._recording = self._record()
        self.collector = self.new_collector()

    def new_collector(self, **settings: Any) -> Collecting:
        """Replace the collector of this world by a new one; `settings` are arguments of `Collecting`."""
        folder = self.folder / f"collector{len(list(self.folder.glob('collector*')))}"
        self.collector = Collecting(self.node, folder, **settings)
        self._at_end.callback(self.collector.close)
        return self.collector

    def at_end(self, undo: Callable[[], object]) -> None:
        """Register a function to call when the world is closed."""
        self._at_end.callback(undo)

    def opened(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context that ends when the world is closed; return what it yields."""
        return self._at_end.enter_context(context)

    def frames(self) -> Iterator[recorder.Frame]:
        """Yield the messages of `sequence` that the recorder has written so far."""
        return recorder.read(self._recording, "sequence")

    def settle(self) -> None:
        """Wait until all published messages have arrived and the collector is in step with the mempool."""
        time.sleep(SETTLE_S)
        self.collector.wait_in_step()
        time.sleep(SETTLE_S)

    def conclude(self, *, may_end: Iterable[str] = (), must_end: Iterable[str] = (), **more: Any) -> Verdict:
        """Wait until all messages have arrived, stop the collector, and return the verdict on its dataset.

        A stop leaves rows that wait for a slow node to the next start, so there is one more start if it did.
        `may_end` and `must_end` are the end reasons that coverage may have, and must have.
        """
        self.settle()
        mempool = {hash_bytes(txid) for txid in self.rpc.call("getrawmempool")}
        status = self.collector.stop()
        if not status and self.collector.left_open:
            self.facts["rows left to the next start"] = True
            self.collector.start()
            self.settle()
            status = self.collector.stop()
        self.evidence = Evidence(
            dataset=self.collector.dataset,
            debug_log=self.node.datadir / "regtest" / "debug.log",
            frames=list(self.frames()),
            rpc=self.rpc,
            mempool=mempool,
            fees_sat=self.traffic.fees_sat,
            may_end=frozenset(may_end) | frozenset(must_end),
            must_end=frozenset(must_end),
            **more,
        )
        verdict = judge(self.evidence)
        if status:
            verdict.faults.append(f"the collector ends with {status}: {self.collector.said[-600:]}")
        verdict.figures |= self.facts | {"starts": self.collector.n_starts, "failed": self.collector.n_failed}
        return verdict

    def about(self, value: float) -> float:
        """Return a random number between half of `value` and one and a half times `value`."""
        return value * self.draw.uniform(0.5, 1.5)

    def close(self) -> None:
        """Stop everything that this world has started, except the node."""
        self._at_end.close()

    def _record(self) -> Path:
        out = self.folder / "recorder.bin"
        endpoints = [f"{topic}={self.node.zmq_endpoints[topic]}" for topic in recorder.TOPICS]
        process = subprocess.Popen([sys.executable, recorder.__file__, out, *endpoints])
        self._at_end.callback(process.wait)
        self._at_end.callback(process.kill)
        deadline_s = time.monotonic() + START_S
        while not out.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("the recorder does not come up")
            time.sleep(0.02)
        return out


@contextlib.contextmanager
def make_world(
    folder: Path,
    *,
    seed: int = 1,
    scale: float = 1.0,
    n_coins: int = 1000,
    is_logged: bool = True,
    **node_settings: Any,
) -> Iterator[World]:
    """Start a node and all that belongs to a world, and yield the world; everything ends with the block."""
    options = nodelog.NODE_OPTIONS if is_logged else ()
    with RegtestNode(find_bitcoind(), options=options, **node_settings) as node:
        world = World(folder, node, seed=seed, scale=scale, n_coins=n_coins)
        try:
            yield world
        finally:
            world.close()
