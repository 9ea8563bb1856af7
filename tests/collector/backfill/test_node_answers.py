"""Test answers of a node in another form than expected: one sentence, no traceback, no wrong row."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from gpuhash.reference import sha256d
from tests.collector.codec.made_blocks import RegtestTransaction, TxInput, TxOutput, solved_block

SPEND = RegtestTransaction((TxInput(bytes(range(32)), 0),), (TxOutput(500, b"\x51"),))
BLOCK = solved_block([SPEND], height=0)
HASH = sha256d(BLOCK[:80])[::-1].hex()
VERBOSE = {"tx": [{}, {"vin": [{"prevout": {"value": 0.00000700}}], "vout": [{"value": 0.00000500}]}]}
HONEST = {
    "getblockchaininfo": {"chain": "regtest", "blocks": 0, "bestblockhash": HASH},
    "getblockhash": HASH,
    "getblockheader": {"time": 1_700_000_000, "mediantime": 1_700_000_000},
    "getblock 0": BLOCK.hex(),
    "getblock 3": VERBOSE,
}
STRANGE = [
    None,
    [],
    {},
    "",
    "zz",
    "\u202e" * 64,
    1.5,
    float("nan"),
    True,
    -1,
    1 << 70,
    [[[[]]]],
    [HASH],
    {"tx": 1},
]
FEES = [
    {"tx": [None, None]},
    {"tx": [{}, {"vin": 1, "vout": []}]},
    {"tx": [{}, {"vin": [{"prevout": {"value": float("nan")}}], "vout": []}]},
    {"tx": [{}, {"vin": [{"prevout": {"value": "much"}}], "vout": []}]},
    {"tx": [{}, {"vin": [{"prevout": {"value": 1e300}}], "vout": []}]},
    {"tx": [{}, {"vin": [], "vout": [{"value": 1}]}]},
]
FIELDS = [
    (method, HONEST[method] | {name: value})
    for method, names in (
        ("getblockchaininfo", ("chain", "blocks", "bestblockhash")),
        ("getblockheader", ("time", "mediantime")),
    )
    for name in names
    for value in (None, [], "zz", 1.5, True, -1, 1 << 70)
]
CASES = [(method, answer) for method in HONEST for answer in STRANGE] + FIELDS
CASES += [("getblock 3", answer) for answer in FEES]


class Server(ThreadingHTTPServer):
    """Stands in for a node: answers one method as a test chooses, and every other method honestly."""

    daemon_threads = True
    answers: dict[str, Any]


class Handler(BaseHTTPRequestHandler):
    """Answers single calls and batches."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one HTTP request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        calls = body if isinstance(body, list) else [body]
        found = [{"id": call["id"], "error": None, "result": self.answer(call)} for call in calls]
        content = json.dumps(found if isinstance(body, list) else found[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer(self, call: dict[str, Any]) -> Any:
        """Return the result of one call."""
        assert isinstance(self.server, Server)
        method = call["method"]
        return self.server.answers[f"getblock {call['params'][1]}" if method == "getblock" else method]

    def log_message(self, *_: object) -> None:
        """Suppress the log line of each request."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start the node."""
    with Server(("127.0.0.1", 0), Handler) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def backfill(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the command in this process, as one worker does; return its exit status."""
    (folder / "cookie").write_text("a:b")
    given = ["--node", "--chain", "regtest", "--dataset", str(folder / "dataset"), "--workers", "1"]
    given += ["--rpc-url", f"http://127.0.0.1:{server.server_port}", "--cookie-file", str(folder / "cookie")]
    monkeypatch.setattr(sys, "argv", ["pool-collector", "backfill", *given, "--from", "2020-01-01"])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_honest_node_gives_its_block_with_the_fee(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With honest answers a backfill from this server succeeds, so that the other tests mean something."""
    server.answers = HONEST

    assert backfill(server, tmp_path, monkeypatch) == 0

    rows = Dataset.open(tmp_path / "dataset", "regtest").read(TRANSACTIONS)
    assert rows["fee_sat"].to_pylist() == [None, 200]


@pytest.mark.parametrize(("method", "answer"), CASES)
def test_a_strange_answer_is_one_sentence_or_a_gap(  # noqa: PLR0917 - pytest passes them by name
    method: str,
    answer: Any,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command names the method in one line, or goes on and reports the blocks that it did not get."""
    server.answers = HONEST | {method: answer}

    status = backfill(server, tmp_path, monkeypatch)

    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line]
    assert status in {0, 1}
    assert len(lines) == status
    if status:
        assert method.split(maxsplit=1)[0] in err or "is on" in err or "is it a node's RPC port" in err
        assert "\u202e" not in err
        assert method != "getblockchaininfo" or not (tmp_path / "dataset").exists()
    else:
        rows = Dataset.open(tmp_path / "dataset", "regtest").read(BLOCKS)
        assert method != "getblock 0" or rows.num_rows == 0
        assert "report:" in out
