"""The collector is killed in the middle of things and started again: nothing twice, nothing received lost."""

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from collector.regtest import RegtestNode, make_wallet
from collector.regtest.wallet import pay
from collector.schema import TABLES, hash_bytes
from collector.writer import Dataset

pytestmark = pytest.mark.bitcoind
ROUNDS = 3


def counter_runs(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the counters of the pushed events of each session, in order."""
    sessions: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row["sequence"]):
        if row["kind"] == "pushed":
            sessions.setdefault(row["session"], []).append(row["sequence"])
    return sessions


def test_sigkill_costs_nothing_received(
    node: RegtestNode, witness: Any, new_collector: Callable[[], Any]
) -> None:
    """After kills under load: rows unique, each session's events without a hole, holes named in coverage."""
    rpc = node.client()
    wallet = make_wallet(node, 400, seed=3)
    time.sleep(0.6)  # the node publishes the wallet's blocks in a thread of its own
    collector = new_collector()
    fees_sat = {}
    for kill in range(ROUNDS):
        collector.start()
        for number in range(90):
            payment = pay([wallet.take()], [], feerate_sat_vb=2 + number % 9)
            rpc.call("sendrawtransaction", payment.transaction.raw.hex())
            fees_sat[payment.transaction.txid] = payment.fee_sat
            if number % 40 == 39:
                rpc.call("generatetodescriptor", 1, "raw(51)")
        time.sleep(0.02 * kill)
        collector.stop(signal.SIGKILL)
        rpc.call("generatetodescriptor", 2, "raw(52)")  # nobody sees these come
    collector.start()
    last = pay([wallet.take()], [], feerate_sat_vb=5)
    rpc.call("sendrawtransaction", last.transaction.raw.hex())
    fees_sat[last.transaction.txid] = last.fee_sat
    time.sleep(1)
    assert collector.stop() == 0, collector.log.read_text()

    dataset = Dataset.open(collector.dataset, "regtest")
    rows = {name: dataset.read(table).to_pylist() for name, table in TABLES.items()}
    for name, table in TABLES.items():
        keys = [tuple(row[column] for column in table.grain) for row in rows[name]]
        assert len(keys) == len(set(keys)), name
    bodies = dict(witness.messages)
    runs = counter_runs(rows["mempool_events"])
    assert len(runs) == ROUNDS + 1
    for counters in runs.values():
        assert counters == list(range(counters[0], counters[-1] + 1))
    for row in rows["mempool_events"]:
        if row["kind"] == "pushed":
            assert bodies[row["sequence"]][:32] == row["hash"][::-1]
    check_coverage(rows, runs)
    check_entries(rows, fees_sat)
    heights = sorted(row["height"] for row in rows["blocks"])
    assert heights == list(range(heights[0], rpc.call("getblockcount") + 1))
    assert hash_bytes(rpc.call("getbestblockhash")) in {row["block_hash"] for row in rows["blocks"]}
    journals = list(collector.dataset.glob("journal/**/*.journal"))
    assert journals == []


def test_sigkill_does_not_cost_what_was_there_at_the_start(
    node: RegtestNode, new_collector: Callable[..., Any]
) -> None:
    """What the first snapshot told of has its rows, though the kill came before it was asked for."""
    rpc = node.client()
    wallet = make_wallet(node, 12, seed=5)
    fees_sat = {}
    for _ in range(12):
        payment = pay([wallet.take()], [], feerate_sat_vb=7)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())
        fees_sat[payment.transaction.txid] = payment.fee_sat
    collector = new_collector("fee_batch = 9\nfee_interval_s = 600\n")
    collector.start()
    time.sleep(1)
    collector.stop(signal.SIGKILL)
    collector.start()
    assert collector.stop() == 0, collector.log.read_text()
    dataset = Dataset.open(collector.dataset, "regtest")
    rows = dataset.read(TABLES["mempool_txs"]).to_pylist()
    sessions = {row["session"] for row in rows}
    assert len(sessions) == 2
    for session in sessions:
        told = [row for row in rows if row["session"] == session and row["txid"] in fees_sat]
        assert sorted((row["txid"], row["fee_sat"]) for row in told) == sorted(fees_sat.items())
        assert {row["first_seen_kind"] for row in told} == {"at_start"}


def check_coverage(rows: dict[str, list[dict[str, Any]]], runs: dict[str, list[int]]) -> None:
    """Each session's intervals end as it ended, and claim exactly the events that are there."""
    for number, (session, counters) in enumerate(sorted(runs.items())):
        intervals = [
            row for row in rows["coverage"] if row["session"] == session and row["topic"] == "sequence"
        ]
        ends = [row["end_reason"] for row in intervals if row["end_reason"] != "sealed"]
        assert ends == ["killed" if number < ROUNDS else "shutdown"]
        # A seal may come between the last message and the kill: the interval after it has none.
        last = [row["last_sequence"] for row in intervals if row["last_sequence"] is not None]
        assert max(last) == counters[-1]


def check_entries(rows: dict[str, list[dict[str, Any]]], fees_sat: dict[bytes, int]) -> None:
    """Every A has its entry, with its body and the right fee, whatever became of it meanwhile."""
    entries = {(row["session"], row["txid"]): row for row in rows["mempool_txs"]}
    added = [row for row in rows["mempool_events"] if row["event"] == "A"]
    assert all((row["session"], row["hash"]) in entries for row in added)
    assert all(row["fee_sat"] == fees_sat[row["txid"]] for row in rows["mempool_txs"])
    assert all(row["n_inputs"] == 1 for row in rows["mempool_txs"])
    assert len(entries) > len(fees_sat) / 2
