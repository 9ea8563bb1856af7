"""Test deadlines, size limits and stops of RPC requests against a hostile server."""

import contextlib
import gzip
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.errors import NodeError, NodeUnavailable, RpcError
from collector.node import rpc
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient
from tests.collector.node.hostile_server import (
    HEAD,
    Answer,
    HostileServer,
    dripping,
    dripping_header,
    endless,
    silent,
    whole,
)

TIMEOUT_S = 10.0
Serve = Callable[[Answer], HostileServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with an answer; all are closed after the test."""
    servers: list[HostileServer] = []

    def start(answer: Answer) -> HostileServer:
        servers.append(HostileServer(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., RpcClient]:
    """Return a function that makes a client of a server."""
    cookie = tmp_path / ".cookie"
    cookie.write_text("user:password")
    return lambda server, **options: RpcClient(server.url, cookie_file=cookie, **options)


@pytest.mark.parametrize("answer", [dripping, dripping_header, silent])
def test_a_whole_answer_has_one_deadline(serve: Serve, client: Any, answer: Answer) -> None:
    """A server that sends a byte now and then is given up after the same time as a silent one."""
    with pytest.raises(NodeUnavailable, match=r"did not answer uptime completely within 0\.5 s"):
        client(serve(answer), timeout_s=0.5).call("uptime")


@pytest.mark.parametrize("answer", [dripping, dripping_header, silent])
def test_a_stop_ends_an_open_request(serve: Serve, client: Any, answer: Answer) -> None:
    """A stop ends an open request at once, before its timeout of a minute."""
    server = serve(answer)
    asking = client(server, timeout_s=60)
    errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            asking.call("uptime")
        except NodeError as error:
            errors.put(error)

    threading.Thread(target=ask, daemon=True).start()
    assert server.asked.wait(TIMEOUT_S)
    asking.stop()
    assert "was ended by a stop" in str(errors.get(timeout=TIMEOUT_S))
    with pytest.raises(NodeUnavailable, match="was ended by a stop"):
        asking.call("uptime")


@pytest.fixture
def deaf() -> Iterator[int]:
    """Return the port of a server that takes no connection: its queue is full, so no request is answered."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_a_stop_ends_a_connection_that_nobody_takes(deaf: int) -> None:
    """A stop ends the wait for a connection, before its timeout of an hour."""
    asking = RpcClient(f"http://127.0.0.1:{deaf}", user="u", password="", timeout_s=3600)
    errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            asking.call("uptime")
        except NodeError as error:
            errors.put(error)

    threading.Thread(target=ask, daemon=True).start()
    with pytest.raises(queue.Empty):
        errors.get(timeout=0.5)  # it waits
    asking.stop()
    assert "was ended by a stop" in str(errors.get(timeout=TIMEOUT_S))


def test_all_addresses_of_a_name_share_one_deadline(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind two addresses that take no connection, the third is reached within the same deadline."""
    with contextlib.closing(HostileServer(silent)) as server:
        heard = int(server.url.rsplit(":", 1)[1])
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (deaf, deaf, heard)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(NodeUnavailable, match=r"did not answer uptime completely within 9 s"):
            RpcClient(server.url, user="u", password="", timeout_s=9).call("uptime")
        assert server.asked.wait(TIMEOUT_S)


def test_a_stop_of_all_threads_ends_their_open_requests(serve: Serve, client: Any) -> None:
    """Every open request is delivered as an error, and every thread ends."""
    server = serve(dripping)
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    requests = NodeRequests("n", client(server, timeout_s=60), finished)
    errors: list[Exception] = []
    for thread in (requests.mempool, requests.blocks, requests.status):
        thread.ask(lambda asked: asked.call("uptime"), pytest.fail, errors.append)
    assert server.asked.wait(TIMEOUT_S)
    requests.stop()
    for _ in range(3):
        finished.get(timeout=TIMEOUT_S).deliver()
    assert requests.n_open == 0
    assert all(isinstance(error, NodeUnavailable) for error in errors)


def test_an_endless_answer_is_cut_off_at_the_limit_of_its_method(
    serve: Serve, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer above the size limit is an error that names the method and the limit."""
    with pytest.raises(NodeError, match=r"answered uptime with more than 1 MiB"):
        client(serve(endless)).call("uptime")
    monkeypatch.setitem(rpc.LARGEST_ANSWERS, "getblock", 3 << 20)
    with pytest.raises(NodeError, match=r"answered getblock with more than 3 MiB"):
        client(serve(endless)).call("getblock")
    with pytest.raises(NodeError, match=r"answered getblock, uptime with more than 4 MiB"):
        client(serve(endless)).batch([("uptime",), ("getblock",)])


def test_a_compressed_answer_is_refused(serve: Serve, client: Any) -> None:
    """A compressed answer is refused, because the size limit would not count what it unfolds to."""
    body = gzip.compress(b"0" * (1 << 24))
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with pytest.raises(NodeError, match="Content-Encoding gzip"):
        client(serve(lambda _end: [head + body])).call("uptime")


@pytest.mark.parametrize("value", [b"[]", b"{}", b"0", b'""'])
def test_an_answer_of_too_many_values_is_not_parsed(
    serve: Serve, client: Any, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    """An answer within its bytes is refused when its values would unfold to much more memory."""
    monkeypatch.setattr(rpc, "MOST_VALUES", 1000)
    answered = [b'{"result": [' + b",".join([value] * count) + b"]}" for count in (400, 1000)]
    assert len(client(serve(whole(answered[0]))).call("getblock")) == 400
    with pytest.raises(NodeError, match=r"answered getblock with more than 1,000 values"):
        client(serve(whole(answered[1]))).call("getblock")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 200_000, "nests too deeply"),
        (b'{"result":' * 100_000, "nests too deeply"),
        (b'{"result": NaN}', "without JSON"),
        (b'{"result": -Infinity}', "without JSON"),
        (b'{"result": 1e999999999}', "without JSON"),
        (b'{"result": 1e99999999999999999999}', "without JSON"),
        (b'{"result": ' + b"9" * 10_000 + b"}", "without JSON"),
        (b'{"result": 0.' + b"1" * 10_000 + b"}", "without JSON"),
        (b'{"result": "\xff"}', "without JSON"),
        (b"", "without JSON"),
        (b"null", "not a JSON-RPC object"),
        (b"[]", "not a JSON-RPC object"),
        (b'{"error": "no"}', "not a JSON-RPC error"),
        (b'{"error": [1]}', "not a JSON-RPC error"),
        (b'{"error": {"code": "one"}}', "not a JSON-RPC error"),
        (b'{"error": {"code": 1.5, "message": 7}}', "not a JSON-RPC error"),
        (b'{"error": {"message": "x"}}', "not a JSON-RPC error"),
    ],
)
def test_an_answer_that_is_no_json_rpc_is_one_sentence(
    serve: Serve, client: Any, body: bytes, words: str
) -> None:
    """Any answer that is not JSON-RPC raises a NodeError of one sentence."""
    with pytest.raises(NodeError, match=words):
        client(serve(whole(body))).call("uptime")


@pytest.mark.parametrize("body", [b"null", b"[null]", b'[{"id": [0]}]', b'[{"id": "0", "result": 1}]', b"{}"])
def test_a_batch_that_is_no_json_rpc_is_one_sentence(serve: Serve, client: Any, body: bytes) -> None:
    """A batch whose answers lack usable ids raises an error, as for missing answers."""
    with pytest.raises(NodeError, match=r"unanswered|with one answer|not a JSON-RPC object"):
        client(serve(whole(body))).batch([("uptime",)])


def test_a_connection_is_used_again_and_a_closed_one_opened_anew(serve: Serve, client: Any) -> None:
    """A second request works after an answer that keeps the connection, and after one that closes it."""
    keeping = client(serve(whole(b'{"result": 2}')))
    assert [keeping.call("uptime") for _ in range(2)] == [2, 2]
    closing = client(
        serve(lambda _end: [HEAD + b"Connection: close\r\nContent-Length: 13\r\n\r\n", b'{"result": 3}'])
    )
    assert [closing.call("uptime") for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("message", [b'"' + b"x" * 900_000 + b'"', b"[" + b'"x",' * 200_000 + b"{}]"])
def test_an_endless_error_message_is_told_by_its_beginning(serve: Serve, client: Any, message: bytes) -> None:
    """An error is a line of the log: it names what the node said, and not a megabyte of it."""
    answered = b'{"error": {"code": -1, "message": ' + message + b"}}"
    with pytest.raises(RpcError, match="x") as raised:
        client(serve(whole(answered))).call("uptime")
    assert len(str(raised.value)) < 300
