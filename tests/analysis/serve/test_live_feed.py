"""Test the live page in a real browser, with the collector's own server: new blocks, lost sight, return."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from analysis.attribution.rules import load_rules
from analysis.errors import ServeError
from analysis.serve.address import bound
from analysis.serve.app import application
from analysis.serve.bounded_server import BoundedServer
from analysis.serve.live_feed import KINDS, MAX_EVENTS, LiveFeed
from analysis.serve.results import Results
from collector.monitor.health import Health
from collector.monitor.http import MonitorServer
from collector.monitor.live_rows import MAX_ROWS, LiveRows
from collector.monitor.metrics import Metrics, NodeState
from collector.regtest.ports import free_ports
from tests.analysis.report.chromium import browser
from tests.analysis.serve.conftest import Site, copied, wait_for
from tests.analysis.serve.hostile_world import EVIL, NODE, POOL_NAME

BANNER = "return document.getElementById('live').textContent"
FIRST_TILE = "return document.querySelector('#tiles .tile').textContent"
N_NEW_TILES = "return String(document.querySelectorAll('.tile.new').length)"
# Whether the longest text of a tile fits into it.
WIDEST_FITS = """
const all = [...document.querySelectorAll('.tile-facts')];
const facts = all.find(each => each.textContent.endsWith(' of template'));
const shown = facts.textContent;
facts.textContent = '100\u00a0% of template';
const fits = facts.scrollWidth <= facts.clientWidth;
facts.textContent = shown;
return fits;
"""
NEW_HASH = bytes([9]) + bytes(31)
PREV_HASH = bytes([8]) + bytes(31)
TXIDS = [bytes([number]) * 32 for number in range(1, 6)]  # the first is a coinbase


class PlantedCollector:
    """Serves a collector's live stream at one port; its rows and its state are given by the test."""

    def __init__(self, folder: Path) -> None:
        self.rows = LiveRows()
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._metrics = Metrics([NODE])
        # It takes no turns, so its clock stands still: a page may come minutes later on a busy machine.
        self._health = Health(self._metrics, {NODE: folder}, clock=lambda: 0.0)
        self._server: MonitorServer | None = None

    def start(self) -> None:
        """Follow the node, and serve."""
        state = NodeState(in_step=True, away=False, n_mempool=1234, n_queued=0, n_waiting=0)
        self._metrics.state(NODE, state)
        self._server = MonitorServer(self.address, self._metrics, self._health, self.rows)

    def lose_node(self) -> None:
        """Report that the node does not answer."""
        self._metrics.away(NODE)

    def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
        self._server = None

    def find_block(self, height: int, block_hash: bytes) -> None:
        """Commit the rows of a new block, with a hostile coinbase that a rule matches."""
        block: dict[str, Any] = dict.fromkeys(("size_bytes", "subsidy_sat"))
        block |= {
            "prev_hash": PREV_HASH,
            "block_hash": block_hash,
            "height": height,
            "header_time": None,
            "n_tx": 2,
            "weight_wu": 400_000,
        }
        block |= {"fees_sat": 5000, "verdict": "valid", "coinbase_script": f"/Alpha/{EVIL}".encode()}
        self.rows.take("blocks", [block | {"coinbase_outputs": [{"value_sat": 1, "script": b"\x51"}]}])

    def promise(self, txids: list[bytes]) -> None:
        """Commit the rows of a template for the next block."""
        template = {"node": NODE, "taken_at": 5}
        self.rows.take("templates", [template | {"prev_hash": PREV_HASH}])
        self.rows.take("template_txs", [template | {"txid": txid} for txid in txids])

    def mine(self, block_hash: bytes, txids: list[bytes]) -> None:
        """Commit the rows of the transactions of a block that was found."""
        found = [
            {"block_hash": block_hash, "tx_index": index, "txid": txid} for index, txid in enumerate(txids)
        ]
        self.rows.take("transactions", found)

    def disconnect(self, block_hash: bytes) -> None:
        """Commit the row of a reorganisation that undoes a block."""
        row = {"node": NODE, "block_hash": block_hash, "height": 9, "event_at": 1, "kind": "pushed"}
        self.rows.take("block_arrivals", [row | {"event": "disconnected"}])


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[PlantedCollector]:
    """Plan a collector that does not run yet."""
    planted = PlantedCollector(tmp_path)
    yield planted
    planted.stop()


@pytest.fixture
def live_site(served_database: Path, tmp_path: Path, collector: PlantedCollector) -> Iterator[Site]:
    """Serve the hostile world, and follow the planted collector."""
    results = Results(copied(served_database, tmp_path))
    feed = LiveFeed(f"http://{collector.address}", load_rules(served_database.parent / "pools"))
    server = BoundedServer(application(results, feed), bound("127.0.0.1:0", allow_remote=False, token=""))
    server.start()
    yield Site(server)
    feed.close()
    server.close()
    results.close()


@pytest.mark.browser
def test_new_blocks_appear_and_lost_sight_is_said(
    live_site: Site, collector: PlantedCollector, tmp_path: Path
) -> None:
    """Not watching, watching, a block, a reorganisation, a node that is away, a collector that is gone."""
    with browser(tmp_path / "profile") as tab:
        tab.visit(live_site.url, width_px=1280)
        wait_for(tab, BANNER, "The collector does not answer; is pool-collector run running?")
        assert not tab.run(BANNER).endswith("?.")

        collector.start()
        assert "1,234 transactions wait" in wait_for(tab, BANNER, "Watching. ")

        collector.promise(TXIDS[1:4])
        collector.find_block(9, NEW_HASH)
        tile = wait_for(tab, FIRST_TILE, "not built yet")
        assert POOL_NAME in tile
        assert "by tag" in tile
        assert "0.00005" in tile
        collector.mine(NEW_HASH, [TXIDS[0], TXIDS[1], TXIDS[2], TXIDS[4]])
        assert "1 passed over" in wait_for(tab, FIRST_TILE, "66\u00a0% of template")
        assert tab.run(WIDEST_FITS)
        assert tab.run("return document.title").startswith("Now")

        collector.disconnect(NEW_HASH)
        wait_for(tab, FIRST_TILE, "stale")

        collector.lose_node()
        wait_for(tab, BANNER, "its RPC does not answer")

        collector.stop()
        wait_for(tab, BANNER, "The collector does not answer")
        collector.find_block(10, bytes([10]) + bytes(31))  # while nobody reads
        collector.start()
        wait_for(tab, BANNER, "Watching. ")
        wait_for(tab, N_NEW_TILES, "2")
        assert tab.run(FIRST_TILE).startswith("10")
        assert [line for line in tab.console() if "/live" not in line] == []


@pytest.mark.browser
def test_a_page_outlives_its_server(
    served_database: Path, tmp_path: Path, collector: PlantedCollector
) -> None:
    """SIGKILL of the server: the page says so, and shows the next block once the server is back."""
    collector.start()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    database = copied(served_database, tmp_path)
    command = [sys.executable, "-P", "-m", "analysis", "serve", "--database", database, "--address", address]
    command += ["--collector", f"http://{collector.address}", "--pools", served_database.parent / "pools"]

    @contextmanager
    def started() -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert address in process.stdout.readline()
                yield process
            finally:
                process.kill()

    with started() as process, browser(tmp_path / "profile") as tab:
        tab.visit(f"http://{address}", width_px=1280)
        wait_for(tab, BANNER, "Watching. ")
        process.kill()
        wait_for(tab, BANNER, "has lost its server")
        collector.find_block(9, NEW_HASH)
        with started():
            wait_for(tab, FIRST_TILE, "not built yet")
            assert "has lost its server" not in tab.run(BANNER)


def test_a_page_goes_on_from_its_last_id(live_site: Site, collector: PlantedCollector) -> None:
    """A stream with the id of an event tells only what came later."""
    collector.start()
    for height in (9, 10):
        collector.find_block(height, bytes([height]) + bytes(31))
    ids = _ids(live_site, None, 2)

    assert _ids(live_site, ids[0], 1) == ids[1:]


@pytest.mark.browser
def test_the_page_says_that_rows_were_missed(
    live_site: Site, collector: PlantedCollector, tmp_path: Path
) -> None:
    """While this server was away, more rows came than the collector keeps: the page says so, once."""
    with browser(tmp_path / "profile") as tab:
        collector.start()
        collector.find_block(9, NEW_HASH)
        tab.visit(live_site.url, width_px=1280)
        wait_for(tab, FIRST_TILE, "not built yet")
        collector.stop()
        wait_for(tab, BANNER, "The collector does not answer")
        for height in range(10, 12 + MAX_ROWS):
            collector.find_block(height, height.to_bytes(32))
        collector.start()

        lost = "return document.getElementById('lost')?.textContent ?? ''"
        assert wait_for(tab, lost, "not shown here").count("not shown here") == 1
        wait_for(tab, FIRST_TILE, f"{11 + MAX_ROWS:,}")


def test_a_page_that_was_away_for_too_long_is_told(live_site: Site, collector: PlantedCollector) -> None:
    """The server keeps so many events; a page whose last one is older gets `missed` before the others."""
    collector.start()
    collector.find_block(9, NEW_HASH)
    first = seen = _ids(live_site, None, 1)[0]
    for _ in range(4):  # the collector itself keeps no more than the server
        for height in range(10, 11 + MAX_EVENTS // 3):
            collector.find_block(height, height.to_bytes(32))
        seen = _ids(live_site, seen, 1 + MAX_EVENTS // 3)[-1]

    headers = {"Last-Event-ID": str(first)}
    with live_site._http.get(f"{live_site.url}/live", headers=headers, stream=True, timeout=60) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        assert "event: missed" in [next(lines) for _ in range(8)]


def test_a_page_from_before_a_clock_that_was_ahead_is_told(
    live_site: Site, collector: PlantedCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector whose clock was set back begins anew with lower ids: a page gets `missed`, and its rows."""
    collector.start()
    collector.find_block(9, NEW_HASH)
    before = _ids(live_site, None, 1)[0]
    collector.stop()
    monkeypatch.setattr(time, "time_ns", lambda: 10**15)
    collector.rows = LiveRows()
    monkeypatch.undo()
    collector.find_block(10, bytes([10]) * 32)
    collector.start()

    after = _ids(live_site, before, 1)[0]
    assert after < before
    headers = {"Last-Event-ID": str(before)}
    with live_site._http.get(f"{live_site.url}/live", headers=headers, stream=True, timeout=60) as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        told = [next(lines) for _ in range(12)]
    assert ("event: missed" in told, f"id: {after}" in told) == (True, True)


def test_without_a_collector_there_is_no_stream(site: Site) -> None:
    """The address says how to start with one, and the page does not promise one."""
    assert site.get("/live").status_code == 404
    assert 'id="live"' not in site.get("/").text


def test_the_readme_names_every_event(repo_root: Path) -> None:
    """Who writes a reader of the stream finds there what comes."""
    readme = (repo_root / "analysis" / "serve" / "README.md").read_text()
    assert [kind for kind in KINDS.values() if f"`{kind}`" not in readme] == []


def test_an_address_that_is_none_is_refused(served_database: Path) -> None:
    """The address of a collector has a scheme."""
    with pytest.raises(ServeError, match=r"http://127\.0\.0\.1:9733"):
        LiveFeed("127.0.0.1:9733", load_rules(served_database.parent / "pools"))


def _ids(site: Site, last_id: int | None, n_events: int) -> list[int]:
    """Read the ids of so many blocks from the stream."""
    headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
    found: list[int] = []
    with site._http.get(f"{site.url}/live", headers=headers, stream=True, timeout=60) as answer:
        for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
            if line.startswith("id: "):
                found.append(int(line.removeprefix("id: ")))
            if len(found) == n_events:
                break
    return found
