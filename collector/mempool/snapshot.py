"""Ask a node for a snapshot of its mempool."""

import time
from typing import NamedTuple

from collector.clock import monotonic_us, wall_us
from collector.mempool.sync import MempoolSnapshot
from collector.node.answers import LATEST_TIME_S, Fields, read_integer
from collector.node.rpc import RpcClient


class SnapshotAnswer(NamedTuple):
    """Holds a mempool snapshot, and the earliest time at which the node that gave it can have started."""

    snapshot: MempoolSnapshot
    node_began_after_s: float  # monotonic clock


def ask_snapshot(client: RpcClient) -> SnapshotAnswer:
    """Return a snapshot of a node's mempool: all its txids and the next mempool sequence number.

    Raises NodeError when the node does not answer or its answer has a wrong form.
    """
    asked_s = time.monotonic()
    # The node rounds its uptime down to whole seconds, and reads it some time after we asked. It is below 0
    # where the node's clock was set back since its start: Bitcoin Core up to 30 takes it from the wall clock.
    uptime_s = read_integer("uptime", client.call("uptime"), least=-LATEST_TIME_S, most=LATEST_TIME_S)
    node_began_after_s = asked_s - uptime_s - 1
    answer = client.call("getrawmempool", False, True)  # noqa: FBT003 - JSON-RPC has positions, not names
    fields = Fields("getrawmempool", answer)
    number, txids = fields.integer("mempool_sequence"), frozenset(fields.hashes("txids"))
    return SnapshotAnswer(MempoolSnapshot(number, txids, monotonic_us(), wall_us()), node_began_after_s)
