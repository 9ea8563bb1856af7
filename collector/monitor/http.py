"""Serve /metrics, /healthz and /readyz over HTTP, on loopback unless a setting says otherwise."""

import json
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import structlog
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from collector.errors import SettingsError
from collector.loopback import is_loopback
from collector.monitor.health import Health
from collector.monitor.metrics import Metrics

PATHS: Final = b"/metrics, /healthz and /readyz are here\n"
IDLE_S: Final = 5.0  # a peer that says nothing holds a thread no longer
LOOK_S: Final = 0.1  # between two looks whether to stop
log = structlog.get_logger(__name__)


class MonitorServer:
    """Answers at `address`, e.g. 127.0.0.1:9733 or [::1]:9733, until closed.

    Raises SettingsError for an address of another machine's reach without `allow_remote`, and for one that
    cannot be listened on.
    """

    def __init__(self, address: str, metrics: Metrics, health: Health, *, allow_remote: bool = False) -> None:
        self._server = _bound(address, _handler(metrics, health), allow_remote=allow_remote)
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def try_address(address: str, *, allow_remote: bool = False) -> None:
    """Raise SettingsError where a MonitorServer would; what is bound for that is given back at once."""
    _bound(address, BaseHTTPRequestHandler, allow_remote=allow_remote).server_close()


def _bound(address: str, handler: type[BaseHTTPRequestHandler], *, allow_remote: bool) -> ThreadingHTTPServer:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not allow_remote and not is_loopback(host):
        raise SettingsError(
            f"metrics: {address} can be reached from other machines; write 127.0.0.1:{port}, or set "
            "allow_remote_metrics = true"
        )
    try:
        return _server_class(host)((host, int(port)), handler)
    except OSError as error:
        raise SettingsError(
            f"metrics: cannot listen on {address}: {error.strerror}; set metrics to a free port of this "
            "machine"
        ) from None


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Log what went wrong; a peer that hangs up before it has its answer is no event."""
            error = sys.exception()
            if not isinstance(error, ConnectionError):
                log.error("metrics.failed", exc_info=error)

    return Server


def _handler(metrics: Metrics, health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry))
            elif path == "/healthz":
                self._say("alive", health.stalled())
            elif path == "/readyz":
                self._say("ready", health.unready())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", PATHS)

        def _say(self, what: str, reasons: list[str]) -> None:
            status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
            content = {what: not reasons, "reasons": reasons, "nodes": health.nodes()}
            self._answer(status, "application/json", json.dumps(content).encode() + b"\n")

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent: a scrape is no event."""

    return Handler
