"""Test the pages before there is a build: they say so, show new blocks, and the first build when it comes."""

import json
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from analysis.attribution.rules import load_rules
from analysis.errors import DatabaseError
from analysis.serve.address import bound
from analysis.serve.app import application
from analysis.serve.bounded_server import BoundedServer
from analysis.serve.live_feed import LiveFeed
from analysis.serve.prepared import Preparation
from analysis.serve.results import Results
from tests.analysis.report.chromium import browser
from tests.analysis.report.test_accessibility import RUN_AXE
from tests.analysis.serve.conftest import Site, wait_for
from tests.analysis.serve.hostile_world import POOL_NAME
from tests.analysis.serve.test_live_feed import BANNER, FIRST_TILE, NEW_HASH, PlantedCollector
from tests.analysis.serve.test_prepared import wait_for_all

NOTHING = "Nothing is built yet"


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    """Wait for a build that is not there."""
    waiting = Results(tmp_path / "build" / "later.duckdb", waits=True)
    yield waiting
    waiting.close()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[PlantedCollector]:
    """Run a planted collector."""
    planted = PlantedCollector(tmp_path)
    planted.start()
    yield planted
    planted.stop()


@pytest.fixture
def early_site(results: Results, collector: PlantedCollector, served_database: Path) -> Iterator[Site]:
    """Serve what is not built yet, and follow the collector."""
    feed = LiveFeed(f"http://{collector.address}", load_rules(served_database.parent / "pools"))
    server = BoundedServer(application(results, feed), bound("127.0.0.1:0", allow_remote=False, token=""))
    server.start()
    yield Site(server)
    feed.close()
    server.close()


def build_at(database: Path, served_database: Path) -> None:
    """Put a build in its place as `pool-analysis build` does, by rename."""
    database.parent.mkdir()
    shutil.copy(served_database, database.with_suffix(".new"))
    database.with_suffix(".new").rename(database)


def test_every_address_says_that_nothing_is_built(early_site: Site) -> None:
    """Pages and answers say so with status 503, and name no folder; the feed of new blocks is there."""
    for path in ("/", "/pools", "/mempool", "/api/v1/pools", "/pools.csv", "/findings.atom", "/metrics"):
        answer = early_site.get(path)
        assert (answer.status_code, NOTHING.lower() in answer.text.lower()) == (503, True), path
        assert "later.duckdb" not in answer.text
    assert early_site.get("/static/serve.js").status_code == 200


def test_the_first_build_is_shown_when_it_comes(
    early_site: Site, results: Results, served_database: Path
) -> None:
    """No restart is needed."""
    assert early_site.get("/").headers["refresh"]
    build_at(results.database, served_database)

    assert early_site.data("/api/v1/pools")
    answer = early_site.get("/")
    assert answer.status_code == 200
    assert "refresh" not in answer.headers


@pytest.mark.browser
def test_new_blocks_are_shown_before_the_first_build(
    early_site: Site, collector: PlantedCollector, tmp_path: Path
) -> None:
    """Whether the node is followed, and each block with its pool, need no build."""
    with browser(tmp_path / "profile") as tab:
        tab.visit(early_site.url, width_px=390)
        wait_for(tab, BANNER, "Watching. ")
        collector.find_block(9, NEW_HASH)
        wait_for(tab, "return document.getElementById('tiles').textContent", POOL_NAME)
        assert "by tag" in tab.run(FIRST_TILE)
        tab.evaluate((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
        assert json.loads(tab.evaluate(RUN_AXE)) == []


def test_charts_are_made_for_the_first_build(
    results: Results, served_database: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are drawn when it comes, and nobody complains before."""
    preparation = Preparation(results)
    build_at(results.database, served_database)
    try:
        assert wait_for_all(results)
    finally:
        preparation.close()
    assert capfd.readouterr().err == ""


def test_without_waiting_a_missing_build_is_an_error(tmp_path: Path) -> None:
    """Who names a wrong path is told at once."""
    with pytest.raises(DatabaseError, match="pool-analysis build"):
        Results(tmp_path / "later.duckdb")
