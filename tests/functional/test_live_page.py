"""Test the page of now with a real node, collector and browser: what a new block shows as it comes."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.engine import build
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from tests.analysis.report.chromium import browser
from tests.analysis.serve.conftest import wait_for
from tests.bench.bench_live import WORLD, page
from tests.bench.planted_files import write_world
from tests.bench.planted_world import simulate
from tests.functional.conftest import DEADLINE_S, CollectorProcess
from tests.functional.running import SCRAPE_S, samples

pytestmark = [pytest.mark.bitcoind, pytest.mark.browser]
N_WAITING = 10
N_TAKEN = 6
NEW_TILE = "return document.querySelector('#tiles .tile.new')?.textContent ?? ''"
NEW_TITLE = "return document.querySelector('#tiles .tile.new').title"
BANNER = "return document.getElementById('live').textContent"


def wait_templates(node: RegtestNode, collector: CollectorProcess) -> None:
    """Wait until the collector has taken a template with all that waits; a node keeps one for 5 s."""
    deadline = time.monotonic() + DEADLINE_S
    rpc = node.client()
    while len(rpc.call("getblocktemplate", {"rules": ["segwit"]})["transactions"]) < N_WAITING:
        assert time.monotonic() < deadline
        time.sleep(SCRAPE_S)

    def n_templates() -> float:
        return samples(collector.url, table="templates").get("rows_total", 0.0)

    wanted = n_templates() + 2  # one may be under way
    while n_templates() < wanted:
        assert time.monotonic() < deadline, collector.log.read_text()
        time.sleep(SCRAPE_S)


def test_a_new_block_shows_what_it_took_and_passed_over(
    node: RegtestNode, new_collector: Callable[[], CollectorProcess], tmp_path: Path
) -> None:
    """A block takes six of the ten promised transactions: score, taken, passed over; then it is undone."""
    database = build(
        write_world(simulate(WORLD), tmp_path), tmp_path / "pools", tmp_path / "a.duckdb"
    ).database
    rpc = node.client()
    wallet = make_wallet(node, N_WAITING, seed=5)
    collector = new_collector()
    collector.start()
    with page(database, collector.url) as address, browser(tmp_path / "profile") as tab:
        tab.visit(address, width_px=1280)
        payments = [pay([wallet.take()], [], feerate_sat_vb=5 + number) for number in range(N_WAITING)]
        for payment in payments:
            rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        collector.wait_complete()
        wait_templates(node, collector)
        wait_for(tab, BANNER, f"{N_WAITING} transactions wait")

        taken = [payment.transaction.raw.hex() for payment in payments[:N_TAKEN]]
        block_hash = rpc.call("generateblock", "raw(51)", taken)["hash"]
        tile = wait_for(tab, NEW_TILE, "passed over")

        assert f"{100 * N_TAKEN // N_WAITING}\u00a0% of template" in tile
        assert f"{N_WAITING - N_TAKEN} passed over" in tile
        assert f"{N_TAKEN + 1} tx" in tile
        fees_sat = sum(payment.fee_sat for payment in payments[:N_TAKEN])
        assert f"{fees_sat / 1e8:.5f}" in tile
        assert f"{N_TAKEN} taken, {N_WAITING - N_TAKEN} passed over; 0 others" in tab.run(NEW_TITLE)

        rpc.call("invalidateblock", block_hash)
        wait_for(tab, NEW_TILE, "stale")
