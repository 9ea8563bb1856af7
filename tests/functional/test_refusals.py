"""Test reasons not to start that need more than a wrong flag: other programs on a port, other nodes."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.journal.journal import Journal
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.ports import free_ports

pytestmark = pytest.mark.bitcoind
Run = Callable[..., str]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dataset: Path) -> Run:
    """Return a function that runs the collector on regtest and returns its one line of error."""

    def call(*flags: object) -> str:
        arguments = ["run", "--chain", "regtest", "--dataset", dataset, *flags]
        monkeypatch.setattr(sys, "argv", ["pool-collector", *map(str, arguments)])
        monkeypatch.setenv("POOL_COLLECTOR_STARTUP_PATIENCE_S", "0")
        with pytest.raises(SystemExit) as exit_:
            main()
        said = capsys.readouterr().err
        assert exit_.value.code == 1
        assert "Traceback" not in said
        (line,) = (line for line in said.splitlines() if line.startswith("error: "))
        return line

    return call


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return the path of a dataset that does not exist."""
    return tmp_path / "dataset"


def reach(node: RegtestNode) -> list[object]:
    """Return the command-line flags for a node."""
    return ["--rpc-url", node.rpc_url, "--cookie-file", node.cookie_path]


def test_a_zmq_port_given_as_rpc(refusal: Run, node: RegtestNode, dataset: Path) -> None:
    """A ZMQ port given as RPC address is recognised by its greeting, long before a request would time out."""
    address = node.zmq_endpoints["sequence"].replace("tcp://", "http://")
    said = refusal(*reach(node), "--rpc-url", address)
    assert f"{address} is a ZMQ publisher" in said
    assert "set rpc_url" in said
    assert not dataset.exists()


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_port_that_others_serve(
    refusal: Run, node: RegtestNode, dataset: Path, how: tuple[str, ...]
) -> None:
    """When the port for metrics is in use, the error names it, also in a dry run, and nothing is written."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(*reach(node), "--metrics", address, *how)
    assert f"cannot listen on {address}" in said
    assert "set metrics to a free port" in said
    assert not dataset.exists()


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_one_node_by_two_addresses(
    refusal: Run, node: RegtestNode, dataset: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """A node that two [[node]] tables reach by other addresses is refused, and nothing is written."""
    table = '[[node]]\nname = "{}"\nrpc_url = "{}"\ncookie_file = "{}"\n'
    urls = {"one": node.rpc_url, "two": node.rpc_url.replace("127.0.0.1", "localhost")}
    config = tmp_path / "c.toml"
    config.write_text("".join(table.format(name, url, node.cookie_path) for name, url in urls.items()))
    assert "nodes one and two both publish sequence at tcp://" in refusal("--config", config, *how)
    assert not dataset.exists()


def test_a_second_collector(refusal: Run, node: RegtestNode, dataset: Path) -> None:
    """A second collector of the same node name is refused, as two never share a journal."""
    Dataset.open(dataset, "regtest", create=True)
    folder = dataset / "journal" / "regtest" / "node"
    journal = Journal(folder)
    try:
        said = refusal(*reach(node))
    finally:
        journal.close()
    assert str(folder) in said
    assert "stop that one first" in said


def test_a_dry_run_refuses_what_a_run_would(refusal: Run, node: RegtestNode, dataset: Path) -> None:
    """A dry run refuses a folder with other files by name, as a run would."""
    dataset.mkdir()
    (dataset / "letter.txt").write_text("dear reader")
    assert f"{dataset} is not a dataset" in refusal(*reach(node), "--dry-run")


def test_a_dry_run_says_all_that_would_be_done(
    node: RegtestNode, dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run names the earlier run's journal, the dataset and the address, and changes none of them."""
    Dataset.open(dataset, "regtest", create=True)
    journal = dataset / "journal" / "regtest" / "node"
    journal.mkdir(parents=True)
    (journal / "00000001-0123456789abcdef.journal").write_bytes(b"x")
    before = sorted(dataset.rglob("*"))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = [*reach(node), "--chain", "regtest", "--dataset", dataset, "--metrics", address]
    monkeypatch.setattr(sys, "argv", ["pool-collector", "run", *map(str, flags), "--dry-run"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    said = capsys.readouterr().out
    for words in (
        f"left in {journal}",
        f"add to the dataset {dataset}",
        f"/readyz and /events at {address}",
        "every 300 s",
    ):
        assert words in said
    assert sorted(dataset.rglob("*")) == before


def test_methods_that_a_whitelist_lacks(refusal: Run, dataset: Path) -> None:
    """The error at the start names all RPC methods that the node's whitelist lacks."""
    allowed = "-rpcwhitelist=__cookie__:stop,getblockcount,getblockchaininfo,getnetworkinfo,uptime"
    allowed += ",getzmqnotifications,getmempoolinfo,getrawmempool,getrawtransaction,gettxout,getmempoolentry"
    with RegtestNode(find_bitcoind(), options=[allowed]) as node:
        said = refusal(*reach(node))
    assert "does not let us call getbestblockhash, getblock, getblocktemplate, getchaintips; add" in said
    assert not dataset.exists()


class Impostor:
    """Serves the same JSON object as the answer to every RPC call, as another kind of node might."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        impostor = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"result": impostor.result, "error": impostor.error}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def impostor() -> Iterator[Impostor]:
    """Start a server whose answer the test sets."""
    serving = Impostor()
    yield serving
    serving.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"chain": "ma\x1b[31min"}, ("is on 'ma[31min'", "the settings say 'regtest'")),
        ({"version": 220000, "subversion": "/Sato\x07shi:22.0.0/"}, ("220000 (/Satoshi:22.0.0/)", "23.0")),
        ({"error": "\x1b]0;owned\x07"}, ("]0;owned",)),
    ],
)
def test_a_node_that_is_old_or_speaks_in_tongues(
    refusal: Run, impostor: Impostor, tmp_path: Path, said: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Text from the node is shown in the error without the characters that control a terminal."""
    cookie = tmp_path / "cookie"
    cookie.write_text("__cookie__:x")
    impostor.result = {"chain": "regtest", "initialblockdownload": False, "version": 290000} | said
    if "error" in said:
        impostor.error = {"code": -1, "message": said["error"]}
    line = refusal("--rpc-url", impostor.url, "--cookie-file", cookie)
    assert all(word in line for word in words), line
    assert line.isprintable()


def test_a_node_that_is_still_downloading_says_how_far_it_is(
    refusal: Run, impostor: Impostor, tmp_path: Path
) -> None:
    """The error gives the time of the last block, since progress is 100 % on a chain without new blocks."""
    cookie = tmp_path / "cookie"
    cookie.write_text("__cookie__:x")
    impostor.result = {
        "chain": "signet",
        "initialblockdownload": True,
        "verificationprogress": 1.0,
        "mediantime": 1_700_000_000,
        "version": 290000,
    }
    line = refusal("--chain", "signet", "--rpc-url", impostor.url, "--cookie-file", cookie)
    assert "has it up to 2023-11-14 22:13 UTC" in line
