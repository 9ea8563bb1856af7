"""Measure how long a block takes from the node's ZMQ to the page of now in a browser.

    python -m tests.bench.bench_live [--blocks N] [--out FILE] [--smoke]

A regtest node, `pool-collector run`, `pool-analysis serve --collector` and headless Chromium run as they do
for a user. A subscriber of our own stamps each block when the node publishes it, and the page stamps the
moment in which its tile is there; both read the same clock. The next block is mined when the page has shown
the last.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import zmq

from analysis.engine import build
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.ports import free_ports
from tests.analysis.report.chromium import Tab, browser
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate
from tests.functional.conftest import CollectorProcess

WORLD: Final = Size(n_blocks=40, entering=64, taken=48)
DESCRIPTOR: Final = "raw(51)"  # anybody may spend it
LONGEST_S: Final = 60.0
SMOKE_BLOCKS: Final = 2
# The page's own tiles have a link; a new one has its hash.
WATCH: Final = """
    window.shownAt = {};
    const tiles = document.getElementById("tiles");
    new MutationObserver(() => {
        for (const tile of tiles.children)
            if (tile.dataset.hash && !(tile.dataset.hash in shownAt)) shownAt[tile.dataset.hash] = Date.now();
    }).observe(tiles, {childList: true});
"""


def shown_at(tab: Tab, block_hash: str) -> float:
    """Wait until the page shows a block; return when it did, in seconds since 1970."""
    end_s = time.monotonic() + LONGEST_S
    while (found := tab.evaluate(f"shownAt['{block_hash}']")) is None:
        assert time.monotonic() < end_s, f"the page does not show {block_hash}"
        time.sleep(0.05)
    return float(found) / 1000


class Stamps:
    """Stamps the blocks of a node as it publishes them, in a thread of its own."""

    def __init__(self, node: RegtestNode) -> None:
        self.published_s: dict[str, float] = {}  # by block hash, since 1970
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.subscribe("sequence")
        self._socket.connect(node.zmq_endpoints["sequence"])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            _, body, _ = self._socket.recv_multipart()
            if body[32:33] == b"C":
                self.published_s[body[:32].hex()] = time.time()


def delays(node: RegtestNode, stamps: Stamps, tab: Tab, n_blocks: int) -> list[float]:
    """Mine blocks one by one; return the seconds from each one's publication to its tile."""
    found = []
    for _ in range(n_blocks):
        (block_hash,) = node.client().call("generatetodescriptor", 1, DESCRIPTOR)
        shown_s = shown_at(tab, block_hash)
        found.append(shown_s - stamps.published_s[block_hash])
    return found


@contextmanager
def page(database: Path, collector_url: str) -> Iterator[str]:
    """Serve a database, follow a collector, and give the address of the page."""
    (port,) = free_ports(1)
    options = ["--database", database, "--address", f"127.0.0.1:{port}", "--collector", collector_url]
    command = [sys.executable, "-m", "analysis", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


def measured(folder: Path, n_blocks: int) -> list[float]:
    """Run everything; return the delays of the blocks in seconds."""
    rules = folder / "pools"
    database = build(write_world(simulate(WORLD), folder), rules, folder / "a.duckdb").database
    with RegtestNode(find_bitcoind()) as node, browser(folder / "profile") as tab:
        stamps = Stamps(node)
        collector = CollectorProcess(node, folder)
        collector.start()
        try:
            with page(database, collector.url) as address:
                tab.visit(address, width_px=1280)
                tab.evaluate(WATCH)
                return delays(node, stamps, tab, n_blocks)
        finally:
            collector.stop()


def main() -> None:
    """Read the command line, measure, print and write the figures."""
    parser = argparse.ArgumentParser(description="Measure the way of a block to the browser.")
    parser.add_argument("--blocks", type=int, default=100, help="blocks to mine")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--smoke", action="store_true", help="two blocks")
    given = parser.parse_args()
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        found = sorted(measured(Path(scratch), SMOKE_BLOCKS if given.smoke else given.blocks))
    facts: dict[str, Any] = {
        "n_blocks": len(found),
        "median_s": statistics.median(found),
        "p95_s": found[math.ceil(0.95 * len(found)) - 1],
        "most_s": found[-1],
        "load_before": before,
        "load_after": os.getloadavg(),
    }
    print(
        f"from the node to the browser: median {facts['median_s']:.2f} s, p95 {facts['p95_s']:.2f} s, "
        f"at most {facts['most_s']:.2f} s, {len(found)} blocks"
    )
    if given.out:
        given.out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
