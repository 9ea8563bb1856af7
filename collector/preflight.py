"""See that a node can serve us before anything is written: reachable, on our chain, publishing our topics."""

import json
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import structlog

from collector.bitcoin_conf import find_access
from collector.config import NodeSettings, Settings
from collector.errors import MissingTopic, NodeUnavailable, WrongChain
from collector.rpc import RpcClient
from collector.schema import hash_bytes

Row = dict[str, Any]
TOPICS: Final = ("sequence", "rawtx", "rawblock")
EXAMPLE_PORTS: Final = {"sequence": 28332, "rawtx": 28333, "rawblock": 28334}
LEAST_HWM: Final = 10_000  # a block publishes some thousand rawtx at once
LIBRARIES: Final = ("pyarrow", "pyzmq", "requests", "numpy")
STATE: Final = ("loaded", "size", "bytes", "usage", "total_fee", "unbroadcastcount")  # not policy
log = structlog.get_logger(__name__)


class NodeFacts(NamedTuple):
    """A node that can serve us: where it publishes, and its row of `nodes` but for the names and the time."""

    endpoints: dict[str, str]  # by topic
    node_began_before_s: float  # on our monotonic clock
    row: Row


def client_for(node: NodeSettings, chain: str, *, patience_s: float = 0.0) -> RpcClient:
    """Return a client for a node's RPC: where it is comes from the settings, else from its bitcoin.conf."""
    access = find_access(node, chain)
    return RpcClient(
        access.rpc_url,
        cookie_file=access.cookie_file,
        user=access.user,
        password=access.password,
        timeout_s=node.rpc_timeout_s,
        patience_s=patience_s,
        allow_remote=node.allow_remote_rpc,
    )


def examine(client: RpcClient, node: NodeSettings, settings: Settings) -> NodeFacts:
    """Check the node and collect what its row of `nodes` says.

    Raises WrongChain, MissingTopic, NodeUnavailable during the initial download, or what the client raises.
    """
    chain = client.call("getblockchaininfo")
    if chain["chain"] != settings.chain:
        raise WrongChain(
            f"node {node.name} at {client.url} is on {chain['chain']}, the settings say {settings.chain}; "
            "set chain, or the address of another node"
        )
    if chain["initialblockdownload"] and settings.chain != "regtest":  # there it lasts until the first block
        raise NodeUnavailable(
            f"node {node.name} is still downloading the chain ({float(chain['verificationprogress']):.1%}); "
            "start again when it has caught up"
        )
    node_began_before_s = -client.call("uptime") + time.monotonic()
    notifiers = client.call("getzmqnotifications")
    endpoints = find_endpoints(notifiers, node, client.url)
    network = client.call("getnetworkinfo")
    mempool = client.call("getmempoolinfo")
    policy = {name: value for name, value in mempool.items() if name not in STATE}
    policy |= {name: network[name] for name in ("relayfee", "incrementalfee") if name in network}
    row = {
        "chain": chain["chain"],
        "node_version": network["version"],
        "subversion": network["subversion"],
        "tip_height": chain["blocks"],
        "tip_hash": hash_bytes(chain["bestblockhash"]),
        "n_mempool_at_start": mempool["size"],
        "clock_offset_us": client.clock_offset_us(),
        "policy": json.dumps(policy, default=str),
        "zmq": json.dumps(
            [notifier for notifier in notifiers if notifier["type"].removeprefix("pub") in endpoints]
        ),
        "collector_version": metadata.version("pool-measurement"),
        "software": json.dumps(_software()),
        "settings": settings.model_dump_json(),
    }
    return NodeFacts(endpoints, node_began_before_s, row)


def find_endpoints(notifiers: list[Mapping[str, Any]], node: NodeSettings, rpc_url: str) -> dict[str, str]:
    """Return the address of each topic: from the settings, else from what the node says it publishes."""
    published = {str(entry["type"]).removeprefix("pub"): entry for entry in notifiers}
    missing = [topic for topic in TOPICS if topic not in published]
    if missing:
        lines = " and ".join(f"zmqpub{topic}=tcp://127.0.0.1:{EXAMPLE_PORTS[topic]}" for topic in missing)
        raise MissingTopic(
            f"node {node.name} does not publish {', '.join(missing)} over ZMQ; add {lines} to its "
            "bitcoin.conf and restart it"
        )
    small = {topic: published[topic]["hwm"] for topic in TOPICS if 0 < published[topic]["hwm"] < LEAST_HWM}
    if small:
        log.warning(
            "zmq.small_queue", node=node.name, advice=f"set zmqpub<topic>hwm={LEAST_HWM * 10}", **small
        )
    return {topic: node.zmq.get(topic) or reachable(published[topic]["address"], rpc_url) for topic in TOPICS}


def reachable(address: str, rpc_url: str) -> str:
    """Replace a wildcard that the node binds to by the host its RPC is reached at."""
    parts = urlsplit(address)
    if parts.scheme == "tcp" and parts.hostname in ("0.0.0.0", "::", "*"):  # noqa: S104 - read, not bound
        return f"tcp://{urlsplit(rpc_url).hostname}:{parts.port}"
    return address


def _software() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
