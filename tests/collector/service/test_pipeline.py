"""Test that the pipeline completes a row only when the node can tell no more about the transaction."""

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.config import Settings
from collector.dataset.open import Dataset
from collector.journal.batches import Batches
from collector.journal.coverage_ledger import CoverageLedger
from collector.journal.journal import Journal
from collector.mempool.bodies import KeptBodies, WaitingBodies
from collector.mempool.entries import GIVE_UP_US, PendingEntry, entries_to_state
from collector.node.request_threads import NodeRequests
from collector.service.pipeline import Pipeline
from tests.collector.service.planted import NOT_FOUND, PlantedNode

ORIGIN = ("alpha", "s")
DEADLINE_S = 30.0


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a node with an empty mempool that does not answer when it is asked for its tip."""
    made = PlantedNode()
    made.errors = {"getmempoolentry": NOT_FOUND, "getrawtransaction": NOT_FOUND}
    yield made
    made.close()


def deliver_until(inbox: "queue.SimpleQueue[Any]", is_so: Callable[[], bool]) -> None:
    """Deliver the node's answers from `inbox` until `is_so()` is true."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        inbox.get(timeout=deadline_s - time.monotonic()).deliver()


def test_an_entry_is_not_given_up_before_the_tip_is_known(tmp_path: Path, node: PlantedNode) -> None:
    """A row stays open while the node's tip is unknown: a block not announced may hold the transaction."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    with Journal(tmp_path / "journal") as journal:
        journal.recover(Dataset.open(tmp_path / "dataset", "regtest", create=True))
        batches = Batches(journal)
        pipeline = Pipeline(
            ORIGIN,
            Settings(chain="regtest", dataset=tmp_path / "dataset"),
            requests=requests,
            batches=batches,
            bodies=KeptBodies(ORIGIN, "none", WaitingBodies(tmp_path), batches),
            stored=StoredBlocks((), None),
            ledger=CoverageLedger(*ORIGIN),
        )
        entry = PendingEntry(bytes(31) + b"\x01", "at_start", 1, None, None, None)
        pipeline.take_listed("told/s/1", entries_to_state([entry]))
        pipeline.tick(monotonic_us())
        deliver_until(inbox, lambda: not requests.mempool.n_open)
        pipeline.fill_blocks()
        later_us = monotonic_us() + 2 * GIVE_UP_US
        pipeline.tick(later_us)
        assert pipeline.n_open == 1
        requests.stop()  # what the node did not answer ends without an answer
        deliver_until(inbox, lambda: not requests.n_open)
        pipeline.tick(later_us)
        assert pipeline.n_open == 0
