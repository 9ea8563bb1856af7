"""Provide an HTTP proxy before a node's RPC that makes answers wrong, as no node gives them."""

import http.client
import json
import random
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 120
DEPTH: Final = 200_000  # of lists within lists, far beyond what any parser follows
# JSON values that no field of a node has: of another type, too large, too long, or no text of UTF-8.
WRONG: Final = (
    *("null", "true", "[]", "{}", "[null]", '[[{"":[]}]]', '""', '"zz"', '"\\ud800"', '"\\u0000\\u001b[2J"'),
    *(
        "-1",
        "NaN",
        "-Infinity",
        "1e400",
        "1e-400",
        "0.123456789012",
        str(1 << 63),
        str(1 << 300),
        "9" * 5_000,
    ),
    *('"' + "f" * 63 + '"', '"' + "g" * 64 + '"', '"' + "a" * 2_000_000 + '"', "[" * DEPTH + "]" * DEPTH),
)
# Whole bodies of a server that is no node, or of a proxy before one.
PAGES: Final = (
    *(b"", b"<html><h1>502 Bad Gateway</h1></html>", b"\xff\xfe\x00", b'{"result": 1', b"[]", b"null", b"1"),
    *(b'"x"', b"{}", b'{"error": "no"}', b'{"error": [1]}', b'{"error": {"code": "1"}}', b'{"result": null}'),
    *(b'{"error": {"code": -1, "message": ["\\ud800", {}]}}', b"[" * DEPTH, b'{"a":' * DEPTH),
    b'[{"id": 0}, {"id": 1.5}, {"id": [], "result": 1}, 7, null]',
)
MARK: Final = "the value that is replaced"


class LyingProxy:
    """Forwards calls to the RPC at `url`; while `wrong_ratio` is above 0, so many answers become wrong.

    A wrong answer has one value replaced or one field left out, or is another body altogether. `n_wrong`
    counts the wrong answers by method.
    """

    def __init__(self, url: str, draw: random.Random) -> None:
        self.wrong_ratio = 0.0
        self.n_wrong: dict[str, int] = {}
        self._draw = draw
        self._lock = threading.Lock()
        target = urlsplit(url).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:  # noqa: N805 - the library's name; `self` is the proxy
                asked = handler.rfile.read(int(handler.headers["Content-Length"]))
                connection = http.client.HTTPConnection(target, timeout=TIMEOUT_S)
                headers = {"Authorization": handler.headers["Authorization"]}
                connection.request("POST", "/", asked, headers)
                answer = connection.getresponse()
                body = self._answer(asked, answer.read())
                handler.send_response(answer.status)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)
                connection.close()

            def log_message(handler, *_: object) -> None:  # noqa: N805 - see above
                """Say nothing of each request."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client may go at any time
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="lying", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: bytes, body: bytes) -> bytes:
        """Return the node's answer `body` to a request, or a wrong one."""
        calls = json.loads(asked)
        method = (calls[0] if isinstance(calls, list) else calls)["method"]
        with self._lock:
            if self._draw.random() >= self.wrong_ratio:
                return body
            self.n_wrong[method] = self.n_wrong.get(method, 0) + 1
            if self._draw.random() < 0.2:
                return self._draw.choice(PAGES)
            return self._changed(body)

    def _changed(self, body: bytes) -> bytes:
        """Return an answer with a random value replaced by a wrong one, or a random field left out."""
        answer = json.loads(body)
        inner: Any = answer
        put, inner = self._step(inner)
        while isinstance(inner, dict | list) and inner and self._draw.random() < 0.75:
            put, inner = self._step(inner)
        put(MARK)
        likely = {"[]": list, "{}": dict, "true": bool, "null": type(None)}
        wrong = [each for each in WRONG if not isinstance(inner, likely.get(each, ()))]
        return json.dumps(answer).replace(f'"{MARK}"', self._draw.choice(wrong)).encode()

    def _step(self, inner: Any) -> tuple[Callable[[str], None], Any]:
        """Go from an object or list to a random value in it; return how to replace it, and the value."""
        if isinstance(inner, list):
            number = self._draw.randrange(len(inner))
            return lambda mark: inner.__setitem__(number, mark), inner[number]
        name = self._draw.choice(list(inner))
        if self._draw.random() < 0.2:
            return lambda _: inner.pop(name), None
        return lambda mark: inner.__setitem__(name, mark), inner[name]
