"""Check a node before anything is written: it answers, is on our chain, and publishes our ZMQ topics.

Every reason not to start is one sentence with the value that was found and the setting to change.
"""

import json
import platform
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import structlog

from collector.config import NodeSettings, Settings
from collector.dataset.rows import NodeRow
from collector.dataset.schema import ZMQ_TOPICS, hash_bytes
from collector.errors import (
    MethodForbidden,
    MissingTopic,
    NodeError,
    NodeRefused,
    NodeUnavailable,
    RpcError,
    SettingsError,
    WrongChain,
)
from collector.log import excerpt, printable
from collector.node.access import RPC_PORTS, find_access
from collector.node.answers import LATEST_TIME_S, MOST_COUNT, read_integer
from collector.node.rpc import RpcClient

EXAMPLE_PORTS: Final = {"sequence": 28332, "rawtx": 28333, "rawblock": 28334}
LEAST_VERSION: Final = 230000  # since 23.0 getblock returns the outputs that inputs spent
PROBE_S: Final = 2.0
LONGEST_ADDRESS: Final = 255  # of a ZMQ publisher
ZMTP_GREETING: Final = b"\xff"  # first byte of ZMTP 3.1, with which no HTTP answer begins
LEAST_HWM: Final = 10_000  # a block publishes some thousand rawtx messages at once
OFTEN_FULL: Final = ("sequence", "rawtx")  # blocks never come a thousand at once
LIBRARIES: Final = ("pyarrow", "pyzmq", "requests", "numpy")
MEMPOOL_STATE: Final = (
    "loaded",
    "size",
    "bytes",
    "usage",
    "total_fee",
    "mempoolminfee",
    "unbroadcastcount",
)  # the rest of getmempoolinfo is policy
# Every method that a session calls; a node may forbid single methods.
METHODS: Final = (
    "getbestblockhash",
    "getblock",
    "getblockchaininfo",
    "getblocktemplate",
    "getchaintips",
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
    """Holds what a check of a node found: its ZMQ addresses, its start, and a row of `nodes`.

    The session later sets `session` and `started_at` of the row.
    """

    endpoints: dict[str, str]  # ZMQ address by topic
    node_began_before_s: float  # latest possible start of the node, on our monotonic clock
    row: NodeRow


def client_for(
    node: NodeSettings, chain: str, *, patience_s: float = 0.0, stop: threading.Event | None = None
) -> RpcClient:
    """Return an RPC client for a node, with address and login from our settings or its bitcoin.conf."""
    access = find_access(node, chain)
    return RpcClient(
        access.rpc_url,
        cookie_file=access.cookie_file,
        user=access.user,
        password=access.password,
        timeout_s=node.rpc_timeout_s,
        patience_s=patience_s,
        stop=stop,
        allow_remote=node.allow_remote_rpc,
        ca_file=access.ca_file,
    )


def refuse_same_node_twice(settings: Settings) -> None:
    """Raise SettingsError if two [[node]] tables mean one node, which would then be recorded twice."""
    names: dict[tuple[str, ...], str] = {}
    for node in settings.node:
        url = find_access(node, settings.chain).rpc_url
        addresses = (url, *(node.zmq.get(topic, "") for topic in ZMQ_TOPICS))
        if addresses in names:
            raise SettingsError(
                f"nodes {names[addresses]} and {node.name} are the same node, at {url}; "
                "give each [[node]] its own rpc_url or datadir"
            )
        names[addresses] = node.name


def refuse_shared_publishers(endpoints: Mapping[str, Mapping[str, str]]) -> None:
    """Raise SettingsError if two nodes publish a topic at one address: then they are one node.

    It may be reached by two RPC addresses. Or a node on another machine reports an address of its own
    loopback, at which another node answers here. `endpoints` has the ZMQ address by topic, by name of node.
    """
    publishers: dict[tuple[str, str], str] = {}
    for node, addresses in endpoints.items():
        for topic, address in addresses.items():
            place = (topic, address.replace("://localhost:", "://127.0.0.1:"))
            if place in publishers:
                raise SettingsError(
                    f"nodes {publishers[place]} and {node} both publish {topic} at {printable(address)}; "
                    "if they are one node, remove one [[node]], else set the addresses in [node.zmq]"
                )
            publishers[place] = node


def examine(client: RpcClient, node: NodeSettings, settings: Settings, *, is_first: bool = True) -> NodeFacts:
    """Check that a node can be recorded and return its facts; with `is_first`, also warn about its settings.

    Raises WrongChain, MissingTopic, NodeUnavailable during the initial download, NodeError for a node that is
    too old, SettingsError for an address that is not an RPC, and the errors of the client.
    """
    refuse_zmq_port(client.url)
    with client.reading():
        return _examine(client, node, settings, is_first=is_first)


def _examine(client: RpcClient, node: NodeSettings, settings: Settings, *, is_first: bool) -> NodeFacts:
    """Check the node and return its facts, as `examine` does.

    Raises KeyError or TypeError for an answer that no node gives; `examine` turns these into a NodeError.
    """
    try:
        chain = client.call("getblockchaininfo")
    except MethodForbidden:
        _refuse_forbidden(client)  # it names the other methods too
        raise
    if is_first:
        _refuse_forbidden(client)
    network = client.call("getnetworkinfo")
    _refuse_unfit(chain, network, f"node {node.name} at {client.url}", settings.chain)
    node_began_before_s = -client.call("uptime") + time.monotonic()
    notifiers = client.call("getzmqnotifications")
    endpoints = find_endpoints(notifiers, node, client.url)
    if is_first:
        warn_of_settings(node.name, chain, notifiers)
        warn_of_shared_queue(node.name, endpoints)
    mempool = client.call("getmempoolinfo")
    policy = {name: value for name, value in mempool.items() if name not in MEMPOOL_STATE}
    policy |= {name: network[name] for name in ("relayfee", "incrementalfee") if name in network}
    row: NodeRow = {
        "node": node.name,
        "session": "",
        "started_at": 0,
        "chain": chain["chain"],
        "node_version": read_integer("getnetworkinfo: version", network["version"], most=MOST_COUNT),
        "subversion": _encodable(str(network["subversion"])),
        "tip_height": read_integer("getblockchaininfo: blocks", chain["blocks"], most=MOST_COUNT),
        "tip_hash": hash_bytes(chain["bestblockhash"]),
        "n_mempool_at_start": read_integer("getmempoolinfo: size", mempool["size"], most=MOST_COUNT),
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


def _encodable(text: str) -> str:
    """Return a text in which what UTF-8 cannot encode is an escape sequence.

    JSON can name lone surrogates.
    """
    return text.encode(errors="backslashreplace").decode()


def _refuse_forbidden(client: RpcClient) -> None:
    """Raise NodeRefused that lists the methods we need and the node's rpcwhitelist forbids us.

    Raises MethodForbidden when it forbids every one: then rpcallowip may be the cause.
    """
    forbidden: list[str] = []
    for method in METHODS:
        try:
            client.call(method, {})  # no method takes this parameter: the node answers with an error at once
        except RpcError:
            pass
        except MethodForbidden:
            if len(forbidden) == len(METHODS) - 1:
                raise
            forbidden.append(method)
    if forbidden:
        raise NodeRefused(
            f"the node at {client.url} does not let us call {', '.join(forbidden)}; add them to "
            "the rpcwhitelist of our user in its bitcoin.conf and restart it"
        )


def _refuse_unfit(chain: Mapping[str, Any], network: Mapping[str, Any], name: str, wanted: str) -> None:
    """Raise an error for a node that is on another chain than `wanted`, too old, or still downloading.

    `chain` and `network` are the answers to getblockchaininfo and getnetworkinfo.
    """
    if chain["chain"] != wanted:
        raise WrongChain(
            f"{name} is on {excerpt(chain['chain'])!r}, the settings say "
            f"{wanted!r}; set chain, or the address of another node"
        )
    if read_integer("getnetworkinfo: version", network["version"], most=MOST_COUNT) < LEAST_VERSION:
        raise NodeError(
            f"{name} has version {network['version']} "
            f"({excerpt(network['subversion'])}), which lacks what we need; install 23.0 or newer"
        )
    if chain["initialblockdownload"] and wanted != "regtest":  # on regtest it lasts until the first block
        # `verificationprogress` would say 100 % of a chain that has had no block for long.
        time_s = read_integer("getblockchaininfo: mediantime", chain["mediantime"], most=LATEST_TIME_S)
        reached_at = datetime.fromtimestamp(time_s, UTC)
        raise NodeUnavailable(
            f"{name} is still downloading the chain, and has it up to {reached_at:%Y-%m-%d %H:%M} UTC; "
            "start again when it has the whole chain"
        )


def warn_of_settings(node: str, chain: Mapping[str, Any], notifiers: list[Mapping[str, Any]]) -> None:
    """Log a warning for a pruned node, and for ZMQ queues so small that the node will drop messages."""
    if chain.get("pruned"):
        advice = "missing blocks below it cannot be fetched; `backfill` needs a node that has them"
        log.warning("node.pruned", node=node, from_height=chain.get("pruneheight"), advice=advice)
    limits = {str(notifier["type"]).removeprefix("pub"): notifier["hwm"] for notifier in notifiers}
    small = {topic: limits[topic] for topic in OFTEN_FULL if 0 < limits.get(topic, 0) < LEAST_HWM}
    if small:
        settings = " and ".join(f"zmqpub{topic}hwm={LEAST_HWM * 10}" for topic in small)
        log.warning("zmq.small_queue", node=node, advice=f"set {settings} in bitcoin.conf", **small)


def warn_of_shared_queue(node: str, endpoints: Mapping[str, str]) -> None:
    """Log a warning if `sequence` shares its address, and so its queue, with another topic.

    The many messages of the other topic would push those of `sequence` out of the queue. `endpoints` has the
    ZMQ address by topic.
    """
    address = endpoints["sequence"]
    others = [topic for topic, other in endpoints.items() if other == address and topic != "sequence"]
    if others:
        log.warning(
            "zmq.shared_queue",
            node=node,
            address=printable(address),
            shared_with=", ".join(others),
            advice="give zmqpubsequence a port of its own in bitcoin.conf, or the node may drop its messages",
        )


def find_endpoints(notifiers: list[Mapping[str, Any]], node: NodeSettings, rpc_url: str) -> dict[str, str]:
    """Return the ZMQ address of each topic: the one in our settings, else the one the node reports.

    Raises MissingTopic if the node does not publish a topic, and NodeError for what is no address.
    `notifiers` is the answer to getzmqnotifications.
    """
    published = {str(notifier["type"]).removeprefix("pub"): notifier for notifier in notifiers}
    missing = [topic for topic in ZMQ_TOPICS if topic not in published]
    if missing:
        lines = " and ".join(f"zmqpub{topic}=tcp://127.0.0.1:{EXAMPLE_PORTS[topic]}" for topic in missing)
        raise MissingTopic(
            f"node {node.name} does not publish {', '.join(missing)} over ZMQ; add {lines} to its "
            "bitcoin.conf and restart it"
        )
    addresses = {topic: node.zmq.get(topic) or published[topic]["address"] for topic in ZMQ_TOPICS}
    for topic, address in addresses.items():
        if not isinstance(address, str) or len(address) > LONGEST_ADDRESS or not address.isprintable():
            raise NodeError(
                f"node {node.name} publishes {topic} at {excerpt(address)!r}, which is no ZMQ address; set "
                f"{topic} in [node.zmq]"
            )
    return {topic: node.zmq.get(topic) or reachable(addresses[topic], rpc_url) for topic in ZMQ_TOPICS}


def refuse_zmq_port(url: str) -> None:
    """Raise SettingsError if a ZMQ publisher answers at an RPC address.

    A publisher never answers an HTTP request, so a call would fail only after `rpc_timeout_s`. Other wrong
    addresses fail at the first call.
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
    """Return a ZMQ address; a wildcard host (0.0.0.0, ::, *) in it becomes the host of the RPC."""
    parts = urlsplit(address)
    if parts.scheme == "tcp" and parts.hostname in ("0.0.0.0", "::", "*"):  # noqa: S104 - read, not bound
        host = urlsplit(rpc_url).hostname or ""
        return f"tcp://[{host}]:{parts.port}" if ":" in host else f"tcp://{host}:{parts.port}"
    return address


def _software() -> dict[str, str]:
    """Return the versions of Python and of the libraries that can change what a row holds."""
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
