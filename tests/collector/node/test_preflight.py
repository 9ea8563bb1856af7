"""Test for what a node is refused, or warned of, before a session begins."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from collector.config import NodeSettings, Settings, load_settings
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import NODES
from collector.errors import CollectorError, NodeRefused, SettingsError
from collector.node.preflight import (
    METHODS,
    examine,
    reachable,
    refuse_same_node_twice,
    refuse_shared_publishers,
    warn_of_settings,
    warn_of_shared_queue,
)
from tests.collector.hostile import HOSTILE, changed
from tests.collector.service.planted import NOT_FOUND, TIP, PlantedNode


def notifiers(**limits: int) -> list[dict[str, Any]]:
    """Return an answer of `getzmqnotifications` with these high-water marks by topic."""
    return [
        {"type": f"pub{topic}", "address": "tcp://127.0.0.1:1", "hwm": hwm} for topic, hwm in limits.items()
    ]


def test_the_settings_of_the_readme_are_not_warned_of() -> None:
    """High-water marks as in the README, or unlimited ones (0), cause no warning."""
    with capture_logs() as said:
        warn_of_settings("alpha", {}, notifiers(sequence=100_000, rawtx=100_000, rawblock=1000))
        warn_of_settings("alpha", {}, notifiers(sequence=0, rawtx=0, rawblock=0))
    assert said == []


@pytest.mark.parametrize("topic", ["sequence", "rawtx"])
def test_a_small_queue_is_named_with_the_setting_that_mends_it(topic: str) -> None:
    """The default queue of 1,000 messages causes a warning, as a block can publish more at once."""
    with capture_logs() as said:
        warn_of_settings("alpha", {}, notifiers(**{"sequence": 10_000, "rawtx": 10_000, topic: 1000}))
    (warning,) = said
    assert warning["event"] == "zmq.small_queue"
    assert warning["advice"] == f"set zmqpub{topic}hwm=100000 in bitcoin.conf"


def test_a_queue_that_sequence_shares_is_named() -> None:
    """Other topics at the address of `sequence` cause one warning; an address of its own causes none."""
    first, second, third = (f"tcp://127.0.0.1:{port}" for port in (1, 2, 3))
    with capture_logs() as said:
        warn_of_shared_queue("alpha", {"sequence": first, "rawtx": second, "rawblock": third})
        warn_of_shared_queue("alpha", {"sequence": first, "rawtx": second, "rawblock": second})
    assert said == []
    with capture_logs() as said:
        warn_of_shared_queue("alpha", dict.fromkeys(("rawblock", "rawtx", "sequence"), first))
    (warning,) = said
    assert (warning["event"], warning["log_level"]) == ("zmq.shared_queue", "warning")
    assert (warning["address"], warning["shared_with"]) == (first, "rawblock, rawtx")
    assert "give zmqpubsequence a port of its own in bitcoin.conf" in warning["advice"]


@pytest.mark.parametrize("is_first", [True, False])
def test_an_examination_warns_of_settings_once(*, is_first: bool) -> None:
    """A node with all topics on one address is warned of at the first examination, and not at later ones."""
    node = PlantedNode()
    node.errors = {name: NOT_FOUND for name in METHODS if name not in SOUND}
    ready = SOUND["getblockchaininfo"] | {"initialblockdownload": False}
    node.results = SOUND | {"getblockchaininfo": ready}
    settings = Settings(chain="main", node=[NodeSettings(name="alpha")])
    try:
        with capture_logs() as said:
            examine(node.client(), settings.node[0], settings, is_first=is_first)
    finally:
        node.close()
    assert ("zmq.shared_queue" in [line["event"] for line in said]) == is_first


@pytest.mark.parametrize(
    ("lacking", "names"),
    [
        ({"gettxout"}, "the node at .* call gettxout; add them to"),
        ({"getblockchaininfo", "uptime"}, "the node at .* call getblockchaininfo, uptime; add them to"),
        (set(METHODS), r"call \w+ \(HTTP 403\); add it to .* or this machine to rpcallowip"),
    ],
)
def test_every_method_that_a_node_forbids_is_named(lacking: set[str], names: str) -> None:
    """Also the one that is called first; a node that forbids all may not answer this machine."""
    node = PlantedNode()
    node.forbidden = lacking
    node.results = SOUND
    node.errors = {name: NOT_FOUND for name in METHODS if name not in SOUND}
    settings = Settings(chain="main", node=[NodeSettings(name="alpha")])
    try:
        with pytest.raises(NodeRefused, match=names):
            examine(node.client(), settings.node[0], settings)
    finally:
        node.close()


def test_the_policy_holds_nothing_of_the_moment() -> None:
    """What getmempoolinfo says of the mempool now is left out, such as the least feerate that it takes."""
    node = PlantedNode()
    node.results = SOUND | {
        "getblockchaininfo": SOUND["getblockchaininfo"] | {"initialblockdownload": False},
        "getmempoolinfo": {"size": 1, "loaded": True, "mempoolminfee": 0.1, "maxmempool": 5},
    }
    node.errors = {name: NOT_FOUND for name in METHODS if name not in SOUND}
    settings = Settings(chain="main", node=[NodeSettings(name="alpha")])
    try:
        policy = examine(node.client(), settings.node[0], settings).row["policy"]
    finally:
        node.close()
    assert json.loads(policy) == {"maxmempool": 5, "relayfee": "0.1"}


def test_a_pruned_node_is_named_with_the_height_it_begins_at() -> None:
    """A pruned node causes a warning with the height below which it has no blocks."""
    with capture_logs() as said:
        warn_of_settings("alpha", {"pruned": True, "pruneheight": 700}, notifiers())
    assert [(warning["event"], warning["from_height"]) for warning in said] == [("node.pruned", 700)]


def test_one_node_under_two_names_is_refused(tmp_path: Path) -> None:
    """Two [[node]] tables with only names find the same node; with other addresses they are two."""
    file = tmp_path / "c.toml"
    table = '[[node]]\nname = "{}"\ndatadir = "{}"\nrpc_url = "http://127.0.0.1:{}"\n'
    file.write_text(table.format("a", tmp_path, 1) + table.format("b", tmp_path, 1))
    with pytest.raises(SettingsError, match=r"nodes a and b are the same node, at http://127\.0\.0\.1:1"):
        refuse_same_node_twice(load_settings(file))
    file.write_text(table.format("a", tmp_path, 1) + table.format("b", tmp_path, 2))
    refuse_same_node_twice(load_settings(file))


def test_two_names_with_one_publisher_are_refused() -> None:
    """Two nodes that publish a topic at one address are one node, or one of them is reached wrongly."""
    first = {"sequence": "tcp://127.0.0.1:1", "rawtx": "tcp://127.0.0.1:2"}
    refuse_shared_publishers({"a": first, "b": {"sequence": "tcp://127.0.0.1:2", "rawtx": "tcp://[::1]:2"}})
    expected = r"nodes a and b both publish rawtx at tcp://localhost:2; .* \[node\.zmq\]"
    with pytest.raises(SettingsError, match=expected):
        refuse_shared_publishers({"a": first, "b": {"sequence": "ipc://b", "rawtx": "tcp://localhost:2"}})


@pytest.mark.parametrize("wildcard", ["*", "0.0.0.0", "[::]"])  # noqa: S104 - read, not bound
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "node.example"])
def test_what_a_node_binds_to_is_reached_where_its_rpc_is(wildcard: str, host: str) -> None:
    """A wildcard ZMQ address gets the RPC's host; an IPv6 host keeps its brackets."""
    assert reachable(f"tcp://{wildcard}:5", f"http://{host}:8332") == f"tcp://{host}:5"
    assert reachable("tcp://192.0.2.1:5", f"http://{host}:8332") == "tcp://192.0.2.1:5"


SOUND: dict[str, Any] = {
    "getblockchaininfo": {
        "chain": "main",
        "blocks": 5,
        "bestblockhash": TIP,
        "initialblockdownload": True,
        "mediantime": 1,
        "pruned": True,
        "pruneheight": 3,
    },
    "getnetworkinfo": {"version": 270000, "subversion": "/x/", "relayfee": 0.1},
    "uptime": 5,
    "getzmqnotifications": [
        {"type": f"pub{topic}", "address": "tcp://127.0.0.1:1", "hwm": 1}
        for topic in ("rawblock", "sequence", "rawtx")
    ],
    "getmempoolinfo": {"size": 1, "loaded": True},
}


@pytest.mark.parametrize("is_downloading", [True, False])
@pytest.mark.parametrize("method", SOUND)
def test_a_wrong_answer_is_told_in_one_short_sentence(method: str, *, is_downloading: bool) -> None:
    """Each field of each answer gets each hostile value: the start is refused, or has its row of `nodes`."""
    node = PlantedNode()
    node.errors = {name: NOT_FOUND for name in METHODS if name not in SOUND}
    settings = Settings(chain="main", node=[NodeSettings(name="alpha")])
    sound = copy.deepcopy(SOUND)
    sound["getblockchaininfo"]["initialblockdownload"] = is_downloading
    client = node.client()
    said = {}
    long = [(f"{name} = long", {**sound[method], name: "x" * 100_000}) for name in _names(sound[method])]
    late = [(f"{name} = late", {**sound[method], name: 1 << 56}) for name in _names(sound[method])]
    for where, hostile in [*changed(sound[method]), *long, *late]:
        node.results = sound | {method: hostile}
        try:
            row = examine(client, settings.node[0], settings).row
        except CollectorError as error:
            said[where] = str(error)
        else:
            to_batch(NODES, [row])
    client.close()
    node.close()
    assert {where: text for where, text in said.items() if not text.isprintable() or len(text) > 600} == {}
    assert len(said) > len(HOSTILE) // 2


def _names(answer: object) -> list[str]:
    return list(answer) if isinstance(answer, dict) else []


def test_what_utf8_cannot_encode_costs_no_session_its_row(tmp_path: Path) -> None:
    """Half of a character in the node's name of itself is written as an escape sequence."""
    node = PlantedNode()
    topics = notifiers(sequence=0, rawtx=0, rawblock=0)
    node.results = {
        "getblockchaininfo": {
            "chain": "regtest",
            "blocks": 1,
            "bestblockhash": TIP,
            "initialblockdownload": False,
        },
        "getnetworkinfo": {"version": 290000, "subversion": "/half \ud800/"},
        "getzmqnotifications": topics,
        "getmempoolinfo": {"size": 0, "policy of strangers": "\udfff"},
        "uptime": 1,
    }
    settings = Settings(chain="regtest", dataset=tmp_path)
    try:
        row = examine(node.client(), NodeSettings(name="alpha"), settings, is_first=False).row
    finally:
        node.close()
    (written,) = to_batch(NODES, [row]).to_pylist()
    assert written["subversion"] == "/half \\ud800/"
