"""Test what happens when the wall clock of the collector's machine is set while it follows a node."""

import queue
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import StepDetector
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.journal.journal import Journal
from collector.mempool.bodies import WaitingBodies
from collector.monitor.metrics import AWAY, Metrics
from collector.node.preflight import client_for, examine
from collector.receive.source import MessageSource
from collector.regtest import RegtestNode, make_wallet
from collector.service.session import Session
from tests.functional.replay import mempool_by_rows, node_mempool, read, send, wait_published
from tests.functional.running import wait_until

pytestmark = pytest.mark.bitcoind


class Clock:
    """Returns the real wall clock, shifted by `set_by_s` seconds."""

    def __init__(self) -> None:
        self.set_by_s = 0

    def __call__(self) -> int:
        """Return the shifted time in nanoseconds since 1970."""
        return time.time_ns() + self.set_by_s * 1_000_000_000


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    """Return the value of a counter with these labels; 0 before it has counted."""
    return metrics.registry.get_sample_value(f"pool_collector_{name}_total", labels) or 0.0


def has_noticed(metrics: Metrics, n_steps: int) -> bool:
    """Return whether the session has found this many steps of the clock, and is in step with the mempool."""
    losses = sample(metrics, "losses", node="n", topic="sequence", reason="clock_step")
    return losses == n_steps and metrics.states().get("n", AWAY).in_step


def test_a_step_ends_every_interval_and_loses_nothing(node: RegtestNode, tmp_path: Path) -> None:
    """A step ahead and a step back each end every interval as `clock_step`; each event is there once."""
    wallet, clock, stop, metrics = make_wallet(node, 40, seed=31), Clock(), threading.Event(), Metrics()
    wait_published(node.client())
    watched = NodeSettings(name="n", rpc_url=node.rpc_url, cookie_file=node.cookie_path)
    settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=(watched,))
    dataset = Dataset.open(settings.dataset, "regtest", create=True)
    client, inbox = client_for(watched, "regtest"), queue.SimpleQueue[Any]()
    facts = examine(client, watched, settings)
    with Journal(dataset.root / "journal" / "regtest" / "n") as journal:
        journal.recover(dataset)
        source = MessageSource("n", "s", facts.endpoints, inbox=inbox)
        source.connect()
        session = Session(
            ("n", "s"),
            client,
            inbox=inbox,
            settings=settings,
            dataset=dataset,
            journal=journal,
            stored=StoredBlocks((), None),
            bodies=WaitingBodies(tmp_path),
            metrics=metrics,
            steps=StepDetector(500_000, clock),
        )

        running = threading.Thread(target=session.run, args=(facts, source, stop))
        running.start()
        for n_steps, set_by_s in enumerate((0, 3600, -60)):
            clock.set_by_s = set_by_s
            wait_until(lambda n_steps=n_steps: has_noticed(metrics, n_steps))
            send(node.client(), wallet, 5)
            wait_until(
                lambda n_steps=n_steps: sample(metrics, "rows", table="mempool_txs") == 5 * (n_steps + 1)
            )
        stop.set()
        running.join()
    rows = read(dataset.root)
    assert mempool_by_rows(rows, "s") == node_mempool(node.client())
    assert [row["kind"] for row in rows["mempool_events"]] == ["pushed"] * 15
    for topic in ("sequence", "rawtx", "rawblock", "mempool"):
        intervals = sorted(
            (row for row in rows["coverage"] if row["topic"] == topic), key=lambda row: row["from_at"]
        )
        assert [row["end_reason"] for row in intervals] == ["clock_step", "clock_step", "shutdown"], topic
    assert "3660" in intervals[1]["detail"]
    assert sum(row["n_messages"] for row in rows["coverage"] if row["topic"] == "sequence") == 15
