"""Test that BlockFetcher records a missing parent that the node does not know."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.blocks.fetcher import BlockFetcher
from collector.blocks.recent import RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.clock import monotonic_us
from collector.dataset.open import Dataset
from collector.dataset.schema import REJECTS, UNKNOWN_PARENT, hash_bytes
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.node.request_threads import NodeRequests
from tests.collector.service.planted import NOT_FOUND, TIP, PlantedNode

PARENT = bytes(31) + b"\x07"
PRUNED = {"code": -1, "message": "Block not available (pruned data)"}


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a server that gives the answers which a test sets."""
    made = PlantedNode()
    yield made
    made.close()


def reject_rows(folder: Path, node: PlantedNode) -> list[tuple[str, str, bytes]]:
    """Run a session whose dataset lacks the parent of a stored block; return the rows of `rejects`."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("alpha", node.client(), inbox)
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    with Journal(folder / "journal") as journal:
        journal.recover(dataset)
        batches = Batches(journal)
        fetcher = BlockFetcher(
            ("alpha", "s"),
            "regtest",
            requests=requests,
            batches=batches,
            stored=StoredBlocks([hash_bytes(TIP)], 1, [PARENT]),
            recent=RecentBlocks(),
            on_resolved=lambda *_: None,
        )
        fetcher.start(hash_bytes(TIP), 9, 1)
        while len(fetcher):
            inbox.get(timeout=10).deliver()
            fetcher.tick(monotonic_us(), at_once=True)
        batches.commit()
        journal.seal(dataset)
    requests.stop()
    return [(row["topic"], row["reason"], row["body"]) for row in dataset.read(REJECTS).to_pylist()]


def test_a_parent_that_the_node_does_not_know_leaves_a_mark(tmp_path: Path, node: PlantedNode) -> None:
    """A row of `rejects` names the unknown parent; there is none for the tip, which is no block's parent."""
    node.errors["getblock"] = NOT_FOUND
    assert reject_rows(tmp_path, node) == [("rpc", UNKNOWN_PARENT, PARENT)]


def test_a_parent_that_the_node_has_pruned_leaves_no_mark(tmp_path: Path, node: PlantedNode) -> None:
    """A pruned parent leaves no row of `rejects`, because another node or a backfill can bring it."""
    node.errors["getblock"] = PRUNED
    assert reject_rows(tmp_path, node) == []
