"""Keep an HTTP connection to a node whose requests have one deadline each, and end at a stop.

`http.client` and `requests` apply a timeout to each address of a name and to each read, so a server that
sends a byte a second holds a request for as long as it likes. Here the connection, the handshake of TLS and
every read of a request share one deadline. Each looks at the stop event several times a second, and the bytes
of an answer count against a limit. `http.client` still writes the request and reads the answer.
"""

import errno
import http.client
import io
import os
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
LONGEST_WAIT_S: Final = 0.25  # then the stop event is looked at
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class RequestStopped(Exception):  # noqa: N818 - a decision of ours, not a mistake
    """Means that a stop was requested while a request to the node was open."""


class TooLarge(Exception):  # noqa: N818 - see above
    """Means that an answer of the node has more bytes than its request allows."""


class Response(NamedTuple):
    """Holds one complete HTTP answer."""

    status: HTTPStatus | int
    date: str | None  # the header `Date`
    encoding: str | None  # the header `Content-Encoding`
    body: bytearray


class Connection:
    """Sends requests over one HTTP connection, opened by the first request and kept open for the next."""

    def __init__(self, url: str, *, ca_file: Path | None, stop: threading.Event) -> None:
        parts = urlsplit(url)
        self._path = parts.path or "/"
        if parts.query:
            self._path += f"?{parts.query}"
        self._stop = stop
        self._socket: _DeadlineSocket | None = None
        self._host, self._port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            # The authorities are those that come with requests; no environment variable adds to them.
            self._tls = ssl.create_default_context(cafile=str(ca_file or DEFAULT_CA_BUNDLE_PATH))
        self._http: Any = http.client.HTTPConnection(self._host, self._port)

    def post(self, body: bytes, headers: dict[str, str], *, timeout_s: float, limit_bytes: int) -> Response:
        """Send an HTTP POST request and return the whole answer within `timeout_s`.

        Raises TimeoutError, TooLarge, RequestStopped, OSError or http.client.HTTPException. After each of
        them the connection is closed.
        """
        try:
            return self._exchange(body, headers, time.monotonic() + timeout_s, limit_bytes)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the HTTP connection to the node; the next request opens another one."""
        self._socket = None
        with suppress(OSError):
            self._http.close()

    def _open(self, deadline_s: float) -> "_DeadlineSocket":
        """Connect to the node, and give http.client a socket with a deadline; return the socket."""
        connected = _connect(self._host, self._port, deadline_s, self._stop)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connected = self._shake_hands(connected, self._tls, deadline_s)
        except BaseException:
            connected.close()
            raise
        self._socket = _DeadlineSocket(connected, self._stop)
        self._http.sock = self._socket
        return self._socket

    def _shake_hands(self, plain: socket.socket, tls: ssl.SSLContext, deadline_s: float) -> ssl.SSLSocket:
        """Return the connection wrapped in TLS, after the handshake and the check of the certificate."""
        secure = tls.wrap_socket(plain, server_hostname=self._host, do_handshake_on_connect=False)
        while True:
            secure.settimeout(min(_left_s(deadline_s, self._stop), LONGEST_WAIT_S))
            with suppress(TimeoutError):
                secure.do_handshake()
                return secure

    def _exchange(self, body: bytes, headers: dict[str, str], deadline_s: float, limit: int) -> Response:
        """Send one request over the open connection, or over a new one, and return its answer."""
        connected = self._socket
        if self._http.sock is None or connected is None or connected.is_closed_by_peer():
            self.close()
            connected = self._open(deadline_s)
        connected.deadline_s = deadline_s
        self._http.request("POST", self._path, body, headers)
        with self._http.getresponse() as response:
            answer = bytearray()
            while chunk := response.read1(CHUNK_BYTES):
                answer += chunk
                if len(answer) > limit:
                    raise TooLarge
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            date, encoding = response.headers["Date"], response.headers["Content-Encoding"]
            return Response(response.status, date, encoding, answer)


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
        self._socket.settimeout(_left_s(self.deadline_s, self._stop))
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a buffered reader of the bytes that arrive; http.client passes `mode`, always "rb"."""
        del mode
        return io.BufferedReader(_DeadlineReader(self), CHUNK_BYTES)

    def receive_into(self, buffer: Any) -> int:
        """Wait for bytes, put them into `buffer` and return their number (0 after the peer closed).

        Raises TimeoutError at the deadline and RequestStopped once the stop event is set.
        """
        while True:
            self._socket.settimeout(min(_left_s(self.deadline_s, self._stop), LONGEST_WAIT_S))
            with suppress(TimeoutError):
                return self._socket.recv_into(buffer)

    def is_closed_by_peer(self) -> bool:
        """Return whether the node has closed the connection, as it does after 30 idle seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def hold(self) -> io.RawIOBase:
        """Return a reader of the socket; the socket stays open until the reader is closed.

        http.client closes the socket before it reads the answer.
        """
        return self._socket.makefile("rb", buffering=0)

    def close(self) -> None:
        """Close the socket; it stays open until readers made by `hold` are closed too."""
        self._socket.close()


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


def _connect(host: str, port: int, deadline_s: float, stop: threading.Event) -> socket.socket:
    """Return a socket connected to the first address of a host that answers; each gets a part of the time.

    Raises the OSError of the last address, TimeoutError at the deadline and RequestStopped at a stop.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    refusal: OSError = TimeoutError()
    for n_left, (family, kind, protocol, _, address) in zip(
        range(len(addresses), 0, -1), addresses, strict=True
    ):
        now_s = time.monotonic()
        connecting = socket.socket(family, kind, protocol)
        try:
            _await_connection(connecting, address, now_s + (deadline_s - now_s) / n_left, stop)
        except OSError as error:
            connecting.close()
            refusal = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise refusal


def _await_connection(
    connecting: socket.socket, address: Any, deadline_s: float, stop: threading.Event
) -> None:
    """Connect the socket `connecting` to an address; raise as `_connect` does."""
    connecting.settimeout(0)  # it does not block
    code = connecting.connect_ex(address)
    if code == errno.EINPROGRESS:
        writable = select.poll()
        writable.register(connecting, select.POLLOUT)
        while not writable.poll(1000 * min(_left_s(deadline_s, stop), LONGEST_WAIT_S)):
            pass
        code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _left_s(deadline_s: float, stop: threading.Event) -> float:
    """Return the seconds to a deadline; raise TimeoutError after it and RequestStopped after a stop."""
    if stop.is_set():
        raise RequestStopped
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
