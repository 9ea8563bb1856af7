"""Serve /metrics, /healthz, /readyz and /events over HTTP, on loopback unless a setting says otherwise.

The server must never cost the collector its threads or file descriptors. So one thread serves every client,
the number of connections has a limit, and each connection has a deadline for all that happens on it. A stream
of /events ends before that deadline; its reader connects again and goes on from the last id it has seen.
"""

import asyncio
import json
import logging
import socket
import threading
from http import HTTPStatus
from typing import Any, Final

import structlog
import uvicorn
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from collector.bounded_http import MAX_REQUEST_BYTES, bounded_protocol
from collector.errors import SettingsError
from collector.loopback import is_loopback
from collector.monitor.event_streams import EventStreams, Send
from collector.monitor.health import Health
from collector.monitor.live_rows import LiveRows
from collector.monitor.metrics import Metrics

PATHS: Final = b"/metrics, /healthz, /readyz and /events are here\n"
MAX_CONNECTIONS: Final = 32  # a new one beyond them closes the oldest
MAX_ACCEPTED: Final = 16  # connections that are accepted together, before the limit is applied
MAX_WAITING: Final = 1024  # connections that wait in the kernel to be accepted; they cost us no descriptor
DEADLINE_S: Final = 10.0  # for a connection, from accept to close; Prometheus waits no longer for a scrape
log = structlog.get_logger(__name__)


class MonitorServer:
    """Serves HTTP at `address`, for example 127.0.0.1:9733 or [::1]:9733, from its creation until `close`.

    Raises SettingsError for an address that other machines can reach, unless `allow_remote` is true, and for
    an address at which we cannot listen.
    """

    def __init__(
        self,
        address: str,
        metrics: Metrics,
        health: Health,
        live: LiveRows | None = None,
        *,
        allow_remote: bool = False,
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._streams = EventStreams(live or LiveRows(), health)
        self._lacks_resources = False
        self._socket = _bound(address, allow_remote=allow_remote)
        self.port: int = self._socket.getsockname()[1]
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a bad request is no event of ours
        config = uvicorn.Config(
            self._answer_request,
            http=bounded_protocol(MAX_CONNECTIONS, DEADLINE_S),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=MAX_ACCEPTED,
            h11_max_incomplete_event_size=MAX_REQUEST_BYTES,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config, self._streams)
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(),), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving, wait for the server's thread to end, and close the listening socket."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        await self._server.serve(sockets=[self._socket])

    def _on_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error that the event loop reports outside of requests; a lack of descriptors only once.

        When descriptors run out, the event loop accepts no connection for a second and then tries again.
        Connections that clients break are not logged.
        """
        error = context.get("exception")
        if isinstance(error, ConnectionError):
            return
        if isinstance(error, OSError) and not self._lacks_resources:
            self._lacks_resources = True
            log.warning("metrics.overloaded", reason=error.strerror or str(error))
        elif not isinstance(error, OSError):
            log.error("metrics.failed", message=context["message"], exc_info=error)

    async def _answer_request(self, scope: dict[str, Any], _receive: object, send: Send) -> None:
        """Answer one HTTP request, as an ASGI application.

        An unexpected error is logged and answered with status 500.
        """
        if (scope["method"], scope["path"]) == ("GET", "/events"):
            await self._streams.send_to(scope["headers"], send)
            return
        try:
            status, content_type, body = self._answer(scope["method"], scope["path"])
        except Exception as error:
            log.exception("metrics.failed", path=scope["path"], exc_info=error)
            status, content_type, body = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"see the log\n"
        headers = {"content-type": content_type, "content-length": str(len(body)), "connection": "close"}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return the status, content type and body of the answer to an HTTP method and path."""
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", PATHS
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
        if path == "/healthz":
            return self._report("alive", self._health.stalled())
        if path == "/readyz":
            return self._report("ready", self._health.unready())
        return HTTPStatus.NOT_FOUND, "text/plain", PATHS

    def _report(self, name: str, reasons: list[str]) -> tuple[HTTPStatus, str, bytes]:
        """Return the answer to /healthz or /readyz: status 503 if there are `reasons` against it, else 200.

        The body is JSON: `name` ("alive" or "ready") with true or false, the reasons, and the state of each
        node.
        """
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        content = {name: not reasons, "reasons": reasons, "nodes": self._health.nodes()}
        return status, "application/json", json.dumps(content).encode() + b"\n"


class _Server(uvicorn.Server):
    """Serves HTTP as uvicorn does, but lets many connections wait in the kernel until they are accepted.

    When it ends, it first ends the streams, which it would otherwise wait for.
    """

    def __init__(self, config: uvicorn.Config, streams: EventStreams) -> None:
        super().__init__(config)
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen on the sockets, then raise the number of connections that may wait to MAX_WAITING.

        asyncio has only one setting for how many connections it accepts at once and how many may wait.
        """
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(MAX_WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then all other connections."""
        self._streams.close()
        await super().shutdown(sockets)


def try_address(address: str, *, allow_remote: bool = False) -> None:
    """Raise SettingsError if a MonitorServer could not listen at `address`; the port stays free."""
    _bound(address, allow_remote=allow_remote).close()


def _bound(address: str, *, allow_remote: bool) -> socket.socket:
    """Return a socket that listens at `address` (HOST:PORT).

    Raises SettingsError when the port cannot be used, or when other machines can reach it and may not.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not allow_remote and not is_loopback(host):
        raise SettingsError(
            f"metrics: {address} can be reached from other machines; write 127.0.0.1:{port}, or set "
            "allow_remote_metrics = true"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=MAX_WAITING)
    except OSError as error:
        raise SettingsError(
            f"metrics: cannot listen on {address}: {error.strerror}; set metrics to a free port of this "
            "machine"
        ) from None
