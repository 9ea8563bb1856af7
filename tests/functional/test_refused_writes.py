"""Test that a running collector waits and says so while the system refuses its writes, and loses nothing."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from collector.regtest import RegtestNode, make_wallet
from tests.functional.conftest import CollectorProcess
from tests.functional.replay import mempool_by_rows, node_mempool, read, send, wait_published
from tests.rights import without_rights

pytestmark = pytest.mark.bitcoind


@contextmanager
def read_only(collector: CollectorProcess) -> Iterator[None]:
    """Remove the right to write into the chain's folders during the `with` block."""
    folders = [Path(folder) for folder, _, _ in os.walk(collector.dataset / "chain=regtest")]
    for folder in folders:
        folder.chmod(0o555)
    yield
    for folder in folders:
        folder.chmod(0o755)


@contextmanager
def no_descriptors(collector: CollectorProcess) -> Iterator[None]:
    """Forbid the collector to open another file or connection during the `with` block."""
    soft, hard = resource.prlimit(collector.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(collector.pid, resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.prlimit(collector.pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("fault", "words"), [(read_only, "Permission denied"), (no_descriptors, "Too many open")]
)
def test_a_refused_write_is_waited_for(
    node: RegtestNode, new_collector: Callable[..., CollectorProcess], fault: Any, words: str
) -> None:
    """The log names the reason, the process lives, and afterwards every event is in the dataset."""
    rpc, wallet = node.client(), make_wallet(node, 20, seed=42)
    wait_published(rpc)
    collector = new_collector()
    collector.start(wrapper=without_rights())
    send(rpc, wallet, 5)
    before = collector.log.stat().st_size
    with fault(collector):
        send(rpc, wallet, 5)
        rpc.call("generatetodescriptor", 1, "raw(51)")
        collector.wait_for("disk.full", after=before)
        assert words in collector.log.read_text()[before:]
        send(rpc, wallet, 5)
        if fault is read_only:
            (reason,) = requests.get(f"{collector.url}/readyz", timeout=30).json()["reasons"]
            assert reason.startswith("node alpha: nothing can be written: ")
    collector.wait_for("disk.goes_on", after=before)
    send(rpc, wallet, 5)
    collector.wait_taken()
    in_node = node_mempool(rpc)
    assert collector.stop() == 0, collector.log.read_text()
    rows = read(collector.dataset)
    (session,) = {row["session"] for row in rows["nodes"]}
    assert mempool_by_rows(rows, session) == in_node
    assert sum(row["event"] == "A" for row in rows["mempool_events"]) == 20
    assert {row["end_reason"] for row in rows["coverage"]} == {"sealed", "shutdown"}
