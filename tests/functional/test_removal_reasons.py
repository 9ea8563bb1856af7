"""Test removal reasons with a real node: a reorganisation, expiry, and a block that arrives late."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from collector.config import NodeSettings, Settings
from collector.dataset.schema import hash_bytes
from collector.mempool.events import QUIET_US
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.transaction import FINAL, RegtestTransaction, TxOutput
from collector.regtest.wallet import Coin, pay
from tests.functional.chaos.network import Proxy
from tests.functional.replay import mempool_by_rows, node_mempool, read, send, wait_published
from tests.functional.running import collecting, samples, settings_for, wait_complete, wait_for_log
from tests.functional.wires import Relay

pytestmark = pytest.mark.bitcoind
MATURITY = 100
LARGE = [TxOutput(0, b"\x00\x14" + bytes(20))] * 2_900  # 90 kB of outputs
FIFTEEN_DAYS_S = 15 * 86_400


def spend_youngest_coinbase(rpc: RpcClient) -> bytes:
    """Send a spend of the coinbase that the last block made mature; return the spend's txid."""
    height = rpc.call("getblockcount") + 1 - MATURITY
    coinbase = rpc.call("getblock", rpc.call("getblockhash", height))["tx"][0]
    outputs = [{"data": "00" * 80}]  # large enough for a transaction
    raw = rpc.call("createrawtransaction", [{"txid": coinbase, "vout": 0}], outputs)
    return hash_bytes(rpc.call("sendrawtransaction", raw, 0, 100))


def test_reorganisation_and_expiry_are_the_reasons(tmp_path: Path) -> None:
    """The spend of a coinbase made immature is `reorged`; old transactions are `expired_or_evicted`."""
    options = ("-acceptnonstdtxn=1", "-mempoolexpiry=1")  # coins of anyone; an hour
    with RegtestNode(find_bitcoind(), options=options) as node:
        rpc = node.client()
        wallet = make_wallet(node, 9, seed=14)
        rpc.call("generatetodescriptor", MATURITY, "raw(51)")
        settings = settings_for(tmp_path / "dataset", alpha=node)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            (tip,) = rpc.call("generatetodescriptor", 1, "raw(51)")
            young = spend_youngest_coinbase(rpc)
            send(rpc, wallet, 3)
            wait_complete(settings, node)
            rpc.call("invalidateblock", tip)
            rpc.call("generatetodescriptor", 2, "raw(52)")
            send(rpc, wallet, 3)
            old = node_mempool(rpc)
            wait_complete(settings, node)
            rpc.call("setmocktime", int(time.time()) + 2 * 3600)
            send(rpc, wallet, 1)
            wait_complete(settings, node)
            in_node = node_mempool(rpc)
    rows = read(tmp_path / "dataset")
    reasons = {row["hash"]: row["removal_reason"] for row in rows["mempool_events"] if row["event"] == "R"}
    assert (len(old), len(in_node)) == (3, 1)
    assert reasons == {young: "reorged"} | dict.fromkeys(old, "expired_or_evicted")
    assert mempool_by_rows(rows, rows["nodes"][0]["session"]) == in_node


def test_a_sibling_that_gives_way_is_replaced(tmp_path: Path) -> None:
    """Where a parent may have one child (version 3), a better child replaces the one before it.

    The two spend different outputs of the parent.
    """
    bitcoind = find_bitcoind()
    options = ("-mempooltruc=enforce",) if bitcoind.is_knots else ()  # Bitcoin Core knows nothing else
    with RegtestNode(bitcoind, options=options) as node:
        rpc = node.client()
        coin = make_wallet(node, 3, seed=17).take()
        settings = settings_for(tmp_path / "dataset", alpha=node)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            halves = [TxOutput(coin.value_sat // 2 - 1_000, coin.kind.script)] * 2
            parent = RegtestTransaction((coin.spend(FINAL),), tuple(halves), version=3)
            coins = [
                Coin(txid=parent.txid, vout=vout, value_sat=half.value_sat, kind=coin.kind)
                for vout, half in enumerate(halves)
            ]
            children = [
                replace(pay([each], [], feerate_sat_vb=feerate).transaction, version=3)
                for each, feerate in zip(coins, (10, 90), strict=True)
            ]
            for transaction in (parent, *children):
                rpc.call("sendrawtransaction", transaction.raw.hex(), 0)
                wait_complete(settings, node)
            assert node_mempool(rpc) == {parent.txid, children[1].txid}
    (removed,) = (row for row in read(tmp_path / "dataset")["mempool_events"] if row["event"] == "R")
    assert (removed["hash"], removed["removal_reason"]) == (children[0].txid, "replaced")
    assert removed["replaced_by"] == children[1].txid


def test_what_only_a_stale_block_has_is_lost(tmp_path: Path) -> None:
    """A transaction whose block was disconnected, and that is replaced then, is not mined: its bytes stay."""
    with RegtestNode(find_bitcoind(), options=("-acceptnonstdtxn=1",)) as node:
        rpc = node.client()
        wallet = make_wallet(node, 9, seed=15)
        settings = settings_for(tmp_path / "dataset", alpha=node)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            reorganised = pay([wallet.take()], [], feerate_sat_vb=3, replaceable=True)
            rpc.call("sendrawtransaction", reorganised.transaction.raw.hex())
            wait_complete(settings, node)
            (tip,) = rpc.call("generatetodescriptor", 1, "raw(51)")
            wait_complete(settings, node)
            rpc.call("invalidateblock", tip)
            wait_complete(settings, node)
            better = pay(reorganised.spent, [], feerate_sat_vb=90)
            rpc.call("sendrawtransaction", better.transaction.raw.hex())
            wait_complete(settings, node)
            rpc.call("generatetodescriptor", 2, "raw(52)")
            wait_complete(settings, node)
    rows = read(tmp_path / "dataset")
    bodies = {row["txid"]: row["raw"] for row in rows["mempool_bodies"]}
    assert bodies == {reorganised.transaction.txid: reorganised.transaction.raw}


def test_a_block_that_comes_late_explains_its_conflicts(tmp_path: Path) -> None:
    """When a block comes seconds late, a removal waits for it and gets the reason `conflict`.

    The block's message is lost and the node is slow to answer.
    """
    with (
        RegtestNode(find_bitcoind()) as node,
        closing(Relay(node)) as relay,
        closing(Proxy(int(urlsplit(node.rpc_url).port or 0))) as proxy,
    ):
        watched = NodeSettings(
            name="alpha",
            rpc_url=f"http://127.0.0.1:{proxy.port}",
            cookie_file=node.cookie_path,
            zmq=relay.endpoints,
        )
        rpc = node.client()
        wallet = make_wallet(node, 3, seed=15)
        wait_published(rpc)
        settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=(watched,))
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            doomed = pay([wallet.take()], [], feerate_sat_vb=5)
            rpc.call("sendrawtransaction", doomed.transaction.raw.hex())
            rival = pay(doomed.spent, [], feerate_sat_vb=70)
            relay.wait_received(rpc)
            relay.losing = {"rawblock"}
            proxy.set("hang")
            rpc.call("generateblock", "raw(51)", [rival.transaction.raw.hex()])
            time.sleep(2 * QUIET_US / 1e6)  # so long a removal waits without a block
            proxy.set("pass")
    rows = read(tmp_path / "dataset")
    (removed,) = (row for row in rows["mempool_events"] if row["event"] == "R")
    assert (removed["hash"], removed["removal_reason"]) == (doomed.transaction.txid, "conflict")
    assert [row["source"] for row in rows["blocks"]] == ["rpc"]


def wait_polled(settings: Settings, count: int) -> None:
    """Wait until mempool statistics were taken `count` times more."""
    url = f"http://{settings.metrics}"
    wanted = samples(url, table="mempool_stats")["rows_total"] + count
    while samples(url, table="mempool_stats")["rows_total"] < wanted:
        time.sleep(0.05)


def test_what_expired_is_told_from_what_was_evicted(tmp_path: Path) -> None:
    """Transactions of 15 days expire; those that pay least are evicted from a mempool of 5 MB."""
    options = ("-acceptnonstdtxn=1", "-maxmempool=5", "-incrementalrelayfee=0.00000001")
    with RegtestNode(find_bitcoind(), options=options) as node:
        rpc = node.client()
        wallet = make_wallet(node, 80, seed=16)
        settings = settings_for(tmp_path / "dataset", alpha=node)
        settings = settings.model_copy(update={"stats_interval_s": 0.2})
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            rpc.call("setmocktime", int(time.time()) - FIFTEEN_DAYS_S)
            send(rpc, wallet, 3)
            old = node_mempool(rpc)
            wait_complete(settings, node)
            rpc.call("setmocktime", 0)
            send(rpc, wallet, 1)
            kept = node_mempool(rpc)
            wait_complete(settings, node)
            wait_polled(settings, 2)
            for rank in range(70):
                payment = pay([wallet.take()], LARGE, feerate_sat_vb=1 + rank / 50)
                rpc.call("sendrawtransaction", payment.transaction.raw.hex())
                kept.add(payment.transaction.txid)
            evicted = kept - node_mempool(rpc)
            wait_complete(settings, node)
            wait_polled(settings, 2)
    database = build(
        settings.dataset, default_rules_dir(), tmp_path / "built.duckdb", marts=["removal_cause"]
    ).database
    with open_database(database) as connection:
        causes = dict(connection.execute("SELECT txid, cause FROM removal_cause").fetchall())
    assert (len(old), len(evicted) > 1) == (3, True)
    assert causes == dict.fromkeys(old, "expired") | dict.fromkeys(evicted, "evicted")
