"""Compare the mempool that a dataset implies with the node's own, and wait for what the node publishes."""

from typing import Any

from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES, hash_bytes
from collector.node.rpc import RpcClient
from collector.regtest.wallet import Wallet, pay


def read(dataset_folder: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table of a dataset, by table; fail if a key occurs twice."""
    dataset = Dataset.open(dataset_folder, "regtest")
    rows = {name: dataset.read(table).to_pylist() for name, table in TABLES.items()}
    for name, table in TABLES.items():
        keys = [tuple(row[column] for column in table.grain) for row in rows[name]]
        assert len(keys) == len(set(keys)), name
    return rows


def mempool_by_rows(rows: dict[str, list[dict[str, Any]]], session: str) -> set[bytes]:
    """Replay a session's rows of `mempool_txs` and events, and return the txids in the mempool at its end."""
    inside = {
        row["txid"]
        for row in rows["mempool_txs"]
        if row["session"] == session and row["first_seen_kind"] == "at_start"
    }
    mined: dict[bytes, list[bytes]] = {}
    for row in rows["transactions"]:
        mined.setdefault(row["block_hash"], []).append(row["txid"])
    events = [row for row in rows["mempool_events"] if row["session"] == session]
    for row in sorted(events, key=lambda row: (row["received_at"], abs(row["sequence"]))):
        if row["event"] == "A":
            inside.add(row["hash"])
        elif row["event"] == "R":
            inside.discard(row["hash"])
        elif row["event"] == "C":
            inside.difference_update(mined[row["hash"]])
    return inside


def send(rpc: RpcClient, wallet: Wallet, count: int) -> None:
    """Send `count` payments to the node, each with a coin of its own."""
    for _ in range(count):
        payment = pay([wallet.take()], [], feerate_sat_vb=3)
        rpc.call("sendrawtransaction", payment.transaction.raw.hex())


def node_mempool(rpc: RpcClient) -> set[bytes]:
    """Return the txids in the node's mempool."""
    return {hash_bytes(txid) for txid in rpc.call("getrawmempool")}


def wait_published(rpc: RpcClient) -> None:
    """Wait until the node has published all that happened up to now, which it does in its own thread."""
    rpc.call("syncwithvalidationinterfacequeue")
