"""Stand in for a node and for a source of messages; the test decides their answers and messages."""

import json
import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from collector.dataset.schema import ZMQ_TOPICS
from collector.node.preflight import NodeFacts
from collector.node.rpc import RpcClient
from collector.receive.ring import Ring

TIP = "11" * 32
MEMPOOL_INFO = {
    "size": 5,
    "bytes": 500,
    "usage": 5000,
    "maxmempool": 300_000_000,
    "total_fee": 0.00005,
    "mempoolminfee": 0.00001,
}
MEMPOOL_ENTRY = {
    "wtxid": "22" * 32,
    "time": 1,
    "weight": 400,
    "vsize": 100,
    "fees": {"base": 0.00001, "ancestor": 0.00001, "descendant": 0.00001},
    "ancestorcount": 1,
    "ancestorsize": 100,
    "descendantcount": 1,
    "descendantsize": 100,
    "depends": [],
}
NOT_FOUND = {"code": -5, "message": "not found"}


class PlantedNode:
    """Answers JSON-RPC calls from `results` and `errors`; for any other method it says that it is overloaded.

    A key is a method, or a method and its first parameters with blanks between them; the longest counts.
    An overloaded node counts as away: the collector repeats the request until the test plants an answer.
    """

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}
        self.errors: dict[str, Mapping[str, Any]] = {}
        self.forbidden: set[str] = set()  # methods that it answers with HTTP 403
        self.n_asked: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def client(self) -> RpcClient:
        """Return an RPC client of this node."""
        return RpcClient(f"http://127.0.0.1:{self._server.server_port}", user="u", password="")

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to one call; None when the test has planted none for its method."""
        method = call["method"]
        self.n_asked[method] += 1
        words = [method, *map(str, call.get("params", []))]
        named = (" ".join(words[:n_words]) for n_words in range(len(words), 1, -1))
        if (longest := next((name for name in named if name in self.results), None)) is not None:
            method = longest
        elif method in self.errors:
            return {"id": call["id"], "result": None, "error": self.errors[method]}
        if method in self.results:
            return {"id": call["id"], "result": self.results[method], "error": None}
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body of each answer waits for an acknowledgement

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                calls = asked if isinstance(asked, list) else [asked]
                answers = [node._answer(call) for call in calls]
                status = HTTPStatus.SERVICE_UNAVAILABLE if None in answers else HTTPStatus.OK
                if not node.forbidden.isdisjoint(call["method"] for call in calls):
                    status = HTTPStatus.FORBIDDEN
                self.send_response(status)
                body = (
                    b""
                    if status != HTTPStatus.OK
                    else json.dumps(answers if isinstance(asked, list) else answers[0]).encode()
                )
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Suppress the log line that the HTTP server writes for each request."""

        return Handler


class PlantedSource:
    """Stands in for `MessageSource`: the session receives what the test puts into `inbox`."""

    topics = ZMQ_TOPICS
    subscribed_at_us = 1

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.is_throttled = False
        self.is_paused = False
        self.is_drained = False
        self.renewed: list[str] = []
        self.ring: Ring | None = None

    def start_forwarding(self, ring: Ring) -> None:
        """Keep the session's ring, so that the test can use it."""
        self.ring = ring

    def reconnect(self, topics: Collection[str]) -> None:
        """Record the topics whose connections the session wants to renew."""
        self.renewed += topics

    def end(self) -> None:
        """Mark the source as drained, so that the session expects no more messages."""
        self.is_drained = True

    def stop(self) -> None:
        """Mark the source as drained; there is nothing else to stop."""
        self.end()


def facts() -> NodeFacts:
    """Return the facts of a node at height 100 that has run for ever."""
    row = {
        "chain": "regtest",
        "node_version": 270000,
        "subversion": "/planted/",
        "tip_height": 100,
        "tip_hash": bytes.fromhex(TIP),
        "n_mempool_at_start": 0,
        "policy": "{}",
        "zmq": "[]",
        "collector_version": "0",
        "software": "{}",
        "settings": "{}",
    }
    return NodeFacts(dict.fromkeys(ZMQ_TOPICS, ""), math.inf, row)


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread during the `with` block; at its end, raise the error that `work` raised."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again in the test
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if raised:
        raise raised[0]
