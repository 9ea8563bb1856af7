"""Provide a TCP proxy before a server that misbehaves as networks do."""

import contextlib
import selectors
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Literal

from collector.regtest.ports import free_ports

Mode = Literal["pass", "refuse", "hang", "drip", "freeze", "endless", "gzip"]
CHUNK_BYTES = 65536
LINK_TIMEOUT_S = 30
ENDLESS_CHUNK = (b"[" * (1 << 20), b'"' + b"a" * (1 << 20), b"0" * (1 << 20), b'{"result":' * 100_000)
GZIP_CHUNKS = 256  # of 1 MiB each, when unpacked
DRIP_S = 1.0  # from one byte of the server to its next, in the mode "drip"


class Proxy:
    """Forwards connections to 127.0.0.1:`port`; its mode may be changed at any time.

    pass: forward everything. refuse: refuse new connections and reset open ones. hang: accept connections and
    keep all data back until the mode changes. drip: forward what clients send, and one byte a second of what
    the server answers on a connection. freeze: open connections stay open but carry nothing any more,
    new ones work; this is a half-open connection. endless: answer each request with a body that does not end.
    gzip: answer each with 256 MiB that gzip has made small. `n_sent` counts the bytes of such bodies.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._mode: Mode = "pass"
        self.n_sent = 0
        self._links: dict[socket.socket, socket.socket] = {}
        self._frozen: set[socket.socket] = set()
        self._next_drip_s: dict[socket.socket, float] = {}  # of each connection to the server
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listener: socket.socket | None = None
        (self.port,) = free_ports(1)
        self._listen()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"proxy-{port}", daemon=True)
        self._thread.start()

    @property
    def n_links(self) -> int:
        """Return the number of connections that are forwarded now."""
        with self._lock:
            return (len(self._links) - len(self._frozen)) // 2

    def set(self, mode: Mode) -> None:
        """Switch to another mode."""
        with self._lock:
            self._mode = mode
            if mode == "refuse":
                for each in list(self._links):
                    self._drop(each)
                self._close_listener()
            elif self._listener is None:
                self._listen()
            if mode == "freeze":
                self._frozen |= set(self._links)
        self._wake.send(b"x")

    def close(self) -> None:
        """End every connection and stop the proxy."""
        self._stopping = True
        self._wake.send(b"x")
        self._thread.join()
        with self._lock:
            for each in list(self._links):
                self._drop(each)
            self._close_listener()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _run(self) -> None:
        while not self._stopping:
            ready = [key.fileobj for key, _ in self._selector.select(0.2)]
            with self._lock:
                for each in ready:
                    if each is self._woken:
                        self._woken.recv(CHUNK_BYTES)
                    elif each is self._listener:
                        self._accept()
                    elif each in self._links and self._mode in {"endless", "gzip"}:
                        self._answer(each)
                    elif each in self._links and (limit := self._may_forward(each)):
                        self._forward(each, limit)
            if self._mode in {"hang", "drip"} or self._frozen:
                threading.Event().wait(0.01)  # what we do not read stays ready

    def _accept(self) -> None:
        assert self._listener is not None
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._to), timeout=1)
        except OSError:  # the server is down: so are we
            near.close()
            return
        for each in (near, far):
            each.settimeout(LINK_TIMEOUT_S)
        self._next_drip_s[far] = 0.0
        for one, other in ((near, far), (far, near)):
            self._links[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _may_forward(self, from_: socket.socket) -> int:
        """Return how many bytes from this end of a connection may be forwarded now; 0 for none."""
        if self._mode == "hang" or from_ in self._frozen:
            return 0
        if self._mode != "drip" or from_ not in self._next_drip_s:
            return CHUNK_BYTES
        if time.monotonic() < self._next_drip_s[from_]:
            return 0
        self._next_drip_s[from_] = time.monotonic() + DRIP_S
        return 1

    def _answer(self, client: socket.socket) -> None:
        """Answer what a client has asked with a body that is too large, until the client has enough."""
        encoding = b"Content-Encoding: gzip\r\n" if self._mode == "gzip" else b""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        with contextlib.suppress(OSError):
            if client.recv(CHUNK_BYTES):
                client.sendall(head + encoding + b"\r\n")
                for body in self._bodies():
                    client.sendall(b"%x\r\n%s\r\n" % (len(body), body))
                    self.n_sent += len(body)
                client.sendall(b"0\r\n\r\n")
        self._drop(client)

    def _bodies(self) -> Iterator[bytes]:
        if self._mode == "gzip":
            packer = zlib.compressobj(9, wbits=31)
            for _ in range(GZIP_CHUNKS):
                if packed := packer.compress(ENDLESS_CHUNK[0]):
                    yield packed
            yield packer.flush()
            return
        chunk = ENDLESS_CHUNK[self.n_sent % len(ENDLESS_CHUNK)]
        while not self._stopping:
            yield chunk

    def _forward(self, from_: socket.socket, limit: int) -> None:
        try:
            data = from_.recv(limit)
            if data:
                self._links[from_].sendall(data)
                return
        except OSError:
            pass
        self._drop(from_)

    def _drop(self, one: socket.socket) -> None:
        other = self._links.pop(one, None)
        for each in (one, other):
            if each is not None:
                self._links.pop(each, None)
                self._frozen.discard(each)
                self._next_drip_s.pop(each, None)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(each)
                each.close()
