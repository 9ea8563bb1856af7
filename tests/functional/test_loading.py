"""Test a node that has just started and still reads the mempool that its last run saved."""

import os
from pathlib import Path

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from tests.functional.replay import node_mempool, send
from tests.functional.running import collecting, settings_for, wait_for_log, wait_until

pytestmark = pytest.mark.bitcoind
N_SAVED = 8


def test_a_saved_mempool_is_not_pushed(tmp_path: Path) -> None:
    """Transactions that a starting node loads from its saved mempool have kind `at_start`, not `pushed`.

    The node publishes an A event for each of them, so the collector waits until it has loaded all. A pipe as
    block file keeps the node busy before it loads its mempool.
    """
    pipe = tmp_path / "blocks.dat"
    os.mkfifo(pipe)
    bitcoind = find_bitcoind()
    with RegtestNode(bitcoind) as loading, RegtestNode(bitcoind) as other:
        send(loading.client(), make_wallet(loading, N_SAVED + 1, seed=12), N_SAVED)
        saved = node_mempool(loading.client())
        loading.options = (f"-loadblock={pipe}",)
        loading.restart()
        try:
            with collecting(settings_for(tmp_path / "dataset", loading=loading, other=other)) as logs:
                wait_for_log(logs, "session.started", node="other")
                wait_for_log(logs, "node.away", node="loading")  # it waits for the mempool of that node
                pipe.write_bytes(b"")
                wait_until(lambda: loading.client().call("getmempoolinfo")["loaded"])
                wait_for_log(logs, "mempool.in_step", node="loading")
        finally:
            os.close(os.open(pipe, os.O_RDWR))  # a node that still waits for it would not stop
    rows = Dataset.open(tmp_path / "dataset", "regtest").read(TABLES["mempool_txs"]).to_pylist()
    assert {row["txid"] for row in rows} == saved
    assert [row["first_seen_kind"] for row in rows] == ["at_start"] * N_SAVED
