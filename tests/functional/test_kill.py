"""Test a kill before the collector has asked for fees, and a stop during a long recovery."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from tests.functional.chaos.judge import run_check
from tests.functional.replay import read, send

pytestmark = pytest.mark.bitcoind


def test_sigkill_does_not_cost_what_was_there_at_the_start(
    node: RegtestNode, new_collector: Callable[..., Any]
) -> None:
    """Transactions that the first snapshot listed get their rows, though the kill came before their fees."""
    rpc = node.client()
    wallet = make_wallet(node, 12, seed=5)
    fees_sat = {}
    for _ in range(12):
        payment = pay([wallet.take()], [], feerate_sat_vb=7)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        fees_sat[payment.transaction.txid] = payment.fee_sat
    collector = new_collector("fee_batch = 9\nfee_interval_s = 600\n")
    collector.start()
    collector.wait_taken()
    collector.stop(signal.SIGKILL)
    collector.start()
    assert collector.stop() == 0, collector.log.read_text()
    dataset = Dataset.open(collector.dataset, "regtest")
    rows = dataset.read(TABLES["mempool_txs"]).to_pylist()
    sessions = {row["session"] for row in rows}
    assert len(sessions) == 2
    for session in sessions:
        listed = [row for row in rows if row["session"] == session and row["txid"] in fees_sat]
        assert sorted((row["txid"], row["fee_sat"]) for row in listed) == sorted(fees_sat.items())
        assert {row["first_seen_kind"] for row in listed} == {"at_start"}


def test_a_recovery_costs_the_next_session_nothing(new_collector: Callable[..., Any]) -> None:
    """The node is subscribed to before the recovery, and the next session begins with that subscription."""
    collector = new_collector()
    collector.start()
    collector.stop(signal.SIGKILL)
    collector.start()
    assert collector.stop() == 0, collector.log.read_text()
    log = collector.log.read_text()
    assert "journal.recovering" in log
    assert "node.away" not in log


def test_a_stop_does_not_wait_for_a_recovery(
    node: RegtestNode, witness: Any, new_collector: Callable[..., Any]
) -> None:
    """A stop during recovery leaves the remaining rows to the next start, and no row is made twice."""
    wallet = make_wallet(node, 20, seed=6)
    collector = new_collector()
    collector.start()
    n_before = len(witness.messages)
    send(node.client(), wallet, 20)
    collector.wait_taken()
    n_events = len(witness.messages) - n_before
    collector.stop(signal.SIGKILL)
    node.client().call("generatetodescriptor", 120, "raw(51)")
    collector.start(ready="journal.recovering")
    assert collector.stop() == 0, collector.log.read_text()
    assert "session.left" in collector.log.read_text()
    collector.start()
    assert collector.stop() == 0, collector.log.read_text()
    rows = read(collector.dataset)
    first = min(row["session"] for row in rows["nodes"])
    events = [row for row in rows["mempool_events"] if row["session"] == first and row["event"] == "A"]
    entries = [row for row in rows["mempool_txs"] if row["first_seen_kind"] == "pushed"]
    assert n_events == len(events) == len(entries) == 20
    assert all(row["fee_sat"] for row in entries)
    assert run_check(collector.dataset)[0] == 0
