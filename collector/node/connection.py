"""Open one HTTP connection to the RPC of a node, with a deadline and a size limit for each answer.

`http.client` and `requests` apply a timeout to each read, so a server that sends a byte a second holds a
request for as long as it likes. Here every read of a request shares one deadline, and checks the stop event
several times a second. No library that we depend on does this.
"""

import http.client
import io
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from requests.adapters import DEFAULT_CA_BUNDLE_PATH

CHUNK_BYTES: Final = 1 << 16
LONGEST_READ_S: Final = 0.25  # then the stop event is looked at


class Stopped(Exception):  # noqa: N818 - a decision of ours, not a mistake
    """The stop event was set while a request was open."""


class TooLarge(Exception):  # noqa: N818 - see above
    """The answer has more bytes than its request allows."""


class Response(NamedTuple):
    """Holds one complete HTTP answer."""

    status: HTTPStatus | int
    date: str | None  # the header `Date`
    encoding: str | None  # the header `Content-Encoding`
    body: bytes


class Connection:
    """Sends requests over one HTTP connection, opened by the first request and kept open for the next."""

    def __init__(self, url: str, *, ca_file: Path | None, stop: threading.Event) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        if parts.query:
            self._path += f"?{parts.query}"
        self._stop = stop
        self._socket: _DeadlineSocket | None = None
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            # The authorities are those that come with requests; no environment variable adds to them.
            context = ssl.create_default_context(cafile=str(ca_file or DEFAULT_CA_BUNDLE_PATH))
            self._http: Any = http.client.HTTPSConnection(host, port, context=context)
        else:
            self._http = http.client.HTTPConnection(host, port)

    def post(self, body: bytes, headers: dict[str, str], *, timeout_s: float, limit_bytes: int) -> Response:
        """Send a request and return the whole answer within `timeout_s`.

        Raises TimeoutError, TooLarge, Stopped, OSError or http.client.HTTPException. After each of them the
        connection is closed.
        """
        try:
            return self._exchange(body, headers, time.monotonic() + timeout_s, limit_bytes)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._socket = None
        with suppress(OSError):
            self._http.close()

    def _open(self, deadline_s: float) -> "_DeadlineSocket":
        """Connect, and replace the socket that http.client made by one with a deadline."""
        self._http.timeout = max(0.001, deadline_s - time.monotonic())
        self._http.connect()
        plain: Any = self._http.sock
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = _DeadlineSocket(plain, self._stop)
        self._http.sock = self._socket
        return self._socket

    def _exchange(self, body: bytes, headers: dict[str, str], deadline_s: float, limit: int) -> Response:
        """Send one request over the open connection, or over a new one, and return its answer."""
        connected = self._socket
        if self._http.sock is None or connected is None or connected.is_closed_by_peer():
            self.close()
            connected = self._open(deadline_s)
        connected.deadline_s = deadline_s
        self._http.request("POST", self._path, body, headers)
        with self._http.getresponse() as response:
            parts = []
            n_bytes = 0
            while chunk := response.read1(CHUNK_BYTES):
                n_bytes += len(chunk)
                if n_bytes > limit:
                    raise TooLarge
                parts.append(chunk)
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            date, encoding = response.headers["Date"], response.headers["Content-Encoding"]
            return Response(response.status, date, encoding, b"".join(parts))


class _DeadlineSocket:
    """Wraps a connected socket so that every operation ends by `deadline_s` on the monotonic clock.

    It has only the methods that http.client uses.
    """

    def __init__(self, connected: socket.socket, stop: threading.Event) -> None:
        self.deadline_s = 0.0  # on the monotonic clock
        self._socket = connected
        self._stop = stop

    def sendall(self, data: bytes) -> None:
        """Send all of `data`; raise TimeoutError at the deadline."""
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a buffered reader of the bytes that arrive; http.client passes `mode`, always "rb"."""
        del mode
        return io.BufferedReader(_DeadlineReader(self), CHUNK_BYTES)

    def receive_into(self, buffer: Any) -> int:
        """Wait for bytes, put them into `buffer` and return their number (0 after the peer closed).

        Raises TimeoutError at the deadline and Stopped once the stop event is set.
        """
        while True:
            self._socket.settimeout(min(self._left_s(), LONGEST_READ_S))
            with suppress(TimeoutError):
                return self._socket.recv_into(buffer)

    def is_closed_by_peer(self) -> bool:
        """Return whether the node has closed the connection, as it does after 30 idle seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def hold(self) -> io.RawIOBase:
        """Return a reader that keeps the socket open until it is closed.

        http.client closes the socket before it reads the answer.
        """
        return self._socket.makefile("rb", buffering=0)

    def close(self) -> None:
        """Close the socket; it stays open until readers made by `hold` are closed too."""
        self._socket.close()

    def _left_s(self) -> float:
        """Return the seconds until the deadline; raise TimeoutError after it and Stopped after a stop."""
        if self._stop.is_set():
            raise Stopped
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _DeadlineReader(io.RawIOBase):
    """Gives the bytes that arrive at a _DeadlineSocket as a raw stream."""

    def __init__(self, source: _DeadlineSocket) -> None:
        self._source = source
        self._held = source.hold()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.receive_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self._held.close()
        super().close()
