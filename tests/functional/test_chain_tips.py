"""Test with a real node that stale tips which it knows but never connects are recorded, each change once."""

from pathlib import Path
from typing import Any

import pytest

from collector.dataset.schema import hash_bytes
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind
from tests.functional.replay import read
from tests.functional.running import collecting, settings_for, wait_for_log

pytestmark = pytest.mark.bitcoind


def mine(rpc: RpcClient, n_blocks: int, script: str) -> list[str]:
    """Mine blocks that pay to a raw script; return their hashes."""
    hashes: list[str] = rpc.call("generatetodescriptor", n_blocks, f"raw({script})")
    return hashes


def test_tips_that_were_never_connected_are_recorded(tmp_path: Path) -> None:
    """A header alone, then its block, then a branch that the node left: each change of a tip has one row."""
    with RegtestNode(find_bitcoind()) as node, RegtestNode(find_bitcoind()) as other:
        rpc = node.client()
        first = mine(rpc, 3, "51")[-1]
        (stale,) = mine(other.client(), 1, "52")
        body = other.client().call("getblock", stale, 0)
        with collecting(settings_for(tmp_path / "dataset", alpha=node)) as logs:
            wait_for_log(logs, "mempool.in_step")
            rpc.call("submitheader", body[:160])
            mine(rpc, 1, "51")
            wait_for_log(logs, "chain_tip.changed", status="headers-only")
            rpc.call("submitblock", body)
            left = mine(rpc, 1, "51")[-1]
            wait_for_log(logs, "chain_tip.changed", status="valid-headers")
            rpc.call("invalidateblock", left)
            rivals = {left, *mine(rpc, 1, "53")}
            rpc.call("reconsiderblock", left)
            mine(rpc, 1, "53")
            (lost,) = rivals - {rpc.call("getblockhash", 5)}
            wait_for_log(logs, "chain_tip.changed", status="valid-fork")
    rows = read(tmp_path / "dataset")["chain_tips"]

    def tip(row: dict[str, Any]) -> tuple[bytes, int, int, str]:
        return row["block_hash"], row["height"], row["branch_length"], row["status"]

    rows = [tip(row) for row in sorted(rows, key=lambda row: row["taken_at"]) if row["status"] != "invalid"]
    assert rows == [
        (hash_bytes(first), 3, 0, "active"),
        (hash_bytes(stale), 1, 1, "headers-only"),
        (hash_bytes(stale), 1, 1, "valid-headers"),
        (hash_bytes(lost), 5, 1, "valid-fork"),
    ]
