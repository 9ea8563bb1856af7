"""Ask a node for a snapshot of its mempool: the txids, as of one mempool sequence number."""

import time
from typing import NamedTuple

from collector.clock import monotonic_us, wall_us
from collector.dataset.schema import hash_bytes
from collector.node.rpc import RpcClient


class MempoolSnapshot(NamedTuple):
    """The txids in the mempool as of a mempool sequence number, and when the node began at the earliest."""

    mempool_sequence: int
    txids: list[bytes]
    taken_us: int  # monotonic clock
    taken_wall_us: int
    node_began_after_s: float  # monotonic clock


def ask_snapshot(client: RpcClient) -> MempoolSnapshot:
    """Take the mempool's txids with the mempool sequence number that comes next."""
    asked_s = time.monotonic()
    # Uptime is cut to whole seconds, and counted some time after we asked.
    node_began_after_s = asked_s - client.call("uptime") - 1
    answer = client.call("getrawmempool", False, True)  # noqa: FBT003 - JSON-RPC has positions, not names
    txids = [hash_bytes(txid) for txid in answer["txids"]]
    return MempoolSnapshot(answer["mempool_sequence"], txids, monotonic_us(), wall_us(), node_began_after_s)
