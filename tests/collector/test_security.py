"""Test rules of the source (no shell, no eval, no pickle) and the permissions of the files it writes."""

import ast
import datetime as dt
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which

import pytest

from collector.backfill.node_work import connect
from collector.compaction.run import compact
from collector.config import NodeSettings
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.errors import NodeRefused, SettingsError
from collector.journal.journal import Journal
from collector.journal.segment import journal_folder
from collector.log import without_controls
from collector.node.access import find_access
from collector.node.preflight import client_for
from collector.node.rpc import RpcClient
from collector.receive.records import Message
from collector.receive.ring import Ring

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path for package in ("collector", "analysis", "gpuhash") for path in (ROOT / package).rglob("*.py")
)
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "pty",
    "telnetlib",
}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}


def breaches(source: str) -> list[str]:
    """Return every dangerous call and import in the source of a module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(node.module or "")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if name in FORBIDDEN_CALLS or name.startswith(("os.spawn", "os.exec")):
                found.append(name)
            found += [
                f"{name}({key})" for key in ("shell", "allow_pickle") if keywords.get(key, "False") != "False"
            ]
            if keywords.get("verify") == "False":
                found.append(f"{name}(verify=False)")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_what_it_reads(path: Path) -> None:
    """No module of the packages uses a shell, eval, pickle or an unchecked certificate."""
    assert breaches(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "requests.get('x', verify=False)",
    ],
)
def test_the_rule_notices_a_breach(source: str) -> None:
    """The test above would fail for each of these lines of source."""
    assert breaches(source)


@pytest.fixture
def _no_umask() -> Iterator[None]:
    """Run the test with umask 0, which hides no permission that the collector leaves open."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_only_the_owner_writes_and_only_the_group_reads(tmp_path: Path) -> None:
    """Folders of a dataset and its journal are 0750 at most, files 0640, whatever the umask."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    row = {"node": "n", "session": "s", "topic": "rawtx", "reason": "r", "body": b"", "received_at": 0}
    for stem in ("a", "b"):
        dataset.write(TABLES["rejects"], [row | {"received_at": ord(stem)}], stem=stem)
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    assert [outcome.merged is not None for outcome in compact(dataset, today=tomorrow)] == [True]
    folder = journal_folder(dataset.root, dataset.chain, "n")
    with Journal(folder) as journal:
        journal.recover(dataset)
        journal.append_messages([Message("n", "s", "rawtx", 1, 1, b"x")])
        journal.flush()
        ring = Ring.create(folder / "s.ring", node="n", session="s", topics=["rawtx"])
        made = [dataset.root, *dataset.root.rglob("*")]
        ring.close()
    assert {path.suffix for path in made} >= {".parquet", ".journal", ".ring", ".json"}
    for path in made:
        allowed = 0o750 if path.is_dir() else 0o640
        assert path.stat().st_mode & 0o777 & ~allowed == 0, path


def test_a_log_line_controls_no_terminal() -> None:
    """Control characters are removed from the texts of a log event; other values stay."""
    event = {"event": "a\x1b[2Jb\x07", "n": 3, "trace": "one\n\ttwo"}
    assert without_controls(None, "", event) == {"event": "a[2Jb", "n": 3, "trace": "one\n\ttwo"}


class Node(BaseHTTPRequestHandler):
    """Answers every call with null."""

    def do_POST(self) -> None:
        """Answer the call with null."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"result": null, "error": null}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a self-signed certificate for this machine."""
    if which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    target = tmp_path / "node.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", tmp_path / "key.pem", "-out", target]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            *files,
            *subject,
        ],
        check=True,
        capture_output=True,
    )
    return target


@pytest.fixture
def https_url(certificate: Path) -> Iterator[str]:
    """Serve RPC over https and return the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Node)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_certificate_is_checked(https_url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A self-signed certificate is refused unless `ca_file` names it; the environment cannot allow it."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with pytest.raises(
        NodeRefused, match=r"certificate of https://localhost:\d+ is not accepted .*set ca_file"
    ):
        RpcClient(https_url, user="u", password="p").call("uptime")  # noqa: S106 - of the test's own server
    trusting = RpcClient(https_url, user="u", password="p", ca_file=certificate)  # noqa: S106 - the same
    assert trusting.call("uptime") is None
    trusting.close()


def test_a_backfill_takes_the_same_certificates(https_url: str, certificate: Path) -> None:
    """A backfill checks the node's certificate with the same `ca_file` as a collector."""
    cookie = certificate.with_name("cookie")
    cookie.write_text("u:p")
    node = NodeSettings(rpc_url=https_url, cookie_file=cookie, ca_file=certificate)
    client = connect(find_access(node, "main"))
    assert client.call("uptime") is None
    client.close()


def test_a_missing_ca_file_is_said(tmp_path: Path) -> None:
    """An error names a missing `ca_file` before any connection is made."""
    node = NodeSettings(
        rpc_url="https://node.example:8332", cookie_file=tmp_path / "c", ca_file=tmp_path / "ca.pem"
    )
    with pytest.raises(SettingsError, match=r"there is no file .*ca\.pem; set ca_file"):
        client_for(node, "main")
