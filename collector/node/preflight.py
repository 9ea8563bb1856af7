"""See that a node can serve us before anything is written: reachable, on our chain, publishing our topics.

Every reason not to start is one sentence: what was found, with its value, and what to set.
"""

import json
import platform
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import structlog

from collector.config import NodeSettings, Settings
from collector.dataset.schema import ZMQ_TOPICS, hash_bytes
from collector.errors import (
    MissingTopic,
    NodeError,
    NodeRefused,
    NodeUnavailable,
    RpcError,
    SettingsError,
    WrongChain,
)
from collector.node.access import RPC_PORTS, find_access
from collector.node.rpc import RpcClient, printable

Row = dict[str, Any]
EXAMPLE_PORTS: Final = {"sequence": 28332, "rawtx": 28333, "rawblock": 28334}
LEAST_VERSION: Final = 230000  # getblock tells what inputs spent since 23.0
PROBE_S: Final = 2.0
ZMTP_GREETING: Final = b"\xff"  # ZMTP 3.1, section "Greeting": what no HTTP server begins with
LEAST_HWM: Final = 10_000  # a block publishes some thousand rawtx at once, and few events
CROWDED: Final = ("sequence", "rawtx")  # blocks never come a thousand at once
LIBRARIES: Final = ("pyarrow", "pyzmq", "requests", "numpy")
STATE: Final = ("loaded", "size", "bytes", "usage", "total_fee", "unbroadcastcount")  # not policy
# Besides what is asked here: what a session asks (each `ask_` function, `collector.service.polls`).
METHODS: Final = (
    "getbestblockhash",
    "getblock",
    "getblocktemplate",
    "getmempoolentry",
    "getmempoolinfo",
    "getnetworkinfo",
    "getrawmempool",
    "getrawtransaction",
    "gettxout",
    "getzmqnotifications",
    "uptime",
)
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
        ca_file=access.ca_file,
    )


def refuse_twins(settings: Settings) -> None:
    """Raise SettingsError when two nodes are one: every row would be there under both names."""
    names: dict[tuple[str, ...], str] = {}
    for node in settings.node:
        url = find_access(node, settings.chain).rpc_url
        place = (url, *(node.zmq.get(topic, "") for topic in ZMQ_TOPICS))
        if place in names:
            raise SettingsError(
                f"nodes {names[place]} and {node.name} are the same one, at {url}; "
                "give each [[node]] its own rpc_url or datadir"
            )
        names[place] = node.name


def examine(client: RpcClient, node: NodeSettings, settings: Settings, *, is_first: bool = True) -> NodeFacts:
    """Check the node and collect what its row of `nodes` says; the first time, warn of what is unwise.

    Raises WrongChain, MissingTopic, NodeUnavailable during the initial download, NodeError for a node that is
    too old, SettingsError for an address that is no RPC's, or what the client raises.
    """
    refuse_zmq_port(client.url)
    chain = client.call("getblockchaininfo")
    if is_first:
        _refuse_forbidden(client)
    network = client.call("getnetworkinfo")
    _refuse_unfit(chain, network, f"node {node.name} at {client.url}", settings.chain)
    node_began_before_s = -client.call("uptime") + time.monotonic()
    notifiers = client.call("getzmqnotifications")
    endpoints = find_endpoints(notifiers, node, client.url)
    if is_first:
        warn_of_unwise(node.name, chain, notifiers)
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


def _refuse_forbidden(client: RpcClient) -> None:
    """Raise NodeRefused with every method that the node's rpcwhitelist keeps from us."""
    forbidden = []
    for method in METHODS:
        try:
            client.call(method, {})  # which none of them takes: the answer is an error, and costs nothing
        except RpcError:
            pass
        except NodeRefused:  # not our credentials: one call of ours was answered
            forbidden.append(method)
    if forbidden:
        raise NodeRefused(
            f"the node at {client.url} does not let us call {', '.join(forbidden)}; add what is missing to "
            "the rpcwhitelist of our user in its bitcoin.conf and restart it"
        )


def _refuse_unfit(chain: Row, network: Row, name: str, wanted: str) -> None:
    """Raise for a node of another chain, too old, or still downloading."""
    if chain["chain"] != wanted:
        raise WrongChain(
            f"{name} is on {printable(chain['chain'])!r}, the settings say "
            f"{wanted!r}; set chain, or the address of another node"
        )
    if network["version"] < LEAST_VERSION:
        raise NodeError(
            f"{name} has version {network['version']} "
            f"({printable(network['subversion'])}), which does not tell all we need; install 23.0 or newer"
        )
    if chain["initialblockdownload"] and wanted != "regtest":  # there it lasts until the first block
        # Its progress says 100 % where the chain has had no block for long.
        reached_at = datetime.fromtimestamp(chain["mediantime"], UTC)
        raise NodeUnavailable(
            f"{name} is still downloading the chain, and has it up to {reached_at:%Y-%m-%d %H:%M} UTC; "
            "start again when it has caught up"
        )


def warn_of_unwise(node: str, chain: Row, notifiers: list[Mapping[str, Any]]) -> None:
    """Warn of a pruned node, and of queues so small that the node will drop messages from them."""
    if chain.get("pruned"):
        advice = (
            "blocks below it cannot be fetched when they are missing; `backfill` needs a node that has them"
        )
        log.warning("node.pruned", node=node, from_height=chain.get("pruneheight"), advice=advice)
    limits = {str(notifier["type"]).removeprefix("pub"): notifier["hwm"] for notifier in notifiers}
    small = {topic: limits[topic] for topic in CROWDED if 0 < limits.get(topic, 0) < LEAST_HWM}
    if small:
        settings = " and ".join(f"zmqpub{topic}hwm={LEAST_HWM * 10}" for topic in small)
        log.warning("zmq.small_queue", node=node, advice=f"set {settings} in bitcoin.conf", **small)


def find_endpoints(notifiers: list[Mapping[str, Any]], node: NodeSettings, rpc_url: str) -> dict[str, str]:
    """Return the address of each topic: from the settings, else from what the node says it publishes."""
    published = {str(entry["type"]).removeprefix("pub"): entry for entry in notifiers}
    missing = [topic for topic in ZMQ_TOPICS if topic not in published]
    if missing:
        lines = " and ".join(f"zmqpub{topic}=tcp://127.0.0.1:{EXAMPLE_PORTS[topic]}" for topic in missing)
        raise MissingTopic(
            f"node {node.name} does not publish {', '.join(missing)} over ZMQ; add {lines} to its "
            "bitcoin.conf and restart it"
        )
    return {
        topic: node.zmq.get(topic) or reachable(published[topic]["address"], rpc_url) for topic in ZMQ_TOPICS
    }


def refuse_zmq_port(url: str) -> None:
    """Raise SettingsError when a ZMQ publisher answers at an RPC address.

    It would take a request without a word, so that nothing is said before `rpc_timeout_s` is over. What else
    is wrong with an address shows when it is asked.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), timeout=PROBE_S) as connection:
            connection.settimeout(PROBE_S)
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            begin = connection.recv(len(ZMTP_GREETING))
    except OSError:
        return
    if begin == ZMTP_GREETING:
        raise SettingsError(
            f"{url} is a ZMQ publisher, not the node's RPC; set rpc_url to the RPC port "
            f"({RPC_PORTS['main']} on mainnet) and ZMQ addresses in [node.zmq]"
        )


def reachable(address: str, rpc_url: str) -> str:
    """Replace a wildcard that the node binds to by the host its RPC is reached at."""
    parts = urlsplit(address)
    if parts.scheme == "tcp" and parts.hostname in ("0.0.0.0", "::", "*"):  # noqa: S104 - read, not bound
        host = urlsplit(rpc_url).hostname or ""
        return f"tcp://[{host}]:{parts.port}" if ":" in host else f"tcp://{host}:{parts.port}"
    return address


def _software() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
