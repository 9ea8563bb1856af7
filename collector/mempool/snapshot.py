"""Ask a node for a snapshot of its mempool."""

import time
from typing import NamedTuple

from collector.clock import monotonic_us, wall_us
from collector.dataset.schema import hash_bytes
from collector.mempool.sync import MempoolSnapshot
from collector.node.rpc import RpcClient


class SnapshotAnswer(NamedTuple):
    """A snapshot, and the earliest time at which the node that gave it can have begun to run."""

    snapshot: MempoolSnapshot
    node_began_after_s: float  # monotonic clock


def ask_snapshot(client: RpcClient) -> SnapshotAnswer:
    """Ask for the mempool's txids with the mempool sequence number that comes next."""
    asked_s = time.monotonic()
    # The node rounds its uptime down to whole seconds, and reads it some time after we asked.
    node_began_after_s = asked_s - client.call("uptime") - 1
    answer = client.call("getrawmempool", False, True)  # noqa: FBT003 - JSON-RPC has positions, not names
    txids = frozenset(hash_bytes(txid) for txid in answer["txids"])
    return SnapshotAnswer(
        MempoolSnapshot(answer["mempool_sequence"], txids, monotonic_us(), wall_us()), node_began_after_s
    )
