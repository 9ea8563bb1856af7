"""Test the RPC client against a real HTTP server that behaves as a node or as a hostile peer."""

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.dataset.schema import satoshi
from collector.errors import NodeError, NodeRefused, NodeUnavailable, RpcError, SettingsError
from collector.log import configure_logging
from collector.node.rpc import RpcClient, without

Answer = tuple[int, bytes]
Script = Callable[[Any, str], Answer]


class Server:
    """Gives the answers that the test chooses over HTTP, and keeps every request."""

    def __init__(self) -> None:
        self.script: Script = lambda body, _: (200, json.dumps(reply(body)).encode())
        self.requests: list[Any] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(body)
                login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic "))
                status, answer = server.script(body, login.decode(errors="surrogateescape"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._http.shutdown()
        self._http.server_close()


def reply(body: Any) -> Any:
    """Answer every call with its own method and parameters."""
    if isinstance(body, list):
        return [reply(call) for call in body]
    return {"id": body["id"], "result": [body["method"], *body["params"]], "error": None}


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server on a free port."""
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture
def cookie(tmp_path: Path) -> Path:
    """Write a cookie file."""
    path = tmp_path / ".cookie"
    path.write_text("__cookie__:first-secret")
    return path


def test_amounts_are_exact(server: Server, cookie: Path) -> None:
    """A number with a fraction becomes a Decimal with every digit."""
    server.script = lambda *_: (200, b'{"id":1,"error":null,"result":{"fee":0.12345678,"n":3}}')
    assert RpcClient(server.url, cookie_file=cookie).call("x") == {"fee": Decimal("0.12345678"), "n": 3}


@given(st.integers(0, 21_000_000 * 10**8))
def test_every_amount_makes_the_round_trip(value_sat: int) -> None:
    """A number of satoshi, written in BTC as the node writes it, is read back unchanged."""
    written = f"{value_sat // 10**8}.{value_sat % 10**8:08d}"
    assert satoshi(json.loads(written, parse_float=Decimal)) == value_sat


def test_names_that_nobody_reads_are_left_out(server: Server, cookie: Path) -> None:
    """Names given as `without` are left out of objects at every depth, and nothing else is."""
    told = {"tx": [{"txid": "ab", "hex": "00" * 99, "vin": [{"value": 1, "scriptSig": {"hex": ""}}]}]}
    server.script = lambda body, _: (200, json.dumps({"id": body["id"], "result": told}).encode())
    client = RpcClient(server.url, cookie_file=cookie)
    found = client.call("getblock", kept=without(frozenset({"hex", "scriptSig"})))
    assert found == {"tx": [{"txid": "ab", "vin": [{"value": 1}]}]}
    assert client.call("getblock") == told


def test_part_of_a_satoshi_is_refused() -> None:
    """An amount with nine decimals is refused."""
    with pytest.raises(ValueError, match="whole number"):
        satoshi(Decimal("0.000000001"))


def test_a_batch_is_split_and_keeps_its_order(server: Server, cookie: Path) -> None:
    """Results have the order of the calls, whatever the order of the answers; an error is a result."""

    def answer(body: Any, _login: str) -> Answer:
        answers = reply(body)
        for each in answers:
            if each["result"][1] == 3:
                each |= {"result": None, "error": {"code": -5, "message": "not there"}}
        return 200, json.dumps(answers[::-1]).encode()

    server.script = answer
    results = RpcClient(server.url, cookie_file=cookie).batch([("get", n) for n in range(7)], size=3)
    assert [len(request) for request in server.requests] == [3, 3, 1]
    assert [result for n, result in enumerate(results) if n != 3] == [["get", n] for n in range(7) if n != 3]
    assert isinstance(results[3], RpcError)
    assert results[3].code == -5


def test_a_new_cookie_is_read_when_the_old_one_is_refused(server: Server, cookie: Path) -> None:
    """After HTTP 401 the client reads the cookie file again, because a restarted node has a new cookie."""
    accepted = ["__cookie__:first-secret"]
    server.script = lambda body, login: (
        (200, json.dumps(reply(body)).encode()) if login == accepted[0] else (401, b"")
    )
    client = RpcClient(server.url, cookie_file=cookie)
    assert client.call("uptime") == ["uptime"]
    accepted[0] = "__cookie__:second-secret"
    with pytest.raises(NodeRefused) as refusal:
        client.call("uptime")
    assert "secret" not in str(refusal.value)
    cookie.write_text("__cookie__:second-secret")
    assert client.call("uptime") == ["uptime"]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((500, b'{"error":{"code":-28,"message":"Loading blocks"}}'), NodeUnavailable, "Loading blocks"),
        ((503, b"Work queue depth exceeded"), NodeUnavailable, "overloaded"),
        ((502, b"<html>Bad Gateway</html>"), NodeUnavailable, "is a proxy that does not reach the node"),
        ((504, b""), NodeUnavailable, r"is a proxy .* \(HTTP 504\)"),
        ((401, b""), NodeRefused, "does not accept our credentials"),
        ((403, b""), NodeRefused, "does not let us call getblockcount .*; add it to the rpcwhitelist"),
        ((500, b'{"error":{"code":-8,"message":"Bad height"}}'), RpcError, "Bad height"),
        (
            (500, b'{"error":{"code":-8,"message":"Bad \\u001b[2J\\n\\u009bx"}}'),
            RpcError,
            r"Bad \[2J x \(code",
        ),
        ((404, b"<html>no such page</html>"), NodeError, "without JSON"),
        ((200, b'"text"'), NodeError, "not a JSON-RPC object"),
    ],
)
def test_each_failure_has_its_error(
    server: Server, cookie: Path, answer: Answer, error: type[Exception], words: str
) -> None:
    """Warm-up, overload and a proxy without its node are NodeUnavailable; other failures are not."""
    server.script = lambda *_: answer
    with pytest.raises(error, match=words):
        RpcClient(server.url, cookie_file=cookie).call("getblockcount")


@pytest.mark.parametrize("password", ["naïve", "пароль €", "caf\udce9", "a:b='\"%"])
def test_a_password_is_sent_as_the_bytes_of_its_file(server: Server, password: str) -> None:
    """A password with any bytes is sent unchanged, also when it is not UTF-8."""
    logins: list[str] = []
    server.script = lambda body, login: (logins.append(login), (200, json.dumps(reply(body)).encode()))[1]
    assert RpcClient(server.url, user="ü", password=password).call("uptime") == ["uptime"]
    assert logins == [f"ü:{password}"]


def test_patience_outlasts_a_start(server: Server, cookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With patience a call waits for a starting node and logs it once; without, it fails at once."""
    configure_logging("json")
    answers = [(500, b'{"error":{"code":-28,"message":"Loading"}}')] * 2

    def answer(body: Any, _login: str) -> Answer:
        return answers.pop() if answers else (200, json.dumps(reply(body)).encode())

    server.script = answer
    assert RpcClient(server.url, cookie_file=cookie, patience_s=20).call("uptime") == ["uptime"]
    assert len(server.requests) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["reason"]) == (
        "node.awaited",
        "the node is starting: Loading",
    )


def test_nobody_there_is_said_with_the_address(server: Server, cookie: Path) -> None:
    """A refused connection names the address and the reason, and no credential."""
    server.close()
    with pytest.raises(NodeUnavailable, match=rf"{server.url} \(Connection refused\)"):
        RpcClient(server.url, cookie_file=cookie).call("uptime")


def test_a_hanging_node_is_given_up(server: Server, cookie: Path) -> None:
    """A node that does not answer within the timeout is NodeUnavailable."""
    release = threading.Event()
    server.script = lambda *_: (200, b"" * release.wait(5))
    with pytest.raises(NodeUnavailable, match=r"within 0\.2 s"):
        RpcClient(server.url, cookie_file=cookie, timeout_s=0.2).call("uptime")
    release.set()


def test_a_missing_or_odd_cookie_is_said(server: Server, tmp_path: Path) -> None:
    """A missing cookie file is NodeUnavailable; one without `user:password` is refused and not shown."""
    with pytest.raises(NodeUnavailable, match="there is no cookie file"):
        RpcClient(server.url, cookie_file=tmp_path / "none").call("uptime")
    odd = tmp_path / "odd"
    odd.write_text("hunter2")
    with pytest.raises(NodeRefused) as refusal:
        RpcClient(server.url, cookie_file=odd).call("uptime")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
def test_a_cookie_of_others_is_said_with_what_opens_it(server: Server, cookie: Path) -> None:
    """A cookie file without read permission is refused with the setting that grants it."""
    cookie.chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(NodeRefused, match=r"may not read .*\.cookie; rpccookieperms=group"):
            RpcClient(server.url, cookie_file=cookie).call("uptime")
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:8332", "http://node.example:8332", "ftp://127.0.0.1", "127.0.0.1:8332"]
)
def test_credentials_stay_on_this_machine(url: str) -> None:
    """Plain HTTP to another machine is a settings error, and so is a wrong address."""
    with pytest.raises(SettingsError):
        RpcClient(url, user="u", password="p")  # noqa: S106 - no real password


def test_a_password_is_never_shown() -> None:
    """Neither an error about an address nor the representation of a client contains a password."""
    with pytest.raises(SettingsError) as refusal:
        RpcClient("http://me:hunter2@127.0.0.1:8332", user="u", password="x")  # noqa: S106 - see above
    assert "hunter2" not in str(refusal.value)
    client = RpcClient("http://127.0.0.1:8332", user="u", password="hunter2")  # noqa: S106 - see above
    assert "hunter2" not in repr(client)
