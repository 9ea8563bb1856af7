"""Test check, status and compact on a dataset while a real collector fills it."""

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.compaction.run import compact
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from tests.functional.replay import wait_published

pytestmark = pytest.mark.bitcoind


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a command of `pool-collector` and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "collector", *arguments], capture_output=True, text=True, check=False
    )


def test_a_dataset_is_checked_shown_and_compacted_while_it_grows(
    node: RegtestNode, new_collector: Callable[[], Any]
) -> None:
    """`check` passes at every moment, `status` shows the running collector, and compaction changes no row."""
    rpc = node.client()
    wallet = make_wallet(node, 60, seed=11)
    wait_published(rpc)
    collector = new_collector()
    collector.start()
    for number in range(60):
        payment = pay([wallet.take()], [], feerate_sat_vb=2 + number % 9)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        if number % 20 == 19:
            before = collector.log.stat().st_size
            rpc.call("generatetodescriptor", 1, "raw(51)")
            collector.wait_for("dataset.sealed", after=before)  # files enough to compact
            checked = command("check", collector.dataset)
            assert checked.returncode == 0, checked.stdout + checked.stderr
    status = json.loads(command("status", collector.dataset, "--json").stdout)
    assert status["is_running"]
    assert status["nodes"][0]["name"] == "alpha"
    assert status["nodes"][0]["gaps"] == []
    assert collector.stop() == 0, collector.log.read_text()

    dataset = Dataset.open(collector.dataset, "regtest")
    rows = {name: sorted_rows(dataset, name) for name in TABLES}
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    done = list(compact(dataset, today=tomorrow))
    assert [outcome.error for outcome in done if outcome.error] == []
    assert "mempool_events" in {outcome.partition.split("/")[0] for outcome in done}
    assert {name: sorted_rows(dataset, name) for name in TABLES} == rows
    checked = command("check", collector.dataset)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    status = json.loads(command("status", collector.dataset, "--json").stdout)
    assert not status["is_running"]
    assert {gap["reason"] for gap in status["nodes"][0]["gaps"]} == {"shutdown"}


def sorted_rows(dataset: Dataset, name: str) -> list[str]:
    """Return the rows of a table as text, sorted."""
    return sorted(map(repr, dataset.read(TABLES[name]).to_pylist()))
